//! The namespaces that match the namespace selector, and what their workloads inherit.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::annotations::Inherited;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::Object;
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::Workload;
use tokio::sync::watch;
use tokio::time::Instant;

/// The namespaces that are selected by their labels. All namespaces, if there is no selector.
pub(crate) struct SelectedNamespaces(Option<Picked>);

struct Picked {
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
    /// Returns an empty set if namespaces have to be read, or else the set of all namespaces.
    pub(crate) fn new(are_picked: bool) -> Self {
        Self(are_picked.then(|| Picked {
            namespaces: Mutex::default(),
            are_listed: watch::Sender::new(false),
        }))
    }

    pub(crate) fn contain(&self, namespace: &Name) -> bool {
        self.0
            .as_ref()
            .is_none_or(|picked| picked.namespaces.lock().contains_key(namespace))
    }

    /// Returns true if the namespace was already selected at `then`, and has been since.
    pub(crate) fn contain_since(&self, then: Instant, namespace: &Name) -> bool {
        self.0.as_ref().is_none_or(|picked| {
            let namespaces = picked.namespaces.lock();
            let namespace = namespaces.get(namespace);
            namespace.is_some_and(|namespace| namespace.since <= then)
        })
    }

    /// Reads an object as a workload, with what it inherits from its namespace. `None` if its metadata are not valid.
    pub(crate) fn read(
        &self,
        scope: &Scope,
        kind: WorkloadKind,
        object: impl Object,
    ) -> Option<Workload> {
        let namespace = Name::parse(object.meta().namespace.as_deref()?).ok()?;
        let inherited = self.inherited(&namespace);
        scope.read_in(kind, object, &inherited).ok()
    }

    /// Returns true if a workload is managed once it opts in.
    pub(crate) fn include(&self, scope: &Scope, workload: &Workload) -> bool {
        scope.includes(workload) && self.contain(&workload.id.namespace)
    }

    /// Returns what the workloads of a namespace inherit.
    pub(crate) fn inherited(&self, namespace: &Name) -> Arc<Inherited> {
        let inherited = self.0.as_ref().and_then(|picked| {
            let namespaces = picked.namespaces.lock();
            Some(namespaces.get(namespace)?.inherited.clone())
        });
        inherited.unwrap_or_default()
    }

    /// Adds a namespace, or what its workloads inherit. Returns true if either is news.
    pub(crate) fn insert(&self, namespace: &Name, inherited: Inherited) -> bool {
        let Some(picked) = &self.0 else {
            return false;
        };
        let mut namespaces = picked.namespaces.lock();
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
        if let Some(picked) = &self.0 {
            picked.namespaces.lock().remove(namespace);
        }
    }

    /// Returns the namespaces that have been read and for which `matches` holds.
    pub(crate) fn picked(&self, matches: impl Fn(&Name) -> bool) -> Vec<Name> {
        self.0.as_ref().map_or_else(Vec::new, |picked| {
            let namespaces = picked.namespaces.lock();
            let names = namespaces.keys().filter(|name| matches(name));
            names.cloned().collect()
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

    /// Waits until the namespaces have been listed, if they have to be read.
    pub(crate) async fn listed(&self) {
        if let Some(picked) = &self.0 {
            let mut are_listed = picked.are_listed.subscribe();
            // The wait fails only if the sender is dropped, which `self` holds.
            let _ = are_listed.wait_for(|are_listed| *are_listed).await;
        }
    }
}
