//! Gates: a restart waits for what its users have put in its way.
//!
//! Its rule is `pod_reloader_core::gate`.

use std::sync::Arc;
use std::time::Duration;

use jiff::{Timestamp, Zoned};
use pod_reloader_core::decision::present_value;
use pod_reloader_core::gate::{self, Closed};
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;

use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::digests::Snapshot;
use crate::restart::parts::Parts;
use crate::restart::restraint::{DueRestart, Phase, Restraint};
use crate::restart::stages::Stages;

/// The time after which a workload looks at the clock again while its restart window is closed. Somebody may
/// set the clock, or suspend the machine.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(600);

/// Holds a restart back while a gate is closed.
pub(crate) struct ClosedGate {
    parts: Arc<Parts>,
    stages: Arc<Stages>,
}

impl ClosedGate {
    pub(crate) fn new(parts: &Arc<Parts>, stages: &Arc<Stages>) -> Self {
        Self {
            parts: parts.clone(),
            stages: stages.clone(),
        }
    }

    /// Reports that a workload whose other gates are open is about to be restarted although its restart window
    /// is closed, if it is.
    pub(crate) fn report_outside_window(&self, due: &DueRestart<'_>) {
        let (workload, snapshot) = (due.workload, due.snapshot);
        let gates = workload.rare().gates.as_deref();
        let windows = gates.and_then(|gates| gates.windows.as_ref()?.as_ref());
        let now = (self.parts.settings.clock)();
        let opens = windows.and_then(|windows| windows.next_opening(now));
        if let Some(opens) = opens
            && let Some(expires) = self.expires_before(workload, snapshot, &opens)
        {
            let notice = Notice::OutsideWindow(expires, opens);
            self.parts.progress.report(workload, notice);
        }
    }

    /// Returns when a certificate expires that the pods have loaded and that a restart replaces, if that is
    /// before their restart window opens.
    fn expires_before(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
        opens: &Zoned,
    ) -> Option<Timestamp> {
        let (id, config_hash) = (&*workload.id, present_value(workload)?);
        let objects = &snapshot.objects;
        let expires = self.parts.progress.memories.with(id, |memory| {
            let loaded = memory.certificates.as_ref()?;
            loaded.first_expiry(config_hash, objects)
        })?;
        (expires < opens.timestamp()).then_some(expires)
    }
}

impl Restraint for ClosedGate {
    fn holds_back(&self, due: &DueRestart<'_>, _: Phase) -> Option<Action> {
        let (workload, snapshot) = (due.workload, due.snapshot);
        let now = (self.parts.settings.clock)();
        let gates = workload.rare().gates.as_deref();
        let closed = gate::closed(gates, &snapshot.objects, due.config_hash, now)?;
        let action = if let Closed::Until(opens) = &closed {
            if self.expires_before(workload, snapshot, opens).is_some() {
                return None;
            }
            // It opens by itself, so others of its stages wait for it.
            let before = self.stages.stops_waiting(&workload.id);
            self.parts.worker.push_all(before);
            let wait = opens.timestamp().duration_since(now).unsigned_abs();
            Action::RequeueAt(Instant::now() + wait.min(LOOK_AT_CLOCK))
        } else {
            self.parts.worker.push_all(self.stages.is_held_up(workload));
            Action::AwaitChange
        };
        self.parts.progress.report(workload, Notice::Gated(closed));
        Some(action)
    }
}
