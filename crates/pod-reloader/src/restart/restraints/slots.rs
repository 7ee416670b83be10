//! Limits: a restart waits until fewer rollouts are under way.

use std::sync::Arc;

use super::{DueRestart, Parts, Phase, Restraint};
use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::lists::ListsDue;
use crate::restart::progress::Progress;
use crate::restart::settings::Settings;
use crate::restart::slots::Slots;

/// Holds a restart back while there is no slot for it. In the commit phase, it takes its slot.
pub(crate) struct SlotWait {
    settings: Arc<Settings>,
    lists: Arc<ListsDue>,
    slots: Arc<Slots>,
    progress: Arc<Progress>,
}

impl SlotWait {
    pub(super) fn new(parts: &Parts) -> Self {
        Self {
            settings: parts.settings.clone(),
            lists: parts.lists.clone(),
            slots: parts.slots.clone(),
            progress: parts.progress.clone(),
        }
    }
}

impl Restraint for SlotWait {
    fn holds_back(&self, due: &DueRestart<'_>, phase: Phase) -> Option<Action> {
        if !self.slots.are_limited() || self.settings.observe {
            return None;
        }
        if let Some(next) = self.lists.next_look() {
            return Some(Action::RequeueAt(next));
        }
        let (full, until) = self.slots.take(due.workload, phase).err()?;
        let notice = Notice::AwaitsSlot(full);
        self.progress.report(due.workload, notice);
        Some(Action::RequeueAt(until))
    }
}
