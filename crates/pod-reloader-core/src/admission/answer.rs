//! Answers to a review: the patch and the warnings that give the config hash annotation its value.

use json_patch::PatchOperation;

use crate::decision::speaks_of;
use crate::digest::Objects;
use crate::discovery::Unmet;
use crate::patch;
use crate::sync_status::SyncStatus;
use crate::workload::{Slot, Workload};

/// The answer to a review. The write itself is always allowed.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    /// The change to the object: for each pod template, nothing, one `add` of the config hash annotation
    /// with any missing parents, or one `remove`. An `add` of the baseline follows if the request dropped
    /// it or the workload is being restored.
    pub patch: Vec<PatchOperation>,
    /// Warnings shown to the user who made the request.
    pub warnings: Vec<String>,
    /// The result for the config hash annotation.
    pub outcome: Outcome,
    /// The sync status, if the request was a status query.
    pub sync_status: Option<SyncStatus>,
    /// The digits of the content that is due, if the request was a status query: see
    /// [`Report::content`](crate::sync_status::Report).
    pub due_content: Option<String>,
    /// Everything without which the pods could not start, if the request was a status query.
    pub missing: Vec<Unmet>,
}

/// The result for the config hash annotation, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The workload is not managed, so the request is left as it is.
    #[default]
    Ignored,
    /// The stored value stays.
    Unchanged,
    /// The value is now the hash of the current state.
    Set,
    /// The stored value stays because the pods need something that is missing.
    MissingConfig,
    /// The stored value stays because the current state could not be read. The loop repairs it.
    Unknown,
    /// The value is left out because Kubernetes accepts no more annotations on the pod template.
    TooLong,
}

/// The annotations of ours that the stored object carries.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Config hash and pins of each pod template, in the order that the kind lists them. Empty during a create.
    pub(super) stamps: Vec<[Option<Box<str>>; 2]>,
    pub(super) baseline: Option<Box<str>>,
    /// The pins of what was undone.
    pub(super) undone: Option<Box<str>>,
}

impl Stored {
    /// Returns the stored config hash of each pod template of `workload` that should carry one now.
    pub(super) fn hashes<'a>(
        &'a self,
        workload: &'a Workload,
    ) -> impl Iterator<Item = Option<&'a str>> {
        workload
            .slots()
            .map(|(at, ..)| self.stamps.get(at)?[0].as_deref())
    }

    /// Returns the stored pins of each such pod template.
    pub(super) fn pins<'a>(
        &'a self,
        workload: &'a Workload,
    ) -> impl Iterator<Item = Option<&'a str>> {
        workload
            .slots()
            .map(|(at, ..)| self.stamps.get(at)?[1].as_deref())
    }
}

/// The desired value of the config hash annotation.
#[derive(Clone, Copy)]
pub(super) enum Desired<'a> {
    /// The stored value.
    Stored,
    /// This hash.
    Hash(&'a str),
    /// This hash, with a baseline that says what it stands for.
    WithBaseline(&'a str, &'a str),
    /// No value, with a baseline that says what the pods have.
    Baseline(&'a str),
    /// No value at all.
    Nothing,
}

/// The desired pins.
#[derive(Clone, Copy)]
pub(super) enum DesiredPins<'a> {
    /// The stored ones. A sender who drops them knows nothing of them, nor of what was undone.
    Stored,
    /// These, and what is undone.
    These {
        pins: Option<&'a str>,
        undone: Option<&'a str>,
    },
}

impl DesiredPins<'_> {
    /// No annotations at all.
    pub(super) const NONE: Self = Self::These {
        pins: None,
        undone: None,
    };

    /// Returns the value for each pod template.
    pub(super) fn of_templates<'a>(
        &'a self,
        workload: &'a Workload,
        stored: &'a Stored,
    ) -> Vec<Option<&'a str>> {
        let of = |stored| match self {
            Self::Stored => stored,
            Self::These { pins, .. } => *pins,
        };
        stored.pins(workload).map(of).collect()
    }

    /// Returns the patch that gives the workload what is undone.
    fn undone(&self, workload: &Workload, stored: &Stored) -> Vec<PatchOperation> {
        match self {
            Self::Stored => {
                let is_dropped = |(_, slot): (usize, Slot<'_>)| slot.state.pins.is_none();
                let own = workload.undone();
                match &stored.undone {
                    Some(undone) if own.is_none() && workload.slots().all(is_dropped) => {
                        patch::change_undone(workload, Some(undone))
                    }
                    _ => Vec::new(),
                }
            }
            Self::These { undone, .. } => patch::change_undone(workload, *undone),
        }
    }
}

