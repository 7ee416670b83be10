//! The namespaces that match the namespace selector, and what their workloads inherit.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::annotations::Inherited;
use pod_reloader_core::name::Name;
use tokio::sync::watch;
use tokio::time::Instant;

/// The namespaces that match the selector, or all that exist if only their annotations matter.
#[derive(Default)]
pub(crate) struct SelectedNamespaces {
    namespaces: Mutex<HashMap<Name, Namespace>>,
    are_listed: watch::Sender<bool>,
}

struct Namespace {
    /// The time since when it has been selected.
    since: Instant,
    /// The annotations that its workloads have unless they say otherwise.
    inherited: Arc<Inherited>,
}

impl SelectedNamespaces {
    pub(crate) fn contain(&self, namespace: &Name) -> bool {
        self.namespaces.lock().contains_key(namespace)
    }

    /// Returns true if the namespace was already selected at `then`, and has been since.
    pub(crate) fn contain_since(&self, then: Instant, namespace: &Name) -> bool {
        let namespaces = self.namespaces.lock();
        let namespace = namespaces.get(namespace);
        namespace.is_some_and(|namespace| namespace.since <= then)
    }

    /// Returns what the workloads of a namespace inherit.
    pub(crate) fn inherited(&self, namespace: &Name) -> Arc<Inherited> {
        let namespaces = self.namespaces.lock();
        let namespace = namespaces.get(namespace);
        namespace.map(|it| it.inherited.clone()).unwrap_or_default()
    }

    /// Adds a namespace, or what its workloads inherit. Returns true if either is news.
    pub(crate) fn insert(&self, namespace: &Name, inherited: Inherited) -> bool {
        let mut namespaces = self.namespaces.lock();
        if let Some(known) = namespaces.get_mut(namespace) {
            let is_news = *known.inherited != inherited;
            if is_news {
                known.inherited = Arc::new(inherited);
            }
            return is_news;
        }
        let new = Namespace {
            since: Instant::now(),
            inherited: Arc::new(inherited),
        };
        namespaces.insert(namespace.clone(), new);
        true
    }

    pub(crate) fn remove(&self, namespace: &Name) {
        self.namespaces.lock().remove(namespace);
    }

    /// Returns the namespaces that have been read and for which `matches` holds.
    pub(crate) fn picked(&self, matches: impl Fn(&Name) -> bool) -> Vec<Name> {
        let namespaces = self.namespaces.lock();
        let names = namespaces.keys().filter(|name| matches(name));
        names.cloned().collect()
    }

    /// Notes that the namespaces have been listed.
    pub(crate) fn list_is_whole(&self) {
        self.are_listed.send_replace(true);
    }

    /// Returns true if the namespaces have been listed.
    pub(crate) fn are_listed(&self) -> bool {
        *self.are_listed.borrow()
    }

    /// Waits until the namespaces have been listed.
    pub(crate) async fn listed(&self) {
        let mut are_listed = self.are_listed.subscribe();
        // The wait fails only if the sender is dropped, which `self` holds.
        let _ = are_listed.wait_for(|are_listed| *are_listed).await;
    }
}
