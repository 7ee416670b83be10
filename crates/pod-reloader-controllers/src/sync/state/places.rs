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

    pub(super) fn others(&self, sync: &ConfigSync) -> impl Iterator<Item = &Arc<ConfigSync>> {
        let all = self.syncs.values().filter_map(|it| it.sync.as_ref().ok());
        all.filter(|other| other.competes_with(sync))
    }

    pub(super) fn rivals(&self, name: &Name) -> Vec<Name> {
        let others = self.sync(name).map(|sync| self.others(sync));
        others
            .into_iter()
            .flatten()
            .map(|it| it.name.clone())
            .collect()
    }

    /// Returns the oldest of the other ClusterConfigSyncs that want to have a copy of that name in a namespace.
    pub(super) fn holder(&self, name: &Name, namespace: &Name) -> Option<Arc<ConfigSync>> {
        let sync = self.sync(name)?;
        let labels = self.namespaces.as_ref()?.get(namespace)?;
        let others = self.others(sync);
        let wanting = others.filter(|other| other.selects(namespace, labels, &self.own));
        wanting
            .reduce(|a, b| if a.precedes(b) { a } else { b })
            .cloned()
    }

    pub(super) fn of_key(&self, wanted: &Key) -> Vec<Name> {
        let all = self.syncs.values().filter_map(|it| it.sync.as_ref().ok());
        let matching = all.filter(|sync| key(sync) == *wanted);
        matching.map(|sync| sync.name.clone()).collect()
    }

    /// Returns the ClusterConfigSyncs whose sources are in a namespace.
    pub(super) fn copied_from(&self, namespace: &Name) -> Vec<Name> {
        let all = self.syncs.values().filter_map(|it| it.sync.as_ref().ok());
        let from_there = all.filter(|sync| sync.source.namespace == *namespace);
        from_there.map(|sync| sync.name.clone()).collect()
    }

    /// Returns all copies, wanted or not.
    pub(in crate::sync) fn all(&mut self) -> Vec<Place> {
        let names: Vec<_> = self.syncs.keys().cloned().collect();
        names.iter().flat_map(|name| self.all_of(name)).collect()
    }

    /// Returns the copies of a ClusterConfigSync, wanted or not. None of them counts as exact until it has been
    /// looked at.
    pub(super) fn all_of(&mut self, name: &Name) -> Vec<Place> {
        let Some(sync) = self.sync(name).cloned() else {
            return Vec::new();
        };
        let targets = self.targets.get(&key(&sync));
        let of_targets = targets.into_iter().flat_map(ByNamespace::namespaces);
        let namespaces = self.namespaces.iter().flat_map(ByNamespace::namespaces);
        let all: BTreeSet<_> = namespaces.chain(of_targets).cloned().collect();
        all.into_iter()
            .filter_map(|namespace| self.await_look(&sync, namespace))
            .collect()
    }

    /// Returns the copies of all ClusterConfigSyncs in a namespace.
    pub(super) fn all_in(&mut self, namespace: &Name) -> Vec<Place> {
        let all = self.syncs.values().filter_map(|it| it.sync.as_ref().ok());
        let all: Vec<_> = all.cloned().collect();
        all.iter()
            .filter_map(|sync| self.await_look(sync, namespace.clone()))
            .collect()
    }

    /// Returns the copies that are concerned by a change of an object: itself, and if it is a source, all others.
    pub(super) fn changed_in(&mut self, key: &Key, namespace: &Name) -> Vec<Place> {
        let mut places = Vec::new();
        for name in self.of_key(key) {
            let Some(sync) = self.sync(&name).cloned() else {
                continue;
            };
            if sync.source.namespace == *namespace {
                places.extend(self.all_of(&name));
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
