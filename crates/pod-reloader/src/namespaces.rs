//! The namespaces that a namespace selector picks.

use std::collections::HashSet;

use parking_lot::Mutex;
use pod_reloader_core::name::Name;

/// The namespaces that are picked by their labels; all of them where nothing is asked for.
pub(crate) struct SelectedNamespaces(Option<Mutex<HashSet<Name>>>);

impl SelectedNamespaces {
    /// None yet, if they are picked at all.
    pub(crate) fn new(are_picked: bool) -> Self {
        Self(are_picked.then(Mutex::default))
    }

    pub(crate) fn contain(&self, namespace: &Name) -> bool {
        self.0
            .as_ref()
            .is_none_or(|selected| selected.lock().contains(namespace))
    }

    pub(crate) fn insert(&self, namespace: Name) {
        if let Some(selected) = &self.0 {
            selected.lock().insert(namespace);
        }
    }

    pub(crate) fn remove(&self, namespace: &Name) {
        if let Some(selected) = &self.0 {
            selected.lock().remove(namespace);
        }
    }

    /// Leaves only those that `matches` holds for.
    pub(crate) fn retain(&self, matches: impl Fn(&Name) -> bool) {
        if let Some(selected) = &self.0 {
            selected.lock().retain(matches);
        }
    }
}
