//! The recent writes to each workload: how soon it may be written to, and restarted, again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_core::brake::{Allowance, Brake, WINDOW};
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;

/// Recent writes to workloads, by this process: the end of a term is no reason to forget them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brakes(Arc<Mutex<HashMap<WorkloadId, Writes>>>);

/// The recent writes to one workload.
#[derive(Debug, Default)]
struct Writes {
    /// Every attempt.
    allowance: Allowance,
    /// Those that restarted its pods with another config hash than before.
    restarts: Brake,
    /// The last one that stood.
    last: Option<Written>,
}

#[derive(Debug)]
struct Written {
    /// The config hash or the baseline.
    value: Box<str>,
    /// When the content for it had been read.
    at: Instant,
}

impl Writes {
    fn is_again(&self, value: &str) -> bool {
        self.last.as_ref().is_some_and(|last| *last.value == *value)
    }

    /// Whether nothing of it matters any more.
    fn is_over(&self, now: Instant) -> bool {
        let last = self.last.as_ref();
        self.allowance.is_full(now.into_std())
            && self.restarts.is_released(now.into_std())
            && last.is_none_or(|last| now.duration_since(last.at) >= WINDOW)
    }
}

impl Brakes {
    /// When a workload may be written to next, where that is not now.
    pub(crate) fn next_write(&self, id: &WorkloadId, max_restarts: usize) -> Option<Instant> {
        let brakes = self.0.lock();
        let now = Instant::now().into_std();
        let next = brakes.get(id)?.allowance.not_before(now, max_restarts)?;
        Some(next.into())
    }

    /// Counts a write to a workload, which is about to be sent.
    ///
    /// # Errors
    ///
    /// The time from which it may be sent, where that is not now.
    pub(crate) fn begin_write(&self, id: &WorkloadId, max_restarts: usize) -> Result<(), Instant> {
        let mut brakes = self.0.lock();
        let writes = brakes.entry(id.clone()).or_default();
        let now = Instant::now().into_std();
        Ok(writes.allowance.attempt(now, max_restarts)?)
    }

    /// Notes that a workload was restarted with a config hash, of content that had been read at `at`.
    /// `is_changed` says that an object has changed since the restart before. If it has, and there is no
    /// limit to restarts, then it is nobody's but the users' doing.
    pub(crate) fn restarted(
        &self,
        id: &WorkloadId,
        config_hash: &str,
        at: Instant,
        is_changed: bool,
        max_restarts: usize,
    ) {
        let mut brakes = self.0.lock();
        let writes = brakes.entry(id.clone()).or_default();
        if max_restarts == 0 && is_changed {
            writes.allowance.give_back();
        }
        if max_restarts > 0 && !writes.is_again(config_hash) {
            let now = Instant::now().into_std();
            writes.restarts.restarted(now, max_restarts);
        }
        let value = config_hash.into();
        writes.last = Some(Written { value, at });
    }

    /// Notes that a baseline was written for a workload.
    pub(crate) fn baseline_written(&self, id: &WorkloadId, baseline: &str) {
        let mut brakes = self.0.lock();
        let (value, at) = (baseline.into(), Instant::now());
        brakes.entry(id.clone()).or_default().last = Some(Written { value, at });
    }

    /// When the content for the last restart of a workload had been read.
    pub(crate) fn last_write(&self, id: &WorkloadId) -> Option<Instant> {
        Some(self.0.lock().get(id)?.last.as_ref()?.at)
    }

    /// Whether this is what was last written to a workload: somebody has taken it back.
    pub(crate) fn is_again(&self, id: &WorkloadId, value: &str) -> bool {
        let brakes = self.0.lock();
        brakes.get(id).is_some_and(|writes| writes.is_again(value))
    }

    /// Where a workload was restarted `limit` times of late: when it may be again, and how long that is
    /// after the last time. A restart that somebody has taken back is made again without that.
    pub(crate) fn braked(
        &self,
        id: &WorkloadId,
        config_hash: &str,
        limit: usize,
    ) -> Option<(Instant, Duration)> {
        let brakes = self.0.lock();
        let writes = brakes.get(id).filter(|it| !it.is_again(config_hash))?;
        let now = Instant::now().into_std();
        let at = writes.restarts.not_before(now, limit)?;
        Some((at.into(), writes.restarts.pause()))
    }

    /// Forgets writes that matter no more.
    pub(crate) fn tidy(&self) {
        let now = Instant::now();
        self.0.lock().retain(|_, writes| !writes.is_over(now));
    }
}
