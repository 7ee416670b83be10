//! Remembers which kinds of workloads the cluster serves, and in which version it is asked for them.

use std::collections::HashMap;
use std::sync::Arc;

use kube::{Api, Client};
use parking_lot::Mutex;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::{Object, Served};

use crate::runtime::budget::Budget;
use crate::runtime::resources::Resources;
use crate::runtime::watch_age::Watching;

/// The version in which the cluster serves a kind that is not built in, and its watches.
pub(crate) type ServedAs = (Arc<str>, Vec<Watching>);

/// The kinds that the cluster serves.
pub(crate) struct ServedKinds {
    client: Client,
    budget: Budget,
    /// The kinds that are not built in and that it may serve.
    custom: Box<[WorkloadKind]>,
    /// Those of them that it serves, each with its version and its watches. Holding the watches here lets their records
    /// outlive a resync.
    served: Mutex<HashMap<WorkloadKind, ServedAs>>,
}

impl ServedKinds {
    pub(crate) fn new(client: Client, budget: Budget, custom: &[WorkloadKind]) -> Self {
        Self {
            client,
            budget,
            custom: custom.into(),
            served: Mutex::default(),
        }
    }

    /// Takes in that the cluster serves a kind, with the version in which it is watched, or no longer does.
    pub(crate) fn take_in(&self, kind: WorkloadKind, served: Option<ServedAs>) {
        let mut all = self.served.lock();
        match served {
            Some(served) => drop(all.insert(kind, served)),
            None => drop(all.remove(&kind)),
        }
    }

    /// Returns true if the cluster is known to serve a kind that is not built in.
    pub(crate) fn has(&self, kind: WorkloadKind) -> bool {
        self.served.lock().contains_key(&kind)
    }

    /// Returns every kind that the cluster is known to serve.
    pub(crate) fn all(&self) -> Vec<Served> {
        let all = WorkloadKind::BUILT_IN.iter().chain(self.custom.iter());
        all.filter_map(|kind| self.get(*kind)).collect()
    }

    /// Returns the kinds that are not built in, as the cluster serves them.
    pub(crate) fn custom(&self) -> Vec<Served> {
        let served = self.served.lock();
        let kinds = served.iter().map(|(kind, (version, ..))| Served {
            kind: *kind,
            version: version.clone(),
        });
        kinds.collect()
    }

    /// Returns a kind as the cluster serves it, if it is known to.
    pub(crate) fn get(&self, kind: WorkloadKind) -> Option<Served> {
        if kind.is_built_in() {
            return Some(Served::built_in(kind));
        }
        let version = self.served.lock().get(&kind)?.0.clone();
        Some(Served { kind, version })
    }

    /// Returns the API of the workloads of a kind in a namespace. Answers are read within the budget.
    pub(crate) fn api<O: Object>(&self, served: &Served, namespace: &Name) -> Resources<O> {
        let api = Api::namespaced_with(self.client.clone(), namespace.as_str(), served);
        Resources::new(api, served.kind.as_str(), &self.budget)
    }
}

/// Returns the resourceVersion as a number. Later versions are greater.
pub(crate) fn version(object: &impl Object) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}
