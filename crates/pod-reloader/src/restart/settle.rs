//! The settle period: a restart waits until the objects of its workload have been unchanged for a while.

use std::sync::Arc;

use tokio::time::Instant;

use crate::restart::action::Action;
use crate::restart::parts::Parts;
use crate::restart::progress::Progress;
use crate::restart::restraint::{DueRestart, Phase, Restraint};
use crate::restart::settings::Settings;

/// Holds a restart back until its objects have settled.
pub(crate) struct SettlePeriod {
    settings: Arc<Settings>,
    progress: Arc<Progress>,
}

impl SettlePeriod {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            settings: parts.settings.clone(),
            progress: parts.progress.clone(),
        }
    }

    /// Notes that a restart is due, and returns when its objects will have settled.
    pub(crate) fn settled(&self, due: &DueRestart<'_>) -> Instant {
        let workload = due.workload;
        let period = self.settings.settle_period(workload);
        self.progress
            .settled(&workload.id, due.config_hash, due.snapshot.changed, period)
    }
}

impl Restraint for SettlePeriod {
    fn holds_back(&self, due: &DueRestart<'_>, _: Phase) -> Option<Action> {
        let settled = self.settled(due);
        (Instant::now() < settled).then_some(Action::RequeueAt(settled))
    }
}
