//! Takes in what watches bring, and says whose fields are to be looked at.

use std::collections::HashMap;
use std::sync::Arc;

use pod_reloader_api::FieldBinding;
use pod_reloader_core::field_binding::{Binding, BindingId, InvalidBinding};
use pod_reloader_core::name::Name;
use pod_reloader_core::ready::SeenStatus;

use super::left_out::Untold;
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
        let known = self.bindings.get(&id);
        if known.is_some_and(|it| it.version == version) {
            self.status_seen(&id, object.status.as_ref());
            return Vec::new();
        }
        let mut memory = Memory::default();
        let mut status_written = None;
        let (before, mut others) = self.forget(&id);
        if let Some(before) = before.filter(|it| it.version.0 == version.0) {
            // Somebody who keeps changing the spec gets no more writes than that.
            memory.pace = before.memory.pace;
            status_written = before.status_written;
        }
        let status = object.status.as_ref();
        let status = status.map(|it| SeenStatus::of(it, &it.conditions));
        let binding = Binding::try_from(&object).map(Arc::new);
        let weight = binding
            .as_ref()
            .map_or_else(InvalidBinding::weight, |it| it.weight());
        let Ok(charge) = self.shares.charge(&id.namespace, weight) else {
            self.left_out.insert(id, Untold { version, status });
            self.unsettle(&others);
            return others;
        };
        let known = Known {
            version,
            binding,
            status,
            status_written,
            memory,
            epoch: 0,
            _charge: charge,
        };
        self.bind(&known);
        others.extend(self.affected(&known));
        self.counts.add(known.status.as_ref());
        self.bindings.insert(id.clone(), known);
        self.unsettle(&others);
        others.push(id);
        others
    }

    /// Forgets a FieldBinding. Returns those whose fields are to be looked at: they may get what was its own.
    pub(in crate::bind) fn binding_gone(&mut self, id: &BindingId) -> Vec<BindingId> {
        let (_, others) = self.forget(id);
        self.unsettle(&others);
        others
    }

    /// Returns the FieldBindings of a namespace, or of all of them.
    pub(in crate::bind) fn bindings_in(&self, place: Option<&Name>) -> Vec<BindingId> {
        let is_there = |id: &&BindingId| place.is_none_or(|place| *place == id.namespace);
        self.bindings.keys().filter(is_there).cloned().collect()
    }

    /// Takes in that all FieldBindings of a namespace, or of all of them, are known, but for so many for which there is
    /// no room. Returns those whose fields are to be looked at.
    pub(in crate::bind) fn all_listed(
        &mut self,
        place: Option<&Name>,
        left_out: usize,
    ) -> Vec<BindingId> {
        self.left_out.listed(place, left_out);
        match self.listed.insert(place.cloned()) {
            true => self.bindings_in(place),
            false => Vec::new(),
        }
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

    /// Takes in the objects that a FieldBinding uses.
    fn bind(&mut self, known: &Known) {
        let Ok(binding) = &known.binding else {
            return;
        };
        let uses = self.uses(binding);
        if !uses.is_empty() {
            self.targets.insert(binding);
        }
        for used in uses {
            self.objects.bind(used, &binding.id.name);
        }
    }

    /// Takes in that a FieldBinding no longer uses any object.
    fn release(&mut self, known: &Known) {
        let Ok(binding) = &known.binding else {
            return;
        };
        self.targets.remove(binding);
        for used in self.uses(binding) {
            self.objects.release(&used, &binding.id.name);
        }
    }

    /// Returns the other FieldBindings of the same target that may get or lose fields, as this one comes or goes.
    fn affected(&self, known: &Known) -> Vec<BindingId> {
        match &known.binding {
            Ok(binding) => self.targets.affected(binding),
            Err(_) => Vec::new(),
        }
    }

    /// Has fields looked at although neither source nor target has changed.
    fn unsettle(&mut self, bindings: &[BindingId]) {
        for id in bindings {
            if let Some(known) = self.bindings.get_mut(id) {
                known.memory.is_settled = false;
                known.epoch += 1;
            }
        }
    }

    /// Takes out a FieldBinding. Returns it, with those whose fields are to be looked at.
    fn forget(&mut self, id: &BindingId) -> (Option<Known>, Vec<BindingId>) {
        self.left_out.remove(id);
        let removed = self.bindings.remove(id);
        let affected = removed.as_ref().map(|known| {
            self.counts.remove(known.status.as_ref());
            self.release(known);
            self.affected(known)
        });
        (removed, affected.unwrap_or_default())
    }
}

fn ids(namespace: &Name, names: Vec<Name>) -> Vec<BindingId> {
    let id = |name| BindingId {
        namespace: namespace.clone(),
        name,
    };
    names.into_iter().map(id).collect()
}
