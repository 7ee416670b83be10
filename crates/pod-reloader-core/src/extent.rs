//! Extents: the parts of config objects that are tracked.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The part of a config object that is tracked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// The whole object.
    All,
    /// Only these keys.
    Named(Arc<BTreeSet<Box<str>>>),
}

impl Extent {
    /// Tracks the named keys, or the whole object if there are none.
    pub(crate) fn named<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        let keys: BTreeSet<Box<str>> = keys.into_iter().map(Into::into).collect();
        match keys.is_empty() {
            true => Self::All,
            false => Self::Named(Arc::new(keys)),
        }
    }

    /// Returns true if this key is tracked.
    pub fn includes(&self, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(keys) => keys.contains(key),
        }
    }

    /// Returns the extent that tracks what either tracks.
    #[must_use]
    pub(crate) fn or(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Named(one), Self::Named(other)) if one == *other => Self::Named(one),
            (Self::Named(mut one), Self::Named(other)) => {
                // Nothing else holds a reference while a workload is read, so nothing is copied.
                Arc::make_mut(&mut one).extend(other.iter().cloned());
                Self::Named(one)
            }
            _ => Self::All,
        }
    }

    /// Returns the extent that tracks what both track. `None` if that is nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_and_both_are_the_same_in_any_order() {
        let (all, a, b) = (Extent::All, Extent::named(["a"]), Extent::named(["b"]));
        let a_and_b = Extent::named(["a", "b"]);
        for (one, other, either, both) in [
            (&all, &all, &all, Some(&all)),
            (&all, &a, &all, Some(&a)),
            (&a, &a, &a, Some(&a)),
            (&a, &b, &a_and_b, None),
            (&a, &a_and_b, &a_and_b, Some(&a)),
        ] {
            for (one, other) in [(one, other), (other, one)] {
                assert_eq!(one.clone().or(other), *either, "{one:?} or {other:?}");
                assert_eq!(one.and(other).as_ref(), both, "{one:?} and {other:?}");
            }
        }
    }
}
