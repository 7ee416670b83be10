//! Remembers which release the restart of each workload waits for.

use pod_reloader_core::release::Release;
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;

use super::{Entry, Progress};

impl Progress {
    /// Notes which release the restart of a workload waits for, if any. Returns true if that is news.
    pub(crate) fn awaits(&self, id: &WorkloadId, release: Option<&Release>) -> bool {
        let now = Instant::now();
        let mut entries = self.lock();
        let pending = entries.get_mut(id).and_then(|entry| entry.pending.as_mut());
        let Some(pending) = pending.filter(|it| it.awaits.as_ref() != release) else {
            return false;
        };
        match release {
            Some(_) => drop(pending.waiting_since.get_or_insert(now)),
            None => pending.release_ended = Some(now),
        }
        pending.awaits = release.cloned();
        true
    }

    /// Returns since when the restart of a workload has waited for releases.
    pub(crate) fn waiting_since(&self, id: &WorkloadId) -> Option<Instant> {
        self.lock().get(id)?.pending.as_ref()?.waiting_since
    }

    /// Returns when the restart of a workload last stopped waiting for a release.
    pub(crate) fn release_ended(&self, id: &WorkloadId) -> Option<Instant> {
        self.lock().get(id)?.pending.as_ref()?.release_ended
    }

    /// Returns the workloads whose restart waits for a release.
    pub(crate) fn awaiting(&self, release: &Release) -> Vec<WorkloadId> {
        let awaits = |entry: &Entry| {
            let pending = entry.pending.as_ref();
            pending.and_then(|it| it.awaits.as_ref()) == Some(release)
        };
        let entries = self.lock();
        let awaiting = entries.iter().filter(|(_, entry)| awaits(entry));
        awaiting.map(|(id, _)| id.clone()).collect()
    }
}
