//! The kinds that the cluster serves.

use std::sync::Arc;

use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::object::Served;

use super::Reconciler;
use crate::runtime::watch_age::Watching;

/// The version in which the cluster serves a kind that is not built in, and its watches.
pub(crate) type ServedAs = (Arc<str>, Vec<Watching>);

impl Reconciler {
    /// Takes in that the cluster serves a kind, with the version in which it is watched. `None` says that
    /// the cluster does not serve it any more, so its workloads are gone.
    pub(crate) fn kind_served(&self, kind: WorkloadKind, served: Option<ServedAs>) {
        match served {
            Some(served) => drop(self.served.lock().insert(kind, served)),
            None => {
                self.served.lock().remove(&kind);
                for id in self.workloads.ids(|id| id.kind == kind) {
                    self.workload_gone(&id);
                }
            }
        }
    }

    /// Returns true if the cluster is known to serve a kind.
    pub(crate) fn serves(&self, kind: WorkloadKind) -> bool {
        self.served.lock().contains_key(&kind)
    }

    /// Returns every kind that the cluster is known to serve.
    pub(crate) fn kinds_served(&self) -> Vec<Served> {
        let custom = self.scope.custom_kinds().iter();
        let all = WorkloadKind::BUILT_IN.iter().chain(custom);
        all.filter_map(|kind| self.served(*kind)).collect()
    }

    /// Returns the kinds that are not built in, as the cluster serves them.
    pub(super) fn served_kinds(&self) -> Vec<Served> {
        let served = self.served.lock();
        let kinds = served.iter().map(|(kind, (version, ..))| Served {
            kind: *kind,
            version: version.clone(),
        });
        kinds.collect()
    }

    /// Returns a kind as the cluster serves it, if it is known to.
    pub(crate) fn served(&self, kind: WorkloadKind) -> Option<Served> {
        if kind.is_built_in() {
            return Some(Served::built_in(kind));
        }
        let version = self.served.lock().get(&kind)?.0.clone();
        Some(Served { kind, version })
    }
}
