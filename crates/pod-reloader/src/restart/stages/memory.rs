//! Shares what is known of workloads whose restarts are staged, and who waits for whom.

use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::stages::{self, Changed, Look, Turn};
use pod_reloader_core::staging::Staging;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use crate::restart::clock::now;
use crate::restart::restraint::Phase;

/// What is known of workloads whose restarts are staged.
#[derive(Default)]
pub(crate) struct Stages(
    Mutex<stages::Stages>,
    /// The number of times that the standing of a workload has been asked for.
    #[cfg(test)]
    std::sync::atomic::AtomicUsize,
);

impl Stages {
    /// Takes in a workload as it is now. Returns the workloads that wait for it, if that may matter to them.
    pub(crate) fn saw(&self, workload: &Workload) -> Vec<WorkloadId> {
        self.0.lock().saw(workload, now())
    }

    /// Forgets a workload. Returns the workloads that wait for it, and the one that it waits for.
    pub(crate) fn forget(&self, id: &WorkloadId) -> Vec<WorkloadId> {
        self.0.lock().forget(id)
    }

    /// Notes that a workload waits for something other than a workload. Returns the one that it has waited for.
    pub(crate) fn stops_waiting(&self, id: &WorkloadId) -> Option<WorkloadId> {
        self.0.lock().stops_waiting(id)
    }

    /// Takes in that an event of an object has arrived that these workloads track. Those that could not get
    /// the content before may be able to now.
    pub(crate) fn news(&self, consumers: &[WorkloadId]) {
        self.0.lock().news(consumers, now());
    }

    /// Returns the number of times that the standing of a workload has been asked for.
    #[cfg(test)]
    pub(crate) fn looks(&self) -> usize {
        self.1.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns true if others wait for a workload.
    pub(crate) fn is_waited_for(&self, id: &WorkloadId) -> bool {
        self.0.lock().is_waited_for(id)
    }

    /// Returns when a pass last found that a workload has the present content.
    pub(crate) fn right_at(&self, id: &WorkloadId) -> Option<Instant> {
        self.0.lock().right_at(id).map(Instant::from_std)
    }

    /// Notes that a workload cannot go for a while, so nobody waits for it. Returns the workloads that have waited for it,
    /// and the one that it no longer waits for.
    pub(crate) fn is_held_up(&self, workload: &Workload) -> Vec<WorkloadId> {
        self.looked(workload, Look::Out, None)
    }

    /// Notes what a pass over a workload has found, and the objects whose present content was undone, if the pass
    /// has got as far as that. Returns the workloads that wait for it, if that is news,
    /// and the one that it no longer waits for.
    pub(crate) fn looked(
        &self,
        workload: &Workload,
        look: Look,
        undone: Option<Vec<Reference>>,
    ) -> Vec<WorkloadId> {
        self.0.lock().looked(workload, look, undone, now())
    }

    /// Notes that the pods of a workload begin to reload the changes that it lacks, and that they are done then at the
    /// latest. Others wait for it meanwhile, even if these pods become unhealthy.
    pub(crate) fn begins_to_reload(&self, id: &WorkloadId, until: Instant) {
        let mut stages = self.0.lock();
        stages.begins_to_reload(id, until.into_std(), now());
    }

    /// Notes that a pass over a workload has failed. A workload that has the present content keeps it, and one
    /// that nobody has looked at may still turn out to be on trial. Returns the workloads that wait for it, if
    /// that is news.
    pub(crate) fn looked_in_vain(&self, workload: &Workload, is_refused: bool) -> Vec<WorkloadId> {
        self.0.lock().looked_in_vain(workload, is_refused)
    }

    /// Returns whether `workload`, which lacks these changes, waits for another one. `consumers` returns all workloads that
    /// track an object. In the commit phase, others wait for it from now on if it waits for nobody.
    pub(crate) fn wait(
        &self,
        workload: &Workload,
        staging: &Staging,
        changed: &[Changed],
        consumers: impl Fn(&Reference) -> Vec<Arc<Workload>>,
        phase: Phase,
    ) -> Turn {
        let now = now();
        let (own, to_compute) = {
            let stages = self.0.lock();
            let own = stages.peer(workload, staging, changed, now);
            let to_compute = stages.to_compute(changed, &own, now);
            (own, to_compute)
        };
        // Not while the stages are locked.
        let to_compute = to_compute.into_iter().map(|it| (it, consumers(&it.object)));
        let to_compute: Vec<_> = to_compute.collect();
        let mut stages = self.0.lock();
        for (object, consumers) in &to_compute {
            #[cfg(test)]
            self.1
                .fetch_add(consumers.len(), std::sync::atomic::Ordering::Relaxed);
            stages.compute(object, consumers, now);
        }
        let turn = stages.turn(&own, changed, now);
        if phase == Phase::Commit && turn.wait.is_none() {
            stages.goes(&workload.id, changed, now);
        }
        turn
    }
}
