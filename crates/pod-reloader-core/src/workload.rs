//! What the rules know of one workload.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Unit};

use crate::advice::Advice;
use crate::annotations;
use crate::dialects::{Dialects, Subscription};
use crate::digest::{Objects, Presence};
use crate::discovery::Requirement;
use crate::kind::{Template, WorkloadKind};
use crate::name::Name;
use crate::reference::Reference;
use crate::references::{MAX_REFERENCES, References};

/// The largest map of annotations that Kubernetes takes, on an object or on a pod template, in bytes.
pub const MAX_ANNOTATIONS_SIZE: usize = 256 << 10;
/// ReplicaSets copy the annotations of their Deployment, which adds a few of its own.
const KEPT_FOR_REPLICA_SETS: usize = 1 << 10;
/// How far ahead of the clock the times of restarts may run that follow each other at once. What is later
/// is a time that somebody has set for later.
const MAX_LEAD: SignedDuration = SignedDuration::from_mins(1);

/// Which workload: its kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadId {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its namespace.
    pub namespace: Name,
    /// Its name. Empty while it is created by `generateName`.
    pub name: Box<str>,
}

impl fmt::Display for WorkloadId {
    /// `Deployment namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// A workload, read once into what the rules ask of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Which one.
    pub id: WorkloadId,
    /// The group and version in which it was read, of a kind that is not built in.
    pub api_version: Option<Box<str>>,
    /// Its UID; empty while it is created.
    pub uid: Box<str>,
    /// Its generation: grows with every change of its spec.
    pub generation: i64,
    /// Who has asked for it to be kept.
    pub subscription: Subscription,
    /// What counts for it.
    pub references: References,
    /// What its pods need to start, sorted.
    pub requirements: Box<[Requirement]>,
    /// Its pod templates, in the order of its kind.
    pub templates: Box<[TemplateState]>,
    /// How it is restarted.
    pub restart: Restart,
    /// What keeps its pods from being restarted by that.
    pub stall: Option<Stall>,
    /// What of its metadata the decision rests on, as it stands there.
    pub markers: Markers,
    /// Its own settle period, at most [`duration::MAX_SETTLE_PERIOD`](crate::duration::MAX_SETTLE_PERIOD). `None` where it has none, or one that cannot
    /// be read.
    pub settle_period: Option<Duration>,
    /// What of its keys and values of ours cannot mean what its author hopes.
    pub advice: Vec<Advice>,
}

/// Labels and annotations of a workload, as they stand there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Markers {
    /// The annotations that are read.
    pub annotations: Values,
    /// The labels that are read.
    pub labels: Values,
    /// Whether there are annotations at all.
    pub has_annotations: bool,
    /// Whether there are labels at all.
    pub has_labels: bool,
    /// The annotation [`annotations::BASELINE`].
    pub baseline: Option<Box<str>>,
    /// The size of all its annotations, as Kubernetes limits it.
    pub annotations_size: usize,
}

impl Markers {
    /// Whether Kubernetes takes this baseline beside the other annotations.
    pub(crate) fn has_room_for(&self, baseline: &str) -> bool {
        let own = self.baseline.as_deref();
        let size = size_with(self.annotations_size, annotations::BASELINE, own, baseline);
        size + KEPT_FOR_REPLICA_SETS <= MAX_ANNOTATIONS_SIZE
    }
}

/// The values of those keys that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    asked: Arc<[Box<str>]>,
    /// Those that are there, sorted; besides, those that begin with a prefix that was asked for.
    present: Box<[(Box<str>, Box<str>)]>,
}

impl Values {
    fn of(
        map: &BTreeMap<String, String>,
        asked: &Arc<[Box<str>]>,
        prefixes: &[&'static str],
    ) -> Self {
        let is_asked = |key: &str| {
            asked.iter().any(|it| **it == *key)
                || prefixes.iter().any(|prefix| key.starts_with(prefix))
        };
        let present = map.iter().filter(|(key, _)| is_asked(key));
        Self {
            asked: asked.clone(),
            present: present
                .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                .collect(),
        }
    }

    /// The value of a key, if it is there.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.present.binary_search_by(|(own, _)| (**own).cmp(key));
        Some(&*self.present[at.ok()?].1)
    }

    /// Every key that was asked for with its value, and every other that is there.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let absent = self.asked.iter().filter(|key| self.get(key).is_none());
        let present = self
            .present
            .iter()
            .map(|(key, value)| (&**key, Some(&**value)));
        present.chain(absent.map(|key| (&**key, None)))
    }

    /// Those that are there.
    pub(crate) fn present(&self) -> impl Iterator<Item = (&str, &str)> {
        self.present.iter().map(|(key, value)| (&**key, &**value))
    }
}

/// What is read of a workload, beside what is read of every one.
#[derive(Clone, Debug)]
pub struct Reading {
    pub(crate) dialects: Dialects,
    annotations: Arc<[Box<str>]>,
    prefixes: Vec<&'static str>,
    labels: Arc<[Box<str>]>,
}

