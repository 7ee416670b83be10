//! Translates the annotations of other controllers into ours, so that a workload tracks the same as before.
//!
//! Several translations are tried. Each is read as the operator would read it, and only one that tracks the same
//! objects and keys is returned.

mod lists;
mod remarks;
mod tracked;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use serde_json::value::to_raw_value;

use self::lists::{exclude_key, item, list_key};
pub use self::remarks::{Note, Untranslatable};
use self::tracked::{Tracked, searches};
use crate::annotations::{self as keys, Place};
use crate::dialect::Dialect;
use crate::dialects::{Dialects, Finding, Subject, stakater};
use crate::extent::Extent;
use crate::kind::WorkloadKind;
use crate::list::quoted;
use crate::name::Name;
use crate::object::Reviewed;
use crate::reference::{ConfigKind, Reference};
use crate::texts::Texts;
use crate::workload::{Reading, Workload};

/// A change of a workload's metadata, after which it has our annotations in place of those of other controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The annotations to set. Those with `None` are to be removed.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The labels to remove.
    pub removed_labels: BTreeSet<String>,
    /// Remarks for the person who applies the change.
    pub notes: Vec<Note>,
}

/// Translates the annotations and labels of other controllers on a workload, given as it is in a manifest or in the
/// cluster, with its namespace. Returns `None` if it has none.
///
/// # Caveats
///
/// Objects that a mark keeps from being tracked, such as [`STAKATER_IGNORE`](crate::mark::STAKATER_IGNORE), are not
/// looked at. [`reads_marks`] tells whether a workload depends on them.
///
/// # Errors
///
/// Says what cannot be translated. Then nothing of the workload should be changed.
pub fn migrate(kind: WorkloadKind, object: &Value) -> Result<Option<Migration>, Untranslatable> {
    let source = Source::of(kind, object).ok_or(Untranslatable::Unreadable)?;
    let old = source.keys_of_others();
    if old.is_empty() {
        return Ok(None);
    }
    let before = source
        .read(of_all(), &Ours::new())
        .ok_or(Untranslatable::Unreadable)?;
    if let Some(pattern) = before.references.patterns.first() {
        return Err(Untranslatable::Pattern {
            kind: pattern.kind,
            item: quoted(&pattern.text),
        });
    }
    let theirs = Tracked::of(&before);
    if theirs.asked.keys().any(|(_, needs)| searches(*needs)) {
        return Err(Untranslatable::Search);
    }
    let finding = of_all().finding(&source.subject());
    let mut notes: Vec<_> = old.in_template.into_iter().map(Note::InTemplate).collect();
    let mut base = source.settings(&theirs);
    if finding.kinds.is_empty() {
        // They count where every workload is managed.
        exclude(&mut base, &finding, &theirs);
    }
    if finding.kinds.is_empty() && source.annotations.get(keys::AUTO).is_none() {
        match &*finding.opting_out {
            [] => {}
            [one] if *one != stakater::AUTO => return Err(Untranslatable::OptOutOfOneKind(one)),
            // Of both kinds, together or each.
            _ => drop(base.insert(keys::AUTO, "false".to_owned())),
        }
    }
    let by_auto = source.starts(&base, &finding, &theirs).into_iter();
    let by_auto = by_auto.filter_map(|start| source.fitted(start, &theirs));
    let ours = match by_auto.min_by_key(|fitted| fitted.added) {
        Some(fitted) => fitted.ours,
        None => {
            let listed = source.fitted(base, &theirs);
            let listed = listed.ok_or(Untranslatable::Different)?;
            notes.extend((!finding.kinds.is_empty()).then_some(Note::Listed));
            listed.ours
        }
    };
    let removed = old.annotations.into_iter().map(|key| (key, None));
    let is_new = |key: &str, value: &str| source.annotations.get(key) != Some(value);
    let set = ours
        .into_iter()
        .filter(|(key, value)| is_new(key, value))
        .map(|(key, value)| (key.to_owned(), Some(value)));
    Ok(Some(Migration {
        annotations: removed.chain(set).collect(),
        removed_labels: old.labels,
        notes,
    }))
}

