//! The settle period: a restart waits until the objects of its workload have been unchanged for a while.

use std::sync::Arc;

use tokio::time::Instant;

use crate::restart::action::Action;
use crate::restart::parts::Parts;
use crate::restart::restraint::{DueRestart, Phase, Restraint};

/// Holds a restart back until its objects have settled.
pub(crate) struct SettlePeriod {
    parts: Arc<Parts>,
}

impl SettlePeriod {
    pub(crate) fn new(parts: &Arc<Parts>) -> Self {
        Self {
            parts: parts.clone(),
        }
    }

    /// Notes that a restart is due, and returns when its objects will have settled.
    pub(crate) fn settled(&self, due: &DueRestart<'_>) -> Instant {
        let workload = due.workload;
        let period = self.parts.settings.settle_period(workload);
        let progress = &self.parts.progress;
        progress.settled(&workload.id, due.config_hash, due.snapshot.changed, period)
    }
}

impl Restraint for SettlePeriod {
    fn holds_back(&self, due: &DueRestart<'_>, _: Phase) -> Option<Action> {
        let settled = self.settled(due);
        (Instant::now() < settled).then_some(Action::RequeueAt(settled))
    }
}
