//! Remembers which lists of workloads have not arrived yet.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use tokio::time::Instant;

/// The time after which a workload looks again while some lists have not arrived.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The lists of workloads that have not arrived yet: of a kind, in a namespace or in all of them. Only the first lists
/// are waited for.
pub(crate) struct ListsDue(Mutex<HashSet<(WorkloadKind, Option<Name>)>>);

impl ListsDue {
    /// Returns the lists of all built-in kinds in these namespaces. `None` stands for all namespaces.
    pub(crate) fn of(namespaces: &[Option<Name>]) -> Self {
        let of_kind = |kind| {
            let places = namespaces.iter().cloned();
            places.map(move |place| (kind, place))
        };
        let lists = WorkloadKind::BUILT_IN.into_iter().flat_map(of_kind);
        Self(Mutex::new(lists.collect()))
    }

    /// Takes in that the list of a kind is complete, in a namespace or in all of them.
    pub(crate) fn is_whole(&self, kind: WorkloadKind, namespace: Option<Name>) {
        self.0.lock().remove(&(kind, namespace));
    }

    /// Returns true if some lists have not arrived yet.
    pub(crate) fn are_due(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// Returns when to look again at a workload that must be compared with others, if some of these are still unknown.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.are_due().then(|| Instant::now() + LOOK_AGAIN)
    }
}
