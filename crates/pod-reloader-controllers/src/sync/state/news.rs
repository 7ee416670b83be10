//! Takes in what the watches bring, and says which copies are to be looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_reloader_api::ClusterConfigSync;
use pod_reloader_core::config_sync::{ConfigSync, NamespaceLabels, Target};
use pod_reloader_core::name::Name;

use super::noted::{is_sealed, source_namespace};
use super::{Key, Known, Place, State, key};
use crate::sync::by_namespace::ByNamespace;

impl State {
    /// Takes in a ClusterConfigSync. Returns the copies to look at.
    pub(in crate::sync) fn sync_seen(
        &mut self,
        name: Name,
        object: ClusterConfigSync,
    ) -> Vec<Place> {
        if object.metadata.deletion_timestamp.is_some() {
            return self.sync_gone(&name);
        }
        let uid = object.metadata.uid.as_deref().unwrap_or_default().into();
        let version = (uid, object.metadata.generation.unwrap_or_default());
        let sync = ConfigSync::try_from(&object).map(Arc::new);
        if let Some(known) = self.syncs.get_mut(&name)
            && known.version == version
        {
            known.is_sealed |= object.status.as_ref().is_some_and(|it| it.sealed);
            known.status = object.status;
            return Vec::new();
        }
        let before = self.syncs.remove(&name);
        let same_object = before.filter(|before| before.version.0 == version.0);
        let was_sealed = same_object.as_ref().is_some_and(|it| it.is_sealed);
        let copies = same_object.map(|before| before.copies).unwrap_or_default();
        let known = Known {
            is_sealed: was_sealed || is_sealed(object.status.as_ref()),
            source_namespace: source_namespace(object.status.as_ref(), version.1),
            version,
            sync,
            status: object.status,
            obstacle: None,
            current: None,
            source: Arc::default(),
            copies,
            undeleted: BTreeMap::new(),
            conflicts: 0,
            was_syncing: false,
        };
        self.syncs.insert(name.clone(), known);
        let Some(sync) = self.sync(&name).cloned() else {
            return Vec::new();
        };
        let mut places = self.all_of(&sync);
        places.extend(self.copies_of(|it| it.competes_with(&sync)));
        places
    }

    /// Forgets a ClusterConfigSync. Returns the copies to look at: others may have its place.
    pub(in crate::sync) fn sync_gone(&mut self, name: &Name) -> Vec<Place> {
        let Some(Ok(gone)) = self.syncs.remove(name).map(|known| known.sync) else {
            return Vec::new();
        };
        self.copies_of(|it| it.competes_with(&gone))
    }

    /// Returns the names of all ClusterConfigSyncs.
    pub(in crate::sync) fn names(&self) -> Vec<Name> {
        self.syncs.keys().cloned().collect()
    }

    /// Returns the kinds and names of all sources.
    pub(in crate::sync) fn keys(&self) -> BTreeSet<Key> {
        self.valid().map(|sync| key(sync)).collect()
    }

    /// Takes in all namespaces. Returns the copies to look at.
    pub(in crate::sync) fn namespaces_listed(
        &mut self,
        namespaces: ByNamespace<NamespaceLabels>,
    ) -> Vec<Place> {
        let Some(before) = self.namespaces.replace(namespaces) else {
            return self.all();
        };
        let after = self.namespaces.as_ref();
        let news = after.map_or_else(BTreeSet::new, |after| differing(&before, after));
        let places = news
            .iter()
            .flat_map(|name| self.namespace_changed(name, before.get(name)));
        places.collect()
    }

    /// Takes in a namespace, or that it is gone. Returns the copies to look at.
    pub(in crate::sync) fn namespace_seen(
        &mut self,
        name: &Name,
        labels: Option<NamespaceLabels>,
    ) -> Vec<Place> {
        let Some(namespaces) = &mut self.namespaces else {
            return Vec::new();
        };
        let before = match labels.clone() {
            Some(labels) => namespaces.insert(name.clone(), labels),
            None => namespaces.remove(name),
        };
        match before == labels {
            true => Vec::new(),
            false => self.namespace_changed(name, before.as_ref()),
        }
    }

    /// Returns the copies that are concerned by a change of a namespace: those in it, and if it came or went, those of
    /// the sources in it.
    fn namespace_changed(&mut self, name: &Name, before: Option<&NamespaceLabels>) -> Vec<Place> {
        let after = self.namespaces.as_ref().and_then(|all| all.get(name));
        let is_same = after.map(NamespaceLabels::uid) == before.map(NamespaceLabels::uid);
        let mut places = self.all_in(name);
        if !is_same {
            places.extend(self.copies_of(|it| it.source.namespace == *name));
        }
        places
    }

    /// Takes in all objects of this kind with this name, by namespace. Returns the copies to look at.
    pub(in crate::sync) fn targets_listed(
        &mut self,
        key: &Key,
        targets: ByNamespace<Target>,
    ) -> Vec<Place> {
        let Some(before) = self.targets.insert(key.clone(), targets) else {
            return self.copies_of(|it| super::key(it) == *key);
        };
        differing(&before, &self.targets[key])
            .iter()
            .flat_map(|it| self.changed_in(key, it))
            .collect()
    }

    /// Takes in an object of this kind with this name, or that it is gone. Returns the copies to look at.
    pub(in crate::sync) fn target_seen(
        &mut self,
        key: &Key,
        namespace: &Name,
        target: Option<Target>,
    ) -> Vec<Place> {
        let Some(targets) = self.targets.get_mut(key) else {
            return Vec::new();
        };
        let before = match target.clone() {
            Some(target) => targets.insert(namespace.clone(), target),
            None => targets.remove(namespace),
        };
        match before == target {
            true => Vec::new(),
            false => self.changed_in(key, namespace),
        }
    }

    /// Forgets the objects of this kind with this name.
    pub(in crate::sync) fn targets_gone(&mut self, key: &Key) {
        self.targets.remove(key);
    }
}

/// Returns the namespaces of which the two do not say the same.
fn differing<T: PartialEq>(one: &ByNamespace<T>, other: &ByNamespace<T>) -> BTreeSet<Name> {
    let all = one.namespaces().chain(other.namespaces());
    let differing = all.filter(|namespace| one.get(namespace) != other.get(namespace));
    differing.cloned().collect()
}
