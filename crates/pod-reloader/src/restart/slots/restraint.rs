//! Holds restarts back until fewer rollouts are in progress.

use std::sync::Arc;

use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::parts::Parts;
use crate::restart::restraint::{DueRestart, Phase, Restraint};
use crate::restart::slots::memory::Slots;

/// Holds a restart back while there is no slot for it. In the commit phase, it takes its slot.
pub(crate) struct SlotWait {
    parts: Arc<Parts>,
    slots: Arc<Slots>,
}

impl SlotWait {
    pub(crate) fn new(parts: &Arc<Parts>, slots: &Arc<Slots>) -> Self {
        Self {
            parts: parts.clone(),
            slots: slots.clone(),
        }
    }
}

impl Restraint for SlotWait {
    fn holds_back(&self, due: &DueRestart<'_>, phase: Phase) -> Option<Action> {
        if let Some(next) = self.parts.lists.next_look() {
            return Some(Action::RequeueAt(next));
        }
        let (full, until) = self.slots.take(due.workload, phase).err()?;
        let notice = Notice::AwaitsSlot(full);
        self.parts.progress.report(due.workload, notice);
        Some(Action::RequeueAt(until))
    }
}
