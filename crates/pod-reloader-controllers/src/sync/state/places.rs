//! The copies that a change concerns.

use std::collections::BTreeSet;
use std::sync::Arc;

use pod_reloader_core::config_sync::ConfigSync;
use pod_reloader_core::config_sync::outcome::Outcome;
use pod_reloader_core::name::Name;

use super::{Key, Place, State, key};
use crate::sync::by_namespace::ByNamespace;

impl State {
    pub(super) fn sync(&self, name: &Name) -> Option<&Arc<ConfigSync>> {
        self.syncs.get(name)?.sync.as_ref().ok()
    }

    /// Returns the ClusterConfigSyncs that can be worked with.
    pub(super) fn valid(&self) -> impl Iterator<Item = &Arc<ConfigSync>> {
        self.syncs.values().filter_map(|it| it.sync.as_ref().ok())
    }

    /// Returns the oldest of the other ClusterConfigSyncs that want to have a copy of that name in a namespace.
    pub(super) fn holder(&self, name: &Name, namespace: &Name) -> Option<Arc<ConfigSync>> {
        let sync = self.sync(name)?;
        let labels = self.namespaces.as_ref()?.get(namespace)?;
        let others = self.valid().filter(|it| it.competes_with(sync));
        let wanting = others.filter(|other| other.selects(namespace, labels, &self.own));
        wanting
            .reduce(|a, b| if a.precedes(b) { a } else { b })
            .cloned()
    }

    /// Returns all copies, wanted or not.
    pub(in crate::sync) fn all(&mut self) -> Vec<Place> {
        self.copies_of(|_| true)
    }

    /// Returns the copies of those ClusterConfigSyncs that `is_meant` picks.
    pub(super) fn copies_of(&mut self, is_meant: impl Fn(&ConfigSync) -> bool) -> Vec<Place> {
        let syncs: Vec<_> = self.valid().filter(|it| is_meant(it)).cloned().collect();
        syncs.iter().flat_map(|sync| self.all_of(sync)).collect()
    }

    /// Returns the copies of a ClusterConfigSync, wanted or not. None of them counts as exact until it has been
    /// looked at.
    pub(super) fn all_of(&mut self, sync: &ConfigSync) -> Vec<Place> {
        let targets = self.targets.get(&key(sync));
        let of_targets = targets.into_iter().flat_map(ByNamespace::namespaces);
        let namespaces = self.namespaces.iter().flat_map(ByNamespace::namespaces);
        let all: BTreeSet<_> = namespaces.chain(of_targets).cloned().collect();
        all.into_iter()
            .filter_map(|namespace| self.await_look(sync, namespace))
            .collect()
    }

    /// Returns the copies of all ClusterConfigSyncs in a namespace.
    pub(super) fn all_in(&mut self, namespace: &Name) -> Vec<Place> {
        let all: Vec<_> = self.valid().cloned().collect();
        all.iter()
            .filter_map(|sync| self.await_look(sync, namespace.clone()))
            .collect()
    }

    /// Returns the copies that are concerned by a change of an object: itself, and if it is a source, all others.
    pub(super) fn changed_in(&mut self, changed: &Key, namespace: &Name) -> Vec<Place> {
        let concerned = self.valid().filter(|it| key(it) == *changed);
        let concerned: Vec<_> = concerned.cloned().collect();
        let mut places = Vec::new();
        for sync in concerned {
            if sync.source.namespace == *namespace {
                places.extend(self.all_of(&sync));
            } else {
                places.extend(self.await_look(&sync, namespace.clone()));
            }
        }
        places
    }

    /// Counts a copy as one that is still to be looked at. `None` if there is none, and none is wanted.
    pub(super) fn await_look(&mut self, sync: &ConfigSync, namespace: Name) -> Option<Place> {
        let labels = self.namespaces.as_ref().and_then(|all| all.get(&namespace));
        let is_wanted = labels.is_some_and(|labels| sync.selects(&namespace, labels, &self.own));
        let targets = self.targets.get(&key(sync));
        let is_there = targets.is_some_and(|targets| targets.contains(&namespace));
        let copies = &mut self.syncs.get_mut(&sync.name)?.copies;
        let is_known = copies.contains(&namespace);
        if is_wanted {
            let copy = copies.or_default(&namespace);
            if copy.outcome == Outcome::Synced {
                copy.outcome = Outcome::Pending;
            }
        }
        (is_wanted || is_there || is_known).then(|| (sync.name.clone(), namespace))
    }
}