impl Reading {
    /// What these dialects read, and the labels with `selecting` keys.
    pub fn new<'a>(dialects: Dialects, selecting: impl IntoIterator<Item = &'a str>) -> Self {
        let annotations: BTreeSet<_> = dialects.annotation_keys().collect();
        let own = [annotations::IGNORED, annotations::DISABLED];
        let mut labels: BTreeSet<Box<str>> = selecting.into_iter().map(Into::into).collect();
        labels.extend(dialects.label_keys().chain(own).map(Into::into));
        Self {
            annotations: annotations.into_iter().map(Into::into).collect(),
            prefixes: dialects.annotation_prefixes().collect(),
            labels: labels.into_iter().collect(),
            dialects,
        }
    }

    pub(crate) fn annotations_of(&self, annotations: &BTreeMap<String, String>) -> Values {
        Values::of(annotations, &self.annotations, &self.prefixes)
    }

    pub(crate) fn labels_of(&self, labels: &BTreeMap<String, String>) -> Values {
        Values::of(labels, &self.labels, &[])
    }
}

impl Default for Reading {
    fn default() -> Self {
        Self::new(Dialects::default(), [])
    }
}

/// A pod template, as far as KEY goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateState {
    /// How many of the fields on the way to KEY are there, from the outermost on. `None` where one of them
    /// is no object: then it is left alone.
    pub depth: Option<usize>,
    /// KEY: the config hash on it.
    pub config_hash: Option<Box<str>>,
    /// The size of all its annotations, as Kubernetes limits it.
    pub annotations_size: usize,
}

impl TemplateState {
    /// The size of its annotations with this config hash.
    pub(crate) fn size_with(&self, config_hash: &str) -> usize {
        let own = self.config_hash.as_deref();
        size_with(
            self.annotations_size,
            annotations::CONFIG_HASH,
            own,
            config_hash,
        )
    }
}

/// The size of a map of annotations: of its keys and values, in bytes.
pub(crate) fn annotations_size(annotations: &BTreeMap<String, String>) -> usize {
    let sizes = annotations
        .iter()
        .map(|(key, value)| key.len() + value.len());
    sizes.sum()
}

/// The size of a map of annotations of this `size` once the value of `key` is `new` in the place of `old`.
fn size_with(size: usize, key: &str, old: Option<&str>, new: &str) -> usize {
    let old = old.map_or(0, |old| key.len() + old.len());
    size - old + key.len() + new.len()
}

/// What keeps pods from being restarted though their workload has a new config hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stall {
    /// The workload is paused: they are restarted when it is resumed.
    Paused,
    /// Its update strategy is OnDelete: each is restarted when somebody deletes it.
    OnDelete,
}

/// A pod template that is to carry KEY.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    /// Where it stands.
    pub(crate) template: Template,
    /// How many of the fields on the way to KEY are there, from the outermost on.
    pub(crate) depth: usize,
    /// What it is like.
    pub(crate) state: &'a TemplateState,
}

/// How a workload is restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restart {
    /// By KEY on its pod templates.
    Template,
    /// By a time in a field that others write, too.
    At {
        /// How many of the fields on the way to it are there, from the outermost on.
        depth: usize,
        /// What it says.
        value: Option<Box<str>>,
    },
}

impl Restart {
    /// The time to write for a restart at `now`, in whole seconds. It is later than what was written a
    /// moment ago: a time that is there already restarts nothing.
    pub fn time(&self, now: Timestamp) -> Timestamp {
        let now = now.round(Unit::Second).unwrap_or(now);
        let Self::At {
            value: Some(value), ..
        } = self
        else {
            return now;
        };
        match value.parse::<Timestamp>() {
            Ok(last) if (now..now + MAX_LEAD).contains(&last) => {
                last + SignedDuration::from_secs(1)
            }
            _ => now,
        }
    }
}

impl Workload {
    /// Whether it asks to be kept: somebody has asked for that, and no label says otherwise.
    pub fn is_subscribed(&self) -> bool {
        let says_true = |label: &str| self.markers.labels.get(label) == Some("true");
        self.subscription != Subscription::None
            && !says_true(annotations::IGNORED)
            && !says_true(annotations::DISABLED)
    }

    /// The group and version in which it was read.
    pub fn api_version(&self) -> &str {
        self.api_version.as_deref().unwrap_or("apps/v1")
    }

    /// KEY: the config hash on the first of its pod templates. A workload that is restarted in another way
    /// has none.
    pub fn config_hash(&self) -> Option<&str> {
        self.slots().next()?.1.state.config_hash.as_deref()
    }

    /// KEY on its pod templates, even where it is restarted in another way by now.
    pub(crate) fn left_config_hash(&self) -> Option<&str> {
        let mut templates = self.templates.iter();
        templates.find_map(|template| template.config_hash.as_deref())
    }

    /// The size of the annotations of a pod template with this config hash, where Kubernetes does not take it.
    pub fn too_long_with(&self, config_hash: &str) -> Option<usize> {
        let sizes = self.slots();
        let sizes = sizes.map(|(_, slot)| slot.state.size_with(config_hash));
        sizes.max().filter(|size| *size > MAX_ANNOTATIONS_SIZE)
    }