/// Leaves out the names that others leave out, unless they are tracked all the same.
fn exclude(ours: &mut Ours, finding: &Finding, theirs: &Tracked) {
    for (kind, names) in ConfigKind::ALL.into_iter().zip(&finding.excluded) {
        let is_tracked = |name: &&String| {
            let mut tracked = theirs.asked.keys();
            tracked.any(|(own, _)| own.kind == kind && own.name.as_str() == **name)
        };
        let names = names.iter().filter(|name| !is_tracked(name));
        let names: Vec<_> = names.map(String::as_str).collect();
        if !names.is_empty() {
            ours.insert(exclude_key(kind), names.join(","));
        }
    }
}

/// Returns true if a key is one of a dialect in which a mark keeps an object from being tracked.
pub fn reads_marks(key: &str) -> bool {
    key.contains("reloader.stakater.com/") || key.starts_with("restarter.stackable.tech/")
}

/// Returns true if an object has a pod template, and annotations or labels that another controller reads from workloads of
/// some kind. For objects of kinds that are not known.
pub fn has_keys_of_others(object: &Value) -> bool {
    let templates = [
        "/spec/template/spec",
        "/spec/jobTemplate/spec/template/spec",
    ];
    let mut templates = templates.iter().filter_map(|path| object.pointer(path));
    if !templates.any(Value::is_object) {
        return false;
    }
    let metadata = &object["metadata"];
    let (annotations, labels) = (texts(&metadata["annotations"]), texts(&metadata["labels"]));
    let dialects = of_all();
    let mut read = WorkloadKind::BUILT_IN
        .into_iter()
        .flat_map(|kind| dialects.keys_of_others(kind));
    read.any(|read| {
        let has = |texts: &Texts| texts.iter().any(|(key, _)| read.is(key));
        (read.places.contains(&Place::Annotation) && has(&annotations))
            || (read.places.contains(&Place::Label) && has(&labels))
    })
}

/// Our annotations, with their values.
type Ours = BTreeMap<&'static str, String>;

/// All dialects, and SecretProviderClasses.
fn of_all() -> Dialects {
    Dialects {
        spoken: Dialect::ALL.into_iter().collect(),
        ..of_ours()
    }
}

/// Our dialect alone, and SecretProviderClasses.
fn of_ours() -> Dialects {
    Dialects {
        classes: true,
        ..Dialects::default()
    }
}

/// The keys of other controllers on a workload.
#[derive(Default)]
struct Old {
    annotations: BTreeSet<String>,
    labels: BTreeSet<String>,
    in_template: BTreeSet<String>,
}

impl Old {
    fn is_empty(&self) -> bool {
        self.annotations.is_empty() && self.labels.is_empty() && self.in_template.is_empty()
    }
}

/// A translation that tracks the same.
struct Fitted {
    ours: Ours,
    /// Number of names that had to be added.
    added: usize,
}

/// A workload that is translated.
struct Source<'a> {
    kind: WorkloadKind,
    object: &'a Value,
    namespace: Name,
    annotations: Texts,
    labels: Texts,
    template_annotations: Texts,
    template_labels: Texts,
}

impl<'a> Source<'a> {
    fn of(kind: WorkloadKind, object: &'a Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let templates = kind.shape().templates.iter();
        let templates = templates.map(|template| {
            let path = template.path.iter();
            &path.fold(object, |value, field| &value[*field])["metadata"]
        });
        let first = |field: &str| {
            let mut all = templates.clone().map(|metadata| &metadata[field]);
            texts(all.find(|it| it.is_object()).unwrap_or(&Value::Null))
        };
        Some(Self {
            kind,
            object,
            namespace: Name::parse(metadata["namespace"].as_str()?).ok()?,
            annotations: texts(&metadata["annotations"]),
            labels: texts(&metadata["labels"]),
            template_annotations: first("annotations"),
            template_labels: first("labels"),
        })
    }

