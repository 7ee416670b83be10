//! Remembers the recent writes to each workload: they decide how soon it may be written to, and restarted,
//! again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_core::brake::Writes;
use pod_reloader_core::room::give_back_room;
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;

use crate::restart::clock::now;

/// The recent writes of this process to workloads. They outlive a term of leadership.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentWrites(Arc<Mutex<HashMap<WorkloadId, Writes>>>);

impl RecentWrites {
    /// Returns when a workload may be written to next, if not now.
    pub(crate) fn next_write(&self, id: &WorkloadId, max_restarts: usize) -> Option<Instant> {
        let all = self.0.lock();
        let next = all.get(id)?.next(now(), max_restarts)?;
        Some(next.into())
    }

    /// Counts a write to a workload. Call this just before sending it.
    ///
    /// # Errors
    ///
    /// Returns the time from which the write may be sent, if not now.
    pub(crate) fn begin_write(&self, id: &WorkloadId, max_restarts: usize) -> Result<(), Instant> {
        let mut all = self.0.lock();
        let writes = all.entry(id.clone()).or_default();
        Ok(writes.begin(now(), max_restarts)?)
    }

    /// Notes that a workload was restarted with a config hash whose content had been read at `at`.
    ///
    /// `is_changed` says that an object has changed since the previous write. If so, and if restarts are
    /// unlimited, the attempt is given back: only the users caused it.
    pub(crate) fn restarted(
        &self,
        id: &WorkloadId,
        config_hash: &str,
        at: Instant,
        is_changed: bool,
        max_restarts: usize,
    ) {
        let mut all = self.0.lock();
        let writes = all.entry(id.clone()).or_default();
        writes.restarted(config_hash, at.into_std(), is_changed, max_restarts, now());
    }

    /// Gives one attempt back: two writes to a workload belong together.
    pub(crate) fn give_back(&self, id: &WorkloadId) {
        if let Some(writes) = self.0.lock().get_mut(id) {
            writes.give_back();
        }
    }

    /// Notes that a baseline was written to a workload.
    pub(crate) fn baseline_written(&self, id: &WorkloadId, baseline: &str) {
        let mut all = self.0.lock();
        let writes = all.entry(id.clone()).or_default();
        writes.baseline_written(baseline, now());
    }

    /// Returns when the content of the last write to a workload had been read.
    pub(crate) fn last_write(&self, id: &WorkloadId) -> Option<Instant> {
        Some(self.0.lock().get(id)?.last_at()?.into())
    }

    /// Returns true if this is the value of the last write to a workload, so that somebody must have
    /// reverted it.
    pub(crate) fn is_again(&self, id: &WorkloadId, value: &str) -> bool {
        let all = self.0.lock();
        all.get(id).is_some_and(|writes| writes.is_again(value))
    }

    /// Returns when a workload may be restarted again, and the pause after its last restart, if it was
    /// recently restarted `limit` times. A reverted restart is repeated without this pause.
    pub(crate) fn braked(
        &self,
        id: &WorkloadId,
        config_hash: &str,
        limit: usize,
    ) -> Option<(Instant, Duration)> {
        let all = self.0.lock();
        let (at, pause) = all.get(id)?.braked(config_hash, limit, now())?;
        Some((at.into(), pause))
    }

    /// Forgets writes that no longer affect anything.
    pub(crate) fn tidy(&self) {
        let now = now();
        let mut all = self.0.lock();
        all.retain(|_, writes| !writes.is_over(now));
        give_back_room(&mut all);
    }
}
