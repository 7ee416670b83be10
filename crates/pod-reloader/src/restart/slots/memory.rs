//! Shares which rollouts are in progress, and which workloads wait for one to end.

use parking_lot::Mutex;
use pod_reloader_core::limit::{self, Full, Limits};
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use crate::restart::restraint::Phase;

/// The rollouts that are in progress, and the workloads that wait for one to end.
pub(crate) struct Slots(Mutex<limit::Slots>);

impl Slots {
    pub(crate) fn new(limits: Limits) -> Self {
        Self(Mutex::new(limit::Slots::new(limits)))
    }

    /// Returns true if anything is limited.
    pub(crate) fn are_limited(&self) -> bool {
        self.0.lock().are_limited()
    }

    /// Takes in a workload as it is now. Returns the workloads that may go because of that.
    pub(crate) fn saw(&self, workload: &Workload) -> Vec<WorkloadId> {
        self.0.lock().saw(workload, now())
    }

    /// Takes in that nothing is rolled out to a workload: it is gone, or refuses our write. Returns the
    /// workloads that may go because of that.
    pub(crate) fn free(&self, id: &WorkloadId) -> Vec<WorkloadId> {
        self.0.lock().free(id, now())
    }

    /// Notes that a pass over a workload begins. Until it ends, the workload keeps its place in the line.
    pub(crate) fn pass_begins(&self, id: &WorkloadId) {
        self.0.lock().pass_begins(id);
    }

    /// Notes that a pass over a workload has ended. If the workload does not wait for a slot, it leaves the line.
    /// Returns the workloads that may go because of that.
    pub(crate) fn pass_ended(&self, id: &WorkloadId) -> Vec<WorkloadId> {
        self.0.lock().pass_ended(id, now())
    }

    /// Takes a slot for a workload that is about to be restarted, in the commit phase. Before that, the slot stays free for
    /// the workload until its pass ends.
    ///
    /// # Errors
    ///
    /// Returns the limit that keeps it from going, and when to look again, if nothing happens earlier.
    pub(crate) fn take(&self, workload: &Workload, phase: Phase) -> Result<(), (Full, Instant)> {
        let (mut slots, now) = (self.0.lock(), now());
        if let Err((full, until)) = slots.ask(workload, now) {
            return Err((full, Instant::from_std(until)));
        }
        if phase == Phase::Commit {
            slots.take(workload, now);
        }
        Ok(())
    }
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}
