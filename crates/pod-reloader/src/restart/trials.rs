//! Remembers which workloads have got a configuration that is put back if they do not become healthy with it.

use std::collections::HashMap;

use parking_lot::Mutex;
use pod_reloader_core::pins::Pins;
use pod_reloader_core::staging::Health;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

/// The workloads that have to become healthy, and what was put back.
#[derive(Default)]
pub(crate) struct Trials(Mutex<HashMap<WorkloadId, Known>>);

#[derive(Default)]
struct Known {
    trial: Option<Trial>,
    /// The content that was put back last. It is put back once.
    put_back: Option<Pins>,
}

/// A configuration that a workload has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trial {
    /// The time from which on the workload has failed, unless it is healthy.
    pub(crate) deadline: Instant,
    /// True if it was healthy before.
    pub(crate) was_healthy: bool,
}

impl Trials {
    /// Notes that a workload is restarted with another configuration.
    pub(crate) fn begin(&self, before: &Workload) {
        let reverts = before.pinning.as_deref().is_some_and(|it| it.reverts);
        let Some(staging) = before.staging.as_deref().filter(|_| reverts) else {
            return;
        };
        let trial = Trial {
            deadline: Instant::now() + staging.deadline,
            was_healthy: staging.health == Health::Healthy,
        };
        self.0.lock().entry(before.id.clone()).or_default().trial = Some(trial);
    }

    /// Returns the trial of a workload that is not healthy. One that is healthy has passed.
    pub(crate) fn open(&self, workload: &Workload) -> Option<Trial> {
        let mut known = self.0.lock();
        let known = known.get_mut(&workload.id)?;
        let health = workload.staging.as_deref().map(|it| it.health);
        if health != Some(Health::Rolling) && health != Some(Health::Unavailable) {
            known.trial = None;
        }
        known.trial
    }

    /// Ends the trial of a workload.
    pub(crate) fn end(&self, id: &WorkloadId) {
        if let Some(known) = self.0.lock().get_mut(id) {
            known.trial = None;
        }
    }

    /// Notes that this content was put back, which ends the trial.
    pub(crate) fn put_back(&self, id: &WorkloadId, undone: &Pins) {
        let put_back = Some(undone.clone());
        let trial = None;
        self.0.lock().insert(id.clone(), Known { trial, put_back });
    }

    /// Returns true if this content was put back last time.
    pub(crate) fn has_put_back(&self, id: &WorkloadId, undone: &Pins) -> bool {
        let known = self.0.lock();
        known.get(id).and_then(|it| it.put_back.as_ref()) == Some(undone)
    }

    /// Forgets a workload.
    pub(crate) fn forget(&self, id: &WorkloadId) {
        self.0.lock().remove(id);
    }
}
