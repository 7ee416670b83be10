//! The namespaces that match the namespace selector.

use std::collections::HashMap;

use parking_lot::Mutex;
use pod_reloader_core::name::Name;
use tokio::sync::watch;
use tokio::time::Instant;

/// The namespaces that are selected by their labels. All namespaces, if there is no selector.
pub(crate) struct SelectedNamespaces(Option<Picked>);

struct Picked {
    /// The selected namespaces, each with the time since when.
    since: Mutex<HashMap<Name, Instant>>,
    are_listed: watch::Sender<bool>,
}

impl SelectedNamespaces {
    /// Returns an empty set if namespaces are selected by their labels, or else the set of all namespaces.
    pub(crate) fn new(are_picked: bool) -> Self {
        Self(are_picked.then(|| Picked {
            since: Mutex::default(),
            are_listed: watch::Sender::new(false),
        }))
    }

    pub(crate) fn contain(&self, namespace: &Name) -> bool {
        self.0
            .as_ref()
            .is_none_or(|picked| picked.since.lock().contains_key(namespace))
    }

    /// Returns true if the namespace was already selected at `then`, and has been since.
    pub(crate) fn contain_since(&self, then: Instant, namespace: &Name) -> bool {
        self.0.as_ref().is_none_or(|picked| {
            let since = picked.since.lock();
            since.get(namespace).is_some_and(|since| *since <= then)
        })
    }

    /// Adds a namespace. Returns true if it was not selected before.
    pub(crate) fn insert(&self, namespace: &Name) -> bool {
        self.0.as_ref().is_some_and(|picked| {
            let mut since = picked.since.lock();
            let is_news = !since.contains_key(namespace);
            if is_news {
                since.insert(namespace.clone(), Instant::now());
            }
            is_news
        })
    }

    pub(crate) fn remove(&self, namespace: &Name) {
        if let Some(picked) = &self.0 {
            picked.since.lock().remove(namespace);
        }
    }

    /// Returns the namespaces that are selected by their labels and for which `matches` holds.
    pub(crate) fn picked(&self, matches: impl Fn(&Name) -> bool) -> Vec<Name> {
        self.0.as_ref().map_or_else(Vec::new, |picked| {
            let since = picked.since.lock();
            since.keys().filter(|name| matches(name)).cloned().collect()
        })
    }

    /// Notes that the namespaces have been listed.
    pub(crate) fn list_is_whole(&self) {
        if let Some(picked) = &self.0 {
            picked.are_listed.send_replace(true);
        }
    }

    /// Returns true if the namespaces have been listed, or need not be.
    pub(crate) fn are_listed(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|picked| *picked.are_listed.borrow())
    }

    /// Waits until the namespaces have been listed, if they are selected by their labels.
    pub(crate) async fn listed(&self) {
        if let Some(picked) = &self.0 {
            let mut are_listed = picked.are_listed.subscribe();
            // The wait fails only if the sender is dropped, which `self` holds.
            let _ = are_listed.wait_for(|are_listed| *are_listed).await;
        }
    }
}
