//! The brake and the pace: a workload that was restarted too often waits, and one that was written to a moment ago.
//!
//! Both rules are in `pod_reloader_core::brake`.

use std::sync::Arc;

use pod_reloader_core::workload::Workload;
use tokio::time::Instant;

use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::parts::Parts;
use crate::restart::restraint::{DueRestart, Phase, Restraint};
use crate::restart::stages::Stages;

/// The brake, which holds a restart back after many others.
pub(crate) struct BrakePause {
    parts: Arc<Parts>,
    stages: Arc<Stages>,
}

impl BrakePause {
    pub(crate) fn new(parts: &Arc<Parts>, stages: &Arc<Stages>) -> Self {
        Self {
            parts: parts.clone(),
            stages: stages.clone(),
        }
    }

    /// Returns when a workload that was restarted too often may be restarted again, and reports that.
    pub(crate) fn braked(&self, workload: &Workload, config_hash: &str) -> Option<Instant> {
        let limit = self.parts.settings.max_restarts;
        if limit == 0 {
            return None;
        }
        let recent_writes = &self.parts.progress.recent_writes;
        let (released, pause) = recent_writes.braked(&workload.id, config_hash, limit)?;
        (Instant::now() < released).then(|| {
            self.parts.progress.report(workload, Notice::Braked(pause));
            released
        })
    }
}

impl Restraint for BrakePause {
    fn holds_back(&self, due: &DueRestart<'_>, _: Phase) -> Option<Action> {
        let released = self.braked(due.workload, due.config_hash)?;
        let held_up = self.stages.is_held_up(due.workload);
        self.parts.worker.push_all(held_up);
        Some(Action::RequeueAt(released))
    }
}

/// The pace, which holds a write back after other ones.
pub(crate) struct WritePause {
    parts: Arc<Parts>,
}

impl WritePause {
    pub(crate) fn new(parts: &Arc<Parts>) -> Self {
        Self {
            parts: parts.clone(),
        }
    }

    /// Returns when a workload may be written to next, if not now. If it would get the same value once
    /// more, somebody has reverted it, and it gets an Event.
    pub(crate) fn next_write(&self, workload: &Workload, value: &str) -> Option<Instant> {
        let max_restarts = self.parts.settings.max_restarts;
        let recent_writes = &self.parts.progress.recent_writes;
        let next = recent_writes.next_write(&workload.id, max_restarts)?;
        if recent_writes.is_again(&workload.id, value) {
            self.parts.progress.report(workload, Notice::Reverted);
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
