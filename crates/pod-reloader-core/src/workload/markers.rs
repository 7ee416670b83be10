//! Annotations and labels of a workload, and which of them are read.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::template::size_with;
use crate::annotations;
use crate::dialects::Dialects;
use crate::release::Tool;
use crate::staging::Defaults;
use crate::texts::{MAX_ANNOTATIONS_SIZE, Texts};

/// Space left free for the few annotations that the Deployment controller adds when it copies a
/// Deployment's annotations to its ReplicaSets.
const RESERVED_FOR_REPLICA_SETS: usize = 1 << 10;

/// Labels and annotations of a workload, exactly as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Markers {
    /// The annotations that the rules read.
    pub annotations: Values,
    /// The labels that the rules read.
    pub labels: Values,
    /// True if the object has an annotations map at all.
    pub has_annotations: bool,
    /// True if the object has a labels map at all.
    pub has_labels: bool,
    /// The value of the annotation [`annotations::BASELINE`].
    pub baseline: Option<Box<str>>,
    /// The total size of all annotations, measured the way Kubernetes limits it.
    pub annotations_size: u32,
}

impl Markers {
    /// Returns true if Kubernetes accepts this baseline beside the other annotations.
    pub fn has_room_for(&self, baseline: &str) -> bool {
        self.has_room(annotations::BASELINE, self.baseline.as_deref(), baseline)
    }

    /// Returns true if Kubernetes accepts further annotations of this size, in bytes.
    pub(crate) fn has_room_of(&self, size: usize) -> bool {
        self.annotations_size as usize + size + RESERVED_FOR_REPLICA_SETS <= MAX_ANNOTATIONS_SIZE
    }

    /// Returns true if Kubernetes accepts `value` in place of `own` beside the other annotations.
    pub(crate) fn has_room(&self, key: &str, own: Option<&str>, value: &str) -> bool {
        let size = size_with(self.annotations_size as usize, key, own, Some(value));
        size + RESERVED_FOR_REPLICA_SETS <= MAX_ANNOTATIONS_SIZE
    }
}

/// The values of the requested keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    asked: Arc<Keys>,
    /// The requested keys that are present, and all that begin with a requested prefix, sorted.
    present: Box<[(Arc<str>, Box<str>)]>,
}

/// The requested keys, sorted. All workloads share them, by a pointer that is half as large as that of a slice.
#[derive(Debug, Default, PartialEq, Eq)]
struct Keys(Box<[Arc<str>]>);

impl Keys {
    /// Returns the key in this list that equals `key`.
    fn get(&self, key: &str) -> Option<&Arc<str>> {
        let at = self.0.binary_search_by(|own| (**own).cmp(key)).ok()?;
        Some(&self.0[at])
    }
}

impl Values {
    fn of(map: &Texts, asked: &Arc<Keys>, prefixes: &[&'static str]) -> Self {
        let prefixed = |key: &str| {
            let is_prefixed = prefixes.iter().any(|prefix| key.starts_with(prefix));
            is_prefixed.then(|| key.into())
        };
        let requested = |key: &str| asked.get(key).cloned().or_else(|| prefixed(key));
        let present = map.iter();
        let present = present.filter_map(|(key, value)| Some((requested(key)?, value.into())));
        Self {
            asked: asked.clone(),
            present: present.collect(),
        }
    }

    /// Returns the value of a key, if it is present.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.present.binary_search_by(|(own, _)| (**own).cmp(key));
        Some(&*self.present[at.ok()?].1)
    }

    /// Returns every requested key with its value, if any, and every other key that is present.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let absent = self.asked.0.iter().filter(|key| self.get(key).is_none());
        let present = self
            .present
            .iter()
            .map(|(key, value)| (&**key, Some(&**value)));
        present.chain(absent.map(|key| (&**key, None)))
    }

    /// Returns the keys that are present, with their values.
    pub(crate) fn present(&self) -> impl Iterator<Item = (&str, &str)> {
        self.present.iter().map(|(key, value)| (&**key, &**value))
    }
}

/// The annotations and labels to read from a workload, beyond those that every workload has read.
#[derive(Clone, Debug)]
pub struct Reading {
    pub(crate) dialects: Dialects,
    annotations: Arc<Keys>,
    prefixes: Vec<&'static str>,
    labels: Arc<Keys>,
    /// The tools whose releases are of interest.
    pub(crate) tools: Arc<[Tool]>,
    /// The staging of workloads without annotations of their own.
    pub(crate) staging: Defaults,
    /// True if workloads may pin their configuration.
    pub(crate) pins: bool,
    /// True if pods may be asked to reload changed config.
    pub(crate) http_reloads: bool,
}

impl Reading {
    /// Selects what these dialects read, and the labels whose keys are in `selecting`.
    pub fn new<'a>(dialects: Dialects, selecting: impl IntoIterator<Item = &'a str>) -> Self {
        let annotations: BTreeSet<_> = dialects.annotation_keys().collect();
        let own = [annotations::IGNORED, annotations::DISABLED];
        let mut labels: BTreeSet<Arc<str>> = selecting.into_iter().map(Into::into).collect();
        labels.extend(dialects.label_keys().chain(own).map(Into::into));
        let annotations = annotations.into_iter().map(Into::into).collect();
        Self {
            annotations: Arc::new(Keys(annotations)),
            prefixes: dialects.annotation_prefixes().collect(),
            labels: Arc::new(Keys(labels.into_iter().collect())),
            tools: Arc::default(),
            staging: Defaults::default(),
            pins: false,
            http_reloads: false,
            dialects,
        }
    }

    /// Returns true if this annotation of a workload is read.
    pub(crate) fn reads_annotation(&self, key: &str) -> bool {
        self.annotations.get(key).is_some()
            || self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    pub(crate) fn annotations_of(&self, annotations: &Texts) -> Values {
        Values::of(annotations, &self.annotations, &self.prefixes)
    }

    pub(crate) fn labels_of(&self, labels: &Texts) -> Values {
        Values::of(labels, &self.labels, &[])
    }
}

impl Default for Reading {
    fn default() -> Self {
        Self::new(Dialects::default(), [])
    }
}
