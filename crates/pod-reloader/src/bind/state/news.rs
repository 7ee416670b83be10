//! Takes in what watches bring, and says whose fields are to be looked at.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pod_reloader_api::FieldBinding;
use pod_reloader_core::field_binding::{Binding, BindingId};
use pod_reloader_core::name::Name;

use super::{Key, Known, Memory, State};

impl State {
    /// Takes in a FieldBinding. Returns those whose fields are to be looked at.
    pub(in crate::bind) fn binding_seen(
        &mut self,
        id: BindingId,
        object: FieldBinding,
    ) -> Vec<BindingId> {
        let uid = object.metadata.uid.as_deref().unwrap_or_default().into();
        let version = (uid, object.metadata.generation.unwrap_or_default());
        if let Some(known) = self.known_mut(&id)
            && known.version == version
        {
            known.status = object.status;
            return Vec::new();
        }
        let before = self.remove(&id);
        let mut others = self.others_of(before.as_ref());
        let same_object = before.filter(|before| before.version.0 == version.0);
        let known = Known {
            version,
            binding: Binding::try_from(&object).map(Arc::new),
            status: object.status,
            status_written: same_object.as_ref().and_then(|it| it.status_written),
            memory: Memory {
                // Somebody who keeps changing the spec gets no more writes than that.
                pace: same_object.map(|it| it.memory.pace).unwrap_or_default(),
                ..Memory::default()
            },
            epoch: 0,
        };
        others.extend(self.others_of(Some(&known)));
        let here = self.bindings.entry(id.namespace.clone()).or_default();
        here.insert(id.name.clone(), known);
        self.unsettle(&others);
        others.push(id);
        others
    }

    /// Forgets a FieldBinding. Returns those whose fields are to be looked at: they may get what was its own.
    pub(in crate::bind) fn binding_gone(&mut self, id: &BindingId) -> Vec<BindingId> {
        let gone = self.remove(id);
        let others = self.others_of(gone.as_ref());
        self.unsettle(&others);
        others
    }

    /// Returns the FieldBindings of a namespace, or of all of them, that are not among these.
    pub(in crate::bind) fn bindings_without(
        &self,
        place: Option<&Name>,
        listed: &BTreeSet<BindingId>,
    ) -> Vec<BindingId> {
        let ids = self.bindings.iter().flat_map(|(namespace, here)| {
            here.keys().map(|name| BindingId {
                namespace: namespace.clone(),
                name: name.clone(),
            })
        });
        let is_there = |id: &BindingId| place.is_none_or(|place| *place == id.namespace);
        ids.filter(|id| is_there(id) && !listed.contains(id))
            .collect()
    }

    /// Takes in that all FieldBindings of a namespace, or of all of them, are known. Returns those whose fields are to
    /// be looked at.
    pub(in crate::bind) fn all_listed(&mut self, place: Option<&Name>) -> Vec<BindingId> {
        match self.listed.insert(place.cloned()) {
            true => self.bindings_without(place, &BTreeSet::new()),
            false => Vec::new(),
        }
    }

    /// Returns all sources and targets.
    pub(in crate::bind) fn keys(&self) -> BTreeSet<Key> {
        let known = self.bindings.values().flat_map(|here| here.values());
        let bindings = known.filter_map(|known| known.binding.as_ref().ok());
        let keys = bindings.filter_map(|binding| {
            let kind = self.kind(binding).ok()?;
            Some([self.source_key(binding), self.target_key(binding, kind)])
        });
        keys.flatten().collect()
    }

    /// Takes in the versions of all objects of a key, by namespace. Returns the FieldBindings whose fields are to be
    /// looked at.
    pub(in crate::bind) fn objects_listed(
        &mut self,
        key: &Key,
        objects: HashMap<Name, Box<str>>,
    ) -> Vec<BindingId> {
        let before = self.objects.insert(key.clone(), objects);
        let after = &self.objects[key];
        let namespaces: BTreeSet<Name> = match &before {
            // Nobody knew whether they are there.
            None => self.bindings.keys().cloned().collect(),
            Some(before) => {
                let all = before.keys().chain(after.keys());
                let news = all.filter(|namespace| before.get(*namespace) != after.get(*namespace));
                news.cloned().collect()
            }
        };
        namespaces.iter().flat_map(|it| self.of(key, it)).collect()
    }

    /// Takes in the version of an object of a key, or that it is gone. Returns the FieldBindings whose fields are to be
    /// looked at.
    pub(in crate::bind) fn object_seen(
        &mut self,
        key: &Key,
        namespace: &Name,
        version: Option<Box<str>>,
    ) -> Vec<BindingId> {
        let Some(objects) = self.objects.get_mut(key) else {
            return Vec::new();
        };
        let before = match version.clone() {
            Some(version) => objects.insert(namespace.clone(), version),
            None => objects.remove(namespace),
        };
        match before == version {
            true => Vec::new(),
            false => self.of(key, namespace),
        }
    }

    /// Forgets the objects of a key.
    pub(in crate::bind) fn objects_gone(&mut self, key: &Key) {
        self.objects.remove(key);
    }

    /// Returns the FieldBindings of a namespace that read or write objects of a key.
    fn of(&self, key: &Key, namespace: &Name) -> Vec<BindingId> {
        let here = self.bindings.get(namespace).into_iter();
        let here = here.flat_map(|here| here.values());
        let bindings = here.filter_map(|known| known.binding.as_ref().ok());
        let its = bindings.filter(|binding| {
            let target = || {
                self.kind(binding)
                    .map(|kind| self.target_key(binding, kind))
            };
            self.source_key(binding) == *key || target().is_ok_and(|it| it == *key)
        });
        its.map(|binding| binding.id.clone()).collect()
    }

    /// Returns the other FieldBindings of the same target.
    fn others_of(&self, known: Option<&Known>) -> Vec<BindingId> {
        let binding = known.and_then(|known| known.binding.as_ref().ok());
        let others = binding.into_iter().flat_map(|it| self.others(it));
        others.map(|other| other.id.clone()).collect()
    }

    /// Has fields looked at although neither source nor target has changed.
    fn unsettle(&mut self, bindings: &[BindingId]) {
        for id in bindings {
            if let Some(known) = self.known_mut(id) {
                known.memory.is_settled = false;
                known.epoch += 1;
            }
        }
    }

    fn remove(&mut self, id: &BindingId) -> Option<Known> {
        let here = self.bindings.get_mut(&id.namespace)?;
        let removed = here.remove(&id.name);
        if here.is_empty() {
            self.bindings.remove(&id.namespace);
        }
        removed
    }
}
