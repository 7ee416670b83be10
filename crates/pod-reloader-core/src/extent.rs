//! Extents: how much of a config object is tracked.

use std::collections::BTreeSet;
use std::sync::Arc;

/// How much of a config object is tracked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// All of it.
    All,
    /// These keys alone.
    Named(Arc<BTreeSet<Box<str>>>),
}

impl Extent {
    /// The named keys; all without any.
    pub(crate) fn named<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        let keys: BTreeSet<Box<str>> = keys.into_iter().map(Into::into).collect();
        match keys.is_empty() {
            true => Self::All,
            false => Self::Named(Arc::new(keys)),
        }
    }

    /// What either tracks.
    #[must_use]
    pub(crate) fn or(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Named(one), Self::Named(other)) if one == *other => Self::Named(one),
            (Self::Named(mut one), Self::Named(other)) => {
                // Nobody else has it while a workload is read, so nothing is copied.
                Arc::make_mut(&mut one).extend(other.iter().cloned());
                Self::Named(one)
            }
            _ => Self::All,
        }
    }

    /// What both track. `None` if that is nothing.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::All, keys) | (keys, Self::All) => Some(keys.clone()),
            (Self::Named(one), Self::Named(other)) => {
                let both: BTreeSet<_> = one.intersection(other).cloned().collect();
                (!both.is_empty()).then(|| Self::Named(Arc::new(both)))
            }
        }
    }
}