    /// Returns the workload without its pods.
    fn subject(&self) -> Subject<'_> {
        Subject {
            kind: self.kind,
            namespace: &self.namespace,
            annotations: &self.annotations,
            labels: &self.labels,
            template_annotations: &self.template_annotations,
            template_labels: &self.template_labels,
            pod_specs: &[],
        }
    }

    fn keys_of_others(&self) -> Old {
        let mut old = Old::default();
        let dialects = of_all();
        for read in dialects.keys_of_others(self.kind) {
            for (place, texts, found) in [
                (Place::Annotation, &self.annotations, &mut old.annotations),
                (Place::Label, &self.labels, &mut old.labels),
                (
                    Place::TemplateAnnotation,
                    &self.template_annotations,
                    &mut old.in_template,
                ),
            ] {
                if read.places.contains(&place) {
                    let all = texts.iter().map(|(key, _)| key);
                    found.extend(all.filter(|key| read.is(key)).map(str::to_owned));
                }
            }
        }
        old
    }

    /// Reads the workload as it would be with our annotations.
    fn read(&self, dialects: Dialects, ours: &Ours) -> Option<Workload> {
        let object = to_raw_value(self.object).ok()?;
        let mut object = Reviewed::of(&object, self.kind).ok()?;
        let given = ours.iter().map(|(key, value)| (*key, value.as_str()));
        object.give(&Vec::from_iter(given), &[]);
        object.read(self.kind, &Reading::new(dialects, [])).ok()
    }

    /// Returns our annotations for the settings that apply to all that is tracked.
    fn settings(&self, theirs: &Tracked) -> Ours {
        let mut ours = Ours::new();
        let own = |key: &str| self.annotations.get(key);
        let period = of_all().settle_period(self.kind, own);
        if let Some(period) = period
            && own(keys::SETTLE_PERIOD).is_none()
            && theirs.settle_period.is_some()
        {
            ours.insert(keys::SETTLE_PERIOD, period.to_owned());
        }
        let is_asked_for = own(stakater::ROLLOUT_STRATEGY).is_some() && theirs.restarts_by_time;
        if is_asked_for && own(keys::RESTART).is_none() && !self.kind.shape().templates.is_empty() {
            ours.insert(keys::RESTART, keys::AT.to_owned());
        }
        ours
    }

    /// Returns the translations by `auto`, the most faithful one first. There are none if the workload lists all
    /// that it tracks.
    fn starts(&self, base: &Ours, finding: &Finding, theirs: &Tracked) -> Vec<Ours> {
        let auto = match &*finding.kinds {
            [] => return Vec::new(),
            [one] => one.plural(),
            _ => "true",
        };
        let mut by_key = base.clone();
        by_key.insert(keys::AUTO, auto.to_owned());
        exclude(&mut by_key, finding, theirs);
        let mut whole = by_key.clone();
        whole.insert(keys::PER_KEY, "false".to_owned());
        match finding.takes_keys {
            true => vec![by_key, whole],
            false => vec![whole, by_key],
        }
    }

    /// Adds names to annotations until they track the same. Returns `None` if that cannot be done.
    fn fitted(&self, start: Ours, theirs: &Tracked) -> Option<Fitted> {
        let mut fitted = Fitted {
            ours: start,
            added: 0,
        };
        let mut tracked = Tracked::of(&self.read(of_ours(), &fitted.ours)?);
        if tracked != *theirs {
            self.adjust(&mut fitted, &tracked, theirs);
            tracked = Tracked::of(&self.read(of_ours(), &fitted.ours)?);
        }
        (tracked == *theirs).then_some(fitted)
    }

    fn adjust(&self, fitted: &mut Fitted, ours: &Tracked, theirs: &Tracked) {
        let mut lacking: BTreeMap<&Reference, Extent> = BTreeMap::new();
        for (place, extent) in &theirs.asked {
            if ours.asked.get(place) != Some(extent) {
                let extent = match lacking.remove(&place.0) {
                    Some(known) => known.or(extent),
                    None => extent.clone(),
                };
                lacking.insert(&place.0, extent);
            }
        }
        for (reference, extent) in lacking {
            self.add(fitted, list_key(reference.kind), &item(reference, &extent));
        }
        let extra: BTreeSet<_> = ours.asked.keys().map(|(reference, _)| reference).collect();
        for reference in extra.into_iter().filter(|it| !theirs.has(it)) {
            self.add(fitted, exclude_key(reference.kind), reference.name.as_str());
        }
        for class in theirs.classes.difference(&ours.classes) {
            self.add(fitted, keys::SECRET_PROVIDER_CLASSES, class.as_str());
        }
        for class in ours.classes.difference(&theirs.classes) {
            self.add(
                fitted,
                keys::EXCLUDE_SECRET_PROVIDER_CLASSES,
                class.as_str(),
            );
        }
    }

    /// Adds an item to a list.
    fn add(&self, fitted: &mut Fitted, key: &'static str, item: &str) {
        let own = self.annotations.get(key);
        let list = fitted
            .ours
            .entry(key)
            .or_insert_with(|| own.unwrap_or_default().to_owned());
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(item);
        fitted.added += 1;
    }
}

fn texts(map: &Value) -> Texts {
    let entries = map.as_object().into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
        .collect()
}

#[cfg(test)]
mod tests;
