//! The settings of the loop.

use std::time::Duration;

use jiff::Timestamp;
use pod_reloader_core::decision::FirstStamp;
use pod_reloader_core::limit::Limits;
use pod_reloader_core::workload::Workload;

/// The settings of the loop.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The time for which the objects of a workload must be unchanged before it is restarted.
    pub(crate) settle_period: Duration,
    /// The number of restarts of one workload in [`pod_reloader_core::brake::WINDOW`]; 0 for no limit.
    pub(crate) max_restarts: usize,
    /// The treatment of a workload that has just opted in.
    pub(crate) first_stamp: FirstStamp,
    /// The time for which a restart waits after the last sign of a release that is under way.
    pub(crate) release_wait: Duration,
    /// True if the loop only reports what it would restart.
    pub(crate) observe: bool,
    /// True if a CronJob is run at once when its config changes.
    pub(crate) run_cron_jobs: bool,
    /// The time for which a pod of a StatefulSet is in the way of a corrected configuration before it is deleted; 0
    /// for never.
    pub(crate) unstick_after: Duration,
    /// The memory that the workloads of one namespace may take, in bytes. Its releases may take a part of that in
    /// addition.
    pub(crate) namespace_memory: usize,
    /// The maximum numbers of rollouts that are under way at once.
    pub(crate) limits: Limits,
    /// The clock by which restart windows open.
    pub(crate) clock: fn() -> Timestamp,
}

impl Settings {
    /// Returns the time for which the objects of this workload must be unchanged before it is restarted.
    pub(crate) fn settle_period(&self, workload: &Workload) -> Duration {
        workload.rare().settle_period.unwrap_or(self.settle_period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Settings {
        /// Returns settings that switch on nothing.
        pub(crate) fn plain() -> Self {
            Self {
                settle_period: Duration::from_secs(5),
                max_restarts: 5,
                first_stamp: FirstStamp::Rollout,
                release_wait: Duration::ZERO,
                observe: false,
                run_cron_jobs: false,
                unstick_after: Duration::ZERO,
                namespace_memory: usize::MAX,
                limits: Limits::default(),
                clock: Timestamp::now,
            }
        }
    }
}
