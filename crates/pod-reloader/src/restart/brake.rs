//! The brake and the pace: a workload that was restarted too often waits, and one that was written to a moment ago.
//!
//! Both rules are in `pod_reloader_core::brake`.

use std::sync::Arc;

use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::parts::Parts;
use crate::restart::progress::Progress;
use crate::restart::restraint::{DueRestart, Phase, Restraint};
use crate::restart::settings::Settings;
use crate::restart::stages::Stages;
use crate::runtime::worker::Worker;

/// The brake, which holds a restart back after many others.
pub(crate) struct BrakePause {
    settings: Arc<Settings>,
    progress: Arc<Progress>,
    stages: Arc<Stages>,
    worker: Arc<Worker<WorkloadId>>,
}

impl BrakePause {
    pub(crate) fn new(parts: &Parts, stages: &Arc<Stages>) -> Self {
        Self {
            settings: parts.settings.clone(),
            progress: parts.progress.clone(),
            stages: stages.clone(),
            worker: parts.worker.clone(),
        }
    }

    /// Returns when a workload that was restarted too often may be restarted again, and reports that.
    pub(crate) fn braked(&self, workload: &Workload, config_hash: &str) -> Option<Instant> {
        let limit = self.settings.max_restarts;
        if limit == 0 {
            return None;
        }
        let (released, pause) =
            self.progress
                .recent_writes
                .braked(&workload.id, config_hash, limit)?;
        (Instant::now() < released).then(|| {
            self.progress.report(workload, Notice::Braked(pause));
            released
        })
    }
}

impl Restraint for BrakePause {
    fn holds_back(&self, due: &DueRestart<'_>, _: Phase) -> Option<Action> {
        let released = self.braked(due.workload, due.config_hash)?;
        self.worker.push_all(self.stages.is_held_up(due.workload));
        Some(Action::RequeueAt(released))
    }
}

/// The pace, which holds a write back after other ones.
pub(crate) struct WritePause {
    settings: Arc<Settings>,
    progress: Arc<Progress>,
}

impl WritePause {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            settings: parts.settings.clone(),
            progress: parts.progress.clone(),
        }
    }

    /// Returns when a workload may be written to next, if not now. If it would get the same value once
    /// more, somebody has reverted it, and it gets an Event.
    pub(crate) fn next_write(&self, workload: &Workload, value: &str) -> Option<Instant> {
        let max_restarts = self.settings.max_restarts;
        let next = self
            .progress
            .recent_writes
            .next_write(&workload.id, max_restarts)?;
        if self.progress.recent_writes.is_again(&workload.id, value) {
            self.progress.report(workload, Notice::Reverted);
        }
        Some(next)
    }
}

impl Restraint for WritePause {
    fn holds_back(&self, due: &DueRestart<'_>, _: Phase) -> Option<Action> {
        self.next_write(due.workload, due.config_hash)
            .map(Action::RequeueAt)
    }
}
