//! The owners of pods, and whether the garbage collector deletes what they own.

use std::collections::{BTreeMap, BTreeSet};

use super::TemplateKind;
use crate::metadata::{MAX_OWNERS, Metadata, Wanted};

/// The owners of an object. `None` stands for an owner of which nobody can tell whether it is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedBy(Vec<Option<(TemplateKind, Box<str>)>>);

impl OwnedBy {
    pub(super) fn of<K: Wanted>(metadata: &Metadata<K>) -> Self {
        let owners = metadata.owners().map(|owner| {
            let kind = TemplateKind::of_owner(&owner.api_version, &owner.kind)?;
            Some((kind, owner.uid.clone()))
        });
        let mut owners: Vec<_> = owners.collect();
        if owners.len() == MAX_OWNERS {
            owners.push(None);
        }
        Self(owners)
    }
}

/// An owner that is there, as far as it says whether its pods stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveOwner {
    pub(super) deletes_dependents: bool,
    pub(super) owners: OwnedBy,
}

/// The owners of some pods, and the owners of these.
///
/// Pods outlive their workload for a moment. The garbage collector deletes what has lost all its owners, and what belongs
/// to an owner that is deleted in the foreground. Until it comes to a pod, that pod looks like any other. What is orphaned
/// names no owner any more.
#[derive(Debug, Default)]
pub struct Owners {
    /// Those that were looked for, by their UIDs. `None` for one that is gone.
    known: BTreeMap<Box<str>, Option<LiveOwner>>,
}

/// The maximum number of owners above each other: a pod, its ReplicaSet, its Deployment.
const MAX_DEPTH: usize = 4;

impl Owners {
    /// Returns the owners of which nothing is known, by their kinds.
    pub fn to_look_for<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a OwnedBy>,
    ) -> BTreeMap<TemplateKind, BTreeSet<Box<str>>> {
        let owners = objects.into_iter().flat_map(|it| it.0.iter().flatten());
        let mut unknown = BTreeMap::<_, BTreeSet<_>>::new();
        for (kind, uid) in owners.filter(|(_, uid)| !self.known.contains_key(uid)) {
            unknown.entry(*kind).or_default().insert(uid.clone());
        }
        unknown
    }

    /// Notes which of the owners that were looked for are there. They must have been listed after the objects that name
    /// them. Returns the owners of these.
    pub fn found(
        &mut self,
        looked_for: BTreeSet<Box<str>>,
        there: Vec<(Box<str>, LiveOwner)>,
    ) -> BTreeMap<TemplateKind, BTreeSet<Box<str>>> {
        self.known
            .extend(looked_for.into_iter().map(|uid| (uid, None)));
        let above = self.to_look_for(there.iter().map(|(_, kept)| &kept.owners));
        let there = there.into_iter().map(|(uid, kept)| (uid, Some(kept)));
        self.known.extend(there);
        above
    }

    /// Returns true if the garbage collector deletes an object with these owners. An owner of which nothing is known keeps
    /// it.
    pub fn go(&self, owned: &OwnedBy) -> bool {
        self.go_within(MAX_DEPTH, owned)
    }

    fn go_within(&self, depth: usize, owned: &OwnedBy) -> bool {
        let goes = |owner: &Option<(TemplateKind, Box<str>)>| {
            let known = owner.as_ref().and_then(|(_, uid)| self.known.get(uid));
            match known {
                None => false,
                Some(None) => true,
                Some(Some(kept)) => {
                    kept.deletes_dependents
                        || (depth > 1 && self.go_within(depth - 1, &kept.owners))
                }
            }
        };
        !owned.0.is_empty() && owned.0.iter().all(goes)
    }
}
