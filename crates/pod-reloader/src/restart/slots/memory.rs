//! Shares which rollouts are in progress, and which workloads wait for one to end.

use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::limit::{self, Full};
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use crate::restart::clock::now;
use crate::restart::parts::Parts;
use crate::restart::restraint::Phase;
use crate::runtime::worker::Worker;

/// The rollouts that are in progress, and the workloads that wait for one to end. Those that may go are queued.
pub(crate) struct Slots {
    slots: Mutex<limit::Slots>,
    worker: Arc<Worker<WorkloadId>>,
}

impl Slots {
    /// Returns the slots of a term. `None` if nothing is limited.
    pub(crate) fn of(parts: &Parts) -> Option<Arc<Self>> {
        let settings = &parts.settings;
        // Restarts that are only reported take no slot.
        let takes_any = settings.limits.are_set() && !settings.observe;
        takes_any.then(|| {
            Arc::new(Self {
                slots: Mutex::new(limit::Slots::new(settings.limits)),
                worker: parts.worker.clone(),
            })
        })
    }

    /// Takes in a workload as it is now.
    pub(crate) fn saw(&self, workload: &Workload) {
        let woken = self.slots.lock().saw(workload, now());
        self.worker.push_all(woken);
    }

    /// Takes in that nothing is rolled out to a workload: it is gone, or refuses our write.
    pub(crate) fn free(&self, id: &WorkloadId) {
        let woken = self.slots.lock().free(id, now());
        self.worker.push_all(woken);
    }

    /// Notes that a pass over a workload begins. Until it ends, the workload keeps its place in the line.
    pub(crate) fn pass_begins(&self, id: &WorkloadId) {
        self.slots.lock().pass_begins(id);
    }

    /// Notes that a pass over a workload has ended. If the workload does not wait for a slot, it leaves the line.
    pub(crate) fn pass_ended(&self, id: &WorkloadId) {
        let woken = self.slots.lock().pass_ended(id, now());
        self.worker.push_all(woken);
    }

    /// Takes a slot for a workload that is about to be restarted, in the commit phase. Before that, the slot stays free for
    /// the workload until its pass ends.
    ///
    /// # Errors
    ///
    /// Returns the limit that keeps it from going, and when to look again, if nothing happens earlier.
    pub(crate) fn take(&self, workload: &Workload, phase: Phase) -> Result<(), (Full, Instant)> {
        let (mut slots, now) = (self.slots.lock(), now());
        if let Err((full, until)) = slots.ask(workload, now) {
            return Err((full, Instant::from_std(until)));
        }
        if phase == Phase::Commit {
            slots.take(workload, now);
        }
        Ok(())
    }
}