    /// Whether all its pod templates carry the same.
    pub fn templates_agree(&self) -> bool {
        let mut slots = self.slots();
        let first = slots.next().map(|(_, slot)| &slot.state.config_hash);
        slots.all(|(_, slot)| Some(&slot.state.config_hash) == first)
    }

    /// Those of its pod templates that are to carry KEY, each with its number and place.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (usize, Slot<'_>)> {
        let templates = match self.restart {
            Restart::Template => self.id.kind.shape().templates,
            Restart::At { .. } => &[],
        };
        templates
            .iter()
            .zip(&self.templates)
            .enumerate()
            .filter_map(|(at, (template, state))| {
                let depth = state.depth.filter(|depth| template.can_carry(*depth))?;
                Some((
                    at,
                    Slot {
                        template: *template,
                        depth,
                        state,
                    },
                ))
            })
    }

    /// Whether there is anything to restart it by: a kind may leave its pod template to another object.
    pub fn can_be_restarted(&self) -> bool {
        self.restart != Restart::Template || self.slots().next().is_some()
    }

    /// The keys of an object that decide about this workload by themselves: that they are tracked, or
    /// that its pods cannot start without them.
    pub fn data_keys<'a>(&'a self, reference: &'a Reference) -> impl Iterator<Item = &'a str> {
        let requirements = self.requirements.iter();
        let required = requirements.filter(move |it| it.reference == *reference);
        let required = required.filter_map(|it| it.key.as_deref());
        self.references.data_keys(reference).chain(required)
    }

    /// The objects and keys that its pods need to start and that are not there, of those that count.
    pub fn missing<'a>(&'a self, objects: &'a Objects) -> impl Iterator<Item = &'a Requirement> {
        self.requirements.iter().filter(|requirement| {
            match (objects.get(&requirement.reference), &requirement.key) {
                // Of what is matched, only what is there is read.
                (None, _) => {
                    objects.len() < MAX_REFERENCES
                        && self.references.matches(&requirement.reference)
                }
                (Some(Presence::Absent), _) => true,
                (Some(Presence::Present(_)), None) => false,
                (Some(Presence::Present(object)), Some(key)) => !object.has(key),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Restart;
    use crate::duration::MAX_SETTLE_PERIOD;
    use crate::fixtures::{config_map, deployment, objects};
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_workload_without_lists_or_with_a_label_is_left_alone() {
        assert!(!deployment("web").build().is_subscribed());
        assert!(
            deployment("web")
                .lists("app-config")
                .build()
                .is_subscribed()
        );
        assert!(deployment("web").lists("").build().is_subscribed());
        for label in ["ignored", "disabled"] {
            let labelled = |value| {
                deployment("web")
                    .lists("app-config")
                    .label(label, value)
                    .build()
            };
            assert!(!labelled("true").is_subscribed());
            assert!(labelled("True").is_subscribed());
        }
    }

    #[test]
    fn the_key_on_the_metadata_of_the_object_is_no_config_hash() {
        let workload = deployment("web").annotation("config-hash", "x").build();
        assert_eq!(workload.config_hash(), None);
    }

    #[test]
    fn only_listed_objects_and_their_keys_can_be_missing() {
        let workload = deployment("web")
            .lists("a")
            .requires("a", Some("k"))
            .requires("b", None)
            .build();
        let with = |object| workload.missing(&objects(&[("a", object)])).count();
        assert_eq!(with(None), 1);
        assert_eq!(with(Some(config_map(&json!({"data": {"other": ""}})))), 1);
        assert_eq!(with(Some(config_map(&json!({"data": {"k": ""}})))), 0);
    }

    #[test]
    fn a_settle_period_is_a_duration_or_nothing() {
        let period = |text| {
            deployment("web")
                .annotation("settle-period", text)
                .build()
                .settle_period
        };
        assert_eq!(period("10s"), Some(Duration::from_secs(10)));
        assert_eq!(period("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(period("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(period("0s"), Some(Duration::ZERO));
        assert_eq!(period("9000000000000000000s"), Some(MAX_SETTLE_PERIOD));
        assert_eq!(period("-1s"), None);
        assert_eq!(period("soon"), None);
    }

    #[test]
    fn restarts_within_a_second_have_different_times() {
        let time = |last: Option<&str>, now: &str| {
            let value = last.map(Into::into);
            let restart = Restart::At { depth: 2, value };
            restart.time(now.parse().unwrap()).to_string()
        };
        let day = |time: &str| format!("2026-01-01T{time}Z");
        let after = |last: &str, now: &str| time(Some(&day(last)), &day(now));
        assert_eq!(time(None, &day("10:00:00.3")), day("10:00:00"));
        assert_eq!(time(Some("never"), &day("10:00:00.3")), day("10:00:00"));
        assert_eq!(after("09:59:59", "10:00:00.3"), day("10:00:00"));
        assert_eq!(after("10:00:00", "10:00:00.3"), day("10:00:01"));
        assert_eq!(after("10:00:01", "10:00:00.3"), day("10:00:02"));
        // Somebody has planned a restart, which is not put off.
        assert_eq!(after("12:00:00", "10:00:00.3"), day("10:00:00"));
    }
}
