//! Remembers how far the objects of each workload are that change together.

use std::collections::HashMap;

use parking_lot::Mutex;
use pod_reloader_core::digest::Objects;
use pod_reloader_core::together::{Round, Together, Verdict};
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

/// The rounds of the workloads that name such objects.
#[derive(Default)]
pub(crate) struct Rounds(Mutex<HashMap<WorkloadId, Round>>);

impl Rounds {
    /// Takes in the objects of a workload as they are now. `is_due` says that its pods have other content.
    pub(crate) fn look(&self, workload: &Workload, objects: &Objects, is_due: bool) {
        let Some(together) = workload.together.as_deref() else {
            self.forget(&workload.id);
            return;
        };
        let contents = workload.references.contents(objects);
        let now = Instant::now().into_std();
        let mut rounds = self.0.lock();
        let round = rounds.entry(workload.id.clone()).or_default();
        round.look(together, &contents, is_due, now);
    }

    /// Returns true if the objects of a workload have been looked at.
    pub(crate) fn knows(&self, id: &WorkloadId) -> bool {
        self.0.lock().contains_key(id)
    }

    /// Returns whether a restart that is due has to wait for objects.
    pub(crate) fn verdict(&self, id: &WorkloadId, together: &Together) -> Verdict {
        let mut rounds = self.0.lock();
        let round = rounds.get_mut(id);
        let now = Instant::now().into_std();
        round.map_or(Verdict::Go, |round| round.verdict(together, now))
    }

    /// Forgets a workload.
    pub(crate) fn forget(&self, id: &WorkloadId) {
        self.0.lock().remove(id);
    }
}