impl Answer {
    /// Returns the answer that leaves a managed workload as it is, with the warnings about it.
    pub(super) fn unchanged(workload: &Workload) -> Self {
        Self {
            warnings: warnings(workload),
            outcome: Outcome::Unchanged,
            ..Self::default()
        }
    }

    /// Returns the answer to a request that was filled before, by this patch.
    pub(super) fn after(
        mut self,
        mut filling: Vec<PatchOperation>,
        notice: Option<String>,
    ) -> Self {
        filling.append(&mut self.patch);
        self.patch = patch::once(filling);
        // It comes first, because the apiserver truncates warnings that are too long in total.
        self.warnings.splice(0..0, notice);
        self
    }

    /// Turns the config hash of the request into `desired`. A sender who tries to replace the stored value
    /// gets a warning. If the stored value stays, its baseline stays too: without it, the value would say
    /// nothing.
    pub(super) fn giving(
        desired: Desired<'_>,
        pins: DesiredPins<'_>,
        workload: &Workload,
        stored: &Stored,
        claims_hash: bool,
        outcome: Outcome,
    ) -> Self {
        let old: Vec<_> = stored.hashes(workload).collect();
        let wanted = wanted(workload, stored, desired);
        let wanted_pins = pins.of_templates(workload, stored);
        let mut patch = patch::change_templates(workload, |at| [wanted[at], wanted_pins[at]]);
        let baseline = match desired {
            Desired::WithBaseline(_, baseline) | Desired::Baseline(baseline) => Some(baseline),
            _ => {
                let value = old.iter().copied().flatten().next();
                let is_its_own = |baseline: &&str| wanted == old && speaks_of(baseline, value);
                stored.baseline.as_deref().filter(is_its_own)
            }
        };
        let new_baseline = baseline.filter(|it| workload.markers.baseline.as_deref() != Some(*it));
        // These go first because the apiserver truncates warnings that are too long in total.
        let mut warnings = Vec::new();
        match new_baseline {
            Some(it) if workload.markers.has_room_for(it) => {
                patch.extend(patch::add_baseline(workload, it));
            }
            Some(_) => warnings.push(BASELINE_TOO_LONG.to_owned()),
            None => {}
        }
        if workload.rare().pinning.is_some() {
            patch.extend(pins.undone(workload, stored));
        }
        let patch = patch::once(patch);
        let is_overridden = |(at, (_, slot)): (usize, (usize, Slot<'_>))| {
            let requested = slot.state.config_hash.as_deref();
            requested.is_some() && requested != wanted[at] && requested != old[at]
        };
        if claims_hash || workload.slots().enumerate().any(is_overridden) {
            warnings.push(OVERRIDDEN.to_owned());
        }
        warnings.extend(self::warnings(workload));
        Self {
            patch,
            warnings,
            outcome,
            ..Self::default()
        }
    }
}

/// Returns the value that `desired` gives each pod template of `workload` that can carry one.
pub(super) fn wanted<'a>(
    workload: &'a Workload,
    stored: &'a Stored,
    desired: Desired<'a>,
) -> Vec<Option<&'a str>> {
    let of = |old| match desired {
        Desired::Stored => old,
        Desired::Hash(hash) | Desired::WithBaseline(hash, _) => Some(hash),
        Desired::Nothing | Desired::Baseline(_) => None,
    };
    stored.hashes(workload).map(of).collect()
}

/// Returns what is wrong with the annotations, labels and lists of `workload`, at most [`MAX_WARNINGS`].
pub(super) fn warnings(workload: &Workload) -> Vec<String> {
    let advice = workload.rare().advice.iter().map(ToString::to_string);
    let rejected = workload.references.rejected.iter();
    advice
        .chain(rejected.map(ToString::to_string))
        .take(MAX_WARNINGS)
        .map(|warning| format!("pod-reloader: {warning}"))
        .collect()
}

impl Answer {
    /// Adds warnings about what the workload asks to track and is not there, up to [`MAX_WARNINGS`] in all.
    pub(super) fn warn_of_unanswered(&mut self, workload: &Workload, objects: &Objects) {
        let room = MAX_WARNINGS.saturating_sub(self.warnings.len());
        let advice = workload.unanswered(objects).into_iter().take(room);
        let warnings = advice.map(|advice| format!("pod-reloader: {advice}"));
        self.warnings.extend(warnings);
    }
}

/// The apiserver truncates warnings beyond 4 KiB.
pub(super) const MAX_WARNINGS: usize = 10;
const BASELINE_TOO_LONG: &str = "pod-reloader: the annotations of the workload are too long to add \
                                 pod-reloader.cs.sap.com/baseline: shorten them, until then changes \
                                 of config may be missed";
pub(super) const OVERRIDDEN: &str = "pod-reloader: the request's config-hash does not count; \
                                     remove pod-reloader.cs.sap.com/config-hash from your manifest";
