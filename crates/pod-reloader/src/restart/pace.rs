//! The pace of writes: a workload that was written to a moment ago waits.
//!
//! Its rule is `Allowance` in `pod_reloader_core::brake`.

use std::sync::Arc;

use pod_reloader_core::workload::Workload;
use tokio::time::Instant;

use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::parts::Parts;
use crate::restart::progress::Progress;
use crate::restart::restraint::{DueRestart, Phase, Restraint};
use crate::restart::settings::Settings;

/// Holds a write back after other ones.
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
