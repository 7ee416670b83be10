//! Takes in what watches bring, and says whose fields are to be looked at.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pod_reloader_api::FieldBinding;
use pod_reloader_core::field_binding::{Binding, BindingId};
use pod_reloader_core::name::Name;

use super::{Known, Memory, ObjectName, State, Watched};

impl State {
    /// Takes in a FieldBinding. Returns those whose fields are to be looked at.
    pub(in crate::bind) fn binding_seen(
        &mut self,
        id: BindingId,
        object: FieldBinding,
    ) -> Vec<BindingId> {
        let uid = object.metadata.uid.as_deref().unwrap_or_default().into();
        let version = (uid, object.metadata.generation.unwrap_or_default());
        if self.known(&id).is_some_and(|it| it.version == version) {
            self.status_seen(&id, object.status);
            return Vec::new();
        }
        let before = self.remove(&id);
        let mut others = self.affected(before.as_ref());
        let same_object = before.as_ref().filter(|it| it.version.0 == version.0);
        let known = Known {
            version,
            binding: Binding::try_from(&object).map(Arc::new),
            status: object.status,
            status_written: same_object.and_then(|it| it.status_written),
            memory: Memory {
                // Somebody who keeps changing the spec gets no more writes than that.
                pace: same_object.map(|it| it.memory.pace).unwrap_or_default(),
                ..Memory::default()
            },
            epoch: 0,
        };
        self.rebind(&id.name, before.as_ref(), Some(&known));
        others.extend(self.affected(Some(&known)));
        self.counts.add(known.status.as_ref());
        let here = self.bindings.entry(id.namespace.clone()).or_default();
        here.insert(id.name.clone(), known);
        self.unsettle(&others);
        others.push(id);
        others
    }

    /// Forgets a FieldBinding. Returns those whose fields are to be looked at: they may get what was its own.
    pub(in crate::bind) fn binding_gone(&mut self, id: &BindingId) -> Vec<BindingId> {
        let gone = self.remove(id);
        self.rebind(&id.name, gone.as_ref(), None);
        let others = self.affected(gone.as_ref());
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

    /// Returns the watches that are needed, if there are others than when they were last asked for.
    pub(in crate::bind) fn watches(&mut self) -> Option<BTreeSet<Watched>> {
        self.objects.news()
    }

    /// Returns true if a FieldBinding reads or writes an object.
    pub(in crate::bind) fn is_bound(&self, watched: &Watched, namespace: &str, name: &str) -> bool {
        self.objects.is_bound(watched, namespace, name)
    }

    /// Takes in that a list of objects begins. Returns its number.
    pub(in crate::bind) fn objects_listing(&mut self) -> u64 {
        self.objects.listing()
    }

    /// Takes in the versions of all objects of a watch that are bound. Returns the FieldBindings whose fields are to be
    /// looked at.
    pub(in crate::bind) fn objects_listed(
        &mut self,
        watched: &Watched,
        list: u64,
        objects: HashMap<ObjectName, Box<str>>,
    ) -> Vec<BindingId> {
        let news = self.objects.listed(watched, list, objects).into_iter();
        news.flat_map(|(namespace, users)| ids(&namespace, users))
            .collect()
    }

    /// Takes in the version of an object, or that it is gone. Returns the FieldBindings whose fields are to be looked at.
    pub(in crate::bind) fn object_seen(
        &mut self,
        watched: &Watched,
        object: &ObjectName,
        version: Option<Box<str>>,
    ) -> Vec<BindingId> {
        let users = self.objects.seen(watched, object, version);
        ids(&object.namespace, users)
    }

    /// Takes in which objects a FieldBinding uses, and which it used before.
    fn rebind(&mut self, name: &Name, before: Option<&Known>, after: Option<&Known>) {
        let (before, after) = (before.and_then(writer), after.and_then(writer));
        let uses = |binding: Option<&Arc<Binding>>| {
            binding.map_or_else(Vec::new, |binding| self.uses(binding))
        };
        let (used, uses) = (uses(before), uses(after));
        let is_writer = !uses.is_empty();
        for gone in used.iter().filter(|it| !uses.contains(it)) {
            self.objects.release(gone, name);
        }
        for new in uses.into_iter().filter(|it| !used.contains(it)) {
            self.objects.bind(new, name);
        }
        if let Some(before) = before {
            self.targets.remove(before);
        }
        if let Some(after) = after.filter(|_| is_writer) {
            self.targets.insert(after);
        }
    }

    /// Returns the other FieldBindings of the same target that may get or lose fields, as this one comes or goes.
    fn affected(&self, known: Option<&Known>) -> Vec<BindingId> {
        let binding = known.and_then(writer);
        binding.map_or_else(Vec::new, |it| self.targets.affected(it))
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
        let removed = removed?;
        self.counts.remove(removed.status.as_ref());
        Some(removed)
    }
}

/// Returns the FieldBinding, if it can be worked with.
fn writer(known: &Known) -> Option<&Arc<Binding>> {
    known.binding.as_ref().ok()
}

fn ids(namespace: &Name, names: Vec<Name>) -> Vec<BindingId> {
    let id = |name| BindingId {
        namespace: namespace.clone(),
        name,
    };
    names.into_iter().map(id).collect()
}
