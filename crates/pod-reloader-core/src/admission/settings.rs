//! The settings of a workload: the annotations and labels by which people tell pod-reloader what to do with it. A write
//! whose sender does not know them leaves them as they are.

use json_patch::PatchOperation;

use crate::annotations::{BASELINE, OF_TEMPLATES, Place, UNDONE};
use crate::lasting::is_setting;
use crate::managers::{MANIFESTS, is_by_hand};
use crate::object::Reviewed;
use crate::patch;
use crate::review::RawWorkload;
use crate::texts::Texts;
use crate::words::either;
use crate::workload::{Reading, Workload};

/// A setting that a request takes away or changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Forgotten {
    pub(super) place: Place,
    pub(super) key: Box<str>,
    /// The stored value.
    pub(super) stored: Box<str>,
    /// The value of the request.
    asked: Option<Box<str>>,
}

impl Forgotten {
    /// Returns the settings that `new` takes away or changes, of those that are read.
    pub(super) fn all(
        old: &RawWorkload<'_>,
        new: &RawWorkload<'_>,
        reading: &Reading,
    ) -> Vec<Self> {
        let mut all = Vec::new();
        for place in [Place::Annotation, Place::Label] {
            let is_setting = |key: &str| is_setting(key, place, reading);
            let Some([old, new]) = old.texts_unlike(new, place, is_setting) else {
                continue;
            };
            let of = |(key, stored): (&str, &str)| Self {
                place,
                key: key.into(),
                stored: stored.into(),
                asked: new.get(key).map(Into::into),
            };
            let forgotten = old.iter().map(of);
            all.extend(forgotten.filter(|it| it.asked.as_ref() != Some(&it.stored)));
        }
        all
    }

    /// Returns true if a manifest that replaces the workload leaves the setting as it is: it says nothing of it, and
    /// neither its sender nor another manifest has set it.
    pub(super) fn outlives_manifest(&self, old: &RawWorkload<'_>, sender: Option<&str>) -> bool {
        let is_person = |manager: &str| match sender {
            Some(sender) => manager != sender && !MANIFESTS.contains(&manager),
            // Its fields have a manager that the review does not name. It may be any but these.
            None => is_by_hand(manager),
        };
        self.asked.is_none() && old.is_set_only_by(self.place, &self.key, is_person)
    }

    /// Returns true if an undo leaves the setting as it is: the request has it as the workload had it with the earlier
    /// revision, so nobody has written that now.
    pub(super) fn outlives_undo(&self, earlier: &Texts) -> bool {
        self.place == Place::Annotation && self.asked.as_deref() == earlier.get(&self.key)
    }
}

/// The reason why something stays that a request does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// A manifest replaces the workload.
    Replaced,
    /// The request undoes a rollout.
    Undone,
    /// The new workload takes over pods that run its template already.
    TakesOver,
}

impl Reason {
    /// Returns the reason in words. `it` stands for what stays.
    fn why(self, it: &str) -> String {
        match self {
            Self::Replaced => format!(
                "the manifest does not have {it}, and somebody else has set {it}; to remove {it}, use kubectl annotate or \
                 kubectl label"
            ),
            Self::Undone => format!(
                "an undo brings back the pod template alone; to change {it}, use kubectl annotate"
            ),
            Self::TakesOver => format!(
                "its pods and their ReplicaSet were there already; to remove {it}, use kubectl annotate"
            ),
        }
    }
}

/// What a request does not say, and what stays in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) annotations: Vec<(Box<str>, Box<str>)>,
    pub(super) labels: Vec<(Box<str>, Box<str>)>,
    /// All annotations of ours that the pod template is to have. `None` leaves those of the request.
    pub(super) template: Option<Vec<(&'static str, Box<str>)>>,
}

impl Filled {
    /// Returns these settings, as they are stored.
    pub(super) fn with<'a>(settings: impl IntoIterator<Item = &'a Forgotten>) -> Self {
        let mut filled = Self::default();
        for Forgotten {
            place, key, stored, ..
        } in settings
        {
            let all = match place {
                Place::Label => &mut filled.labels,
                _ => &mut filled.annotations,
            };
            all.push((key.clone(), stored.clone()));
        }
        filled
    }

    /// Returns true if nothing was missing.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the same without annotations for which the object of which `workload` was read has no room: Kubernetes would
    /// refuse the write.
    pub(super) fn that_fits(&self, workload: &Workload) -> Self {
        let sizes = self.annotations.iter();
        let size = sizes.map(|(key, value)| key.len() + value.len()).sum();
        match workload.markers.has_room_of(size) {
            true => self.clone(),
            false => Self {
                annotations: Vec::new(),
                ..self.clone()
            },
        }
    }

    /// Fills an object.
    pub(super) fn fill(&self, object: &mut Reviewed) {
        fn pairs(all: &[(Box<str>, Box<str>)]) -> Vec<(&str, &str)> {
            all.iter().map(|(key, value)| (&**key, &**value)).collect()
        }
        object.give(&pairs(&self.annotations), &pairs(&self.labels));
        if let Some(template) = &self.template {
            let template = template.iter();
            let template: Vec<_> = template.map(|(key, value)| (*key, &**value)).collect();
            object.give_template(&template);
        }
    }

    /// Returns the patch that fills the object of which `workload` was read.
    pub(super) fn patch(&self, workload: &Workload) -> Vec<PatchOperation> {
        let markers = &workload.markers;
        let of = |parent, has_parent, all: &[(Box<str>, Box<str>)]| {
            let depth = if has_parent { 2 } else { 1 };
            let adds = all.iter();
            let adds = adds.map(|(key, value)| {
                patch::change(&["metadata", parent, key], depth, None, Some(value))
            });
            adds.flatten().collect::<Vec<_>>()
        };
        let mut all = of("annotations", markers.has_annotations, &self.annotations);
        all.extend(of("labels", markers.has_labels, &self.labels));
        if let Some(template) = &self.template {
            let given = |key: &str| {
                let own = template.iter().find(|(own, _)| *own == key);
                own.map(|(_, value)| &**value)
            };
            all.extend(patch::change_templates(workload, |_| {
                OF_TEMPLATES.map(given)
            }));
        }
        patch::once(all)
    }

    /// Returns the warning that names the settings that stay, if any do.
    pub(super) fn warning(&self, reason: Reason) -> Option<String> {
        let annotations = self.annotations.iter();
        let settings = annotations.filter(|(key, _)| !OF_PODS.contains(&&**key));
        let keys: Vec<_> = settings
            .chain(&self.labels)
            .map(|(key, _)| &**key)
            .collect();
        let [stay, it] = [["stays", "stay"], ["it", "them"]].map(|it| either(&keys.len(), it));
        let why = reason.why(it);
        let keys = keys.join(", ");
        (!keys.is_empty()).then(|| format!("pod-reloader: {keys} {stay} as before: {why}"))
    }
}

/// The annotations of a workload in which we note what its pods have.
pub(super) const OF_PODS: [&str; 2] = [BASELINE, UNDONE];
