//! Remembers which release the restart of each workload waits for.

use pod_reloader_core::release::Release;
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;

use super::Progress;
use crate::restart::memory::WorkloadMemory;

impl Progress {
    /// Notes which release the restart of a workload waits for, if any. Returns true if that is news.
    pub(crate) fn awaits(&self, id: &WorkloadId, release: Option<&Release>) -> bool {
        let now = Instant::now();
        let is_news = self.known(id, |passes| {
            let pending = passes.pending.as_mut();
            let pending = pending.filter(|pending| pending.awaits.as_ref() != release)?;
            match release {
                Some(_) => drop(pending.waiting_since.get_or_insert(now)),
                None => pending.release_ended = Some(now),
            }
            pending.awaits = release.cloned();
            Some(())
        });
        is_news.is_some()
    }

    /// Returns since when the restart of a workload has waited for releases.
    pub(crate) fn waiting_since(&self, id: &WorkloadId) -> Option<Instant> {
        self.known(id, |passes| passes.pending.as_ref()?.waiting_since)
    }

    /// Returns when the restart of a workload last stopped waiting for a release.
    pub(crate) fn release_ended(&self, id: &WorkloadId) -> Option<Instant> {
        self.known(id, |passes| passes.pending.as_ref()?.release_ended)
    }

    /// Returns the workloads whose restart waits for a release.
    pub(crate) fn awaiting(&self, release: &Release) -> Vec<WorkloadId> {
        let awaited = |memory: &WorkloadMemory| {
            let pending = memory.passes.as_ref()?.pending.as_ref()?;
            Some(pending.awaits.as_ref() == Some(release))
        };
        self.memories
            .ids(|memory| awaited(memory).unwrap_or_default())
    }
}
