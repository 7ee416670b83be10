//! Lists what may keep a workload from getting a config hash now.
//!
//! A pass asks the list twice: by what is remembered, and with fresh reads just before the write. The first restraint that
//! holds a restart back reports why, and ends the pass. A restraint is a file in this folder, and a row in the list.

mod brake;
mod gates;
mod pace;
mod releases;
mod settle;
mod slots;
mod stages;
mod together;

use std::sync::Arc;

use pod_reloader_core::decision::Cause;
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use self::brake::BrakePause;
use self::gates::ClosedGate;
use self::pace::WritePause;
pub(crate) use self::releases::ReleaseWait;
use self::settle::SettlePeriod;
use self::slots::SlotWait;
use self::stages::StageWait;
pub(crate) use self::stages::stage_for;
use self::together::TogetherWait;
use crate::metrics::Metrics;
use crate::restart::action::Action;
use crate::restart::digests::Snapshot;
use crate::restart::lists::ListsDue;
use crate::restart::phase::Phase;
use crate::restart::progress::Progress;
use crate::restart::releases::Releases;
use crate::restart::settings::Settings;
use crate::restart::slots::Slots;
use crate::restart::stages::Stages;
use crate::restart::workloads::Workloads;
use crate::runtime::worker::Worker;

/// The releases of a tool in one namespace may take this part of the memory of its workloads, in addition.
const RELEASES_PART: usize = 8;

/// Something that may keep a workload from getting a config hash now.
pub(crate) trait Restraint {
    /// Returns what to do with a restart that is due and has to wait, and reports the reason. `None` if it need not wait.
    fn holds_back(&self, due: &DueRestart<'_>, phase: Phase) -> Option<Action>;
}

/// A restart that is due.
#[derive(Clone, Copy)]
pub(crate) struct DueRestart<'a> {
    pub(crate) workload: &'a Workload,
    /// The config hash that the workload is to get.
    pub(crate) config_hash: &'a str,
    pub(crate) cause: Cause,
    /// The time since when it has carried its current hash.
    pub(crate) hash_since: Instant,
    /// Its objects.
    pub(crate) snapshot: &'a Snapshot,
}

impl<'a> DueRestart<'a> {
    pub(crate) fn new(
        workload: &'a Workload,
        config_hash: &'a str,
        cause: Cause,
        hash_since: Instant,
        snapshot: &'a Snapshot,
    ) -> Self {
        Self {
            workload,
            config_hash,
            cause,
            hash_since,
            snapshot,
        }
    }
}

/// The restraints.
pub(crate) struct Restraints {
    pub(crate) settle: SettlePeriod,
    pub(crate) releases: ReleaseWait,
    pub(crate) together: TogetherWait,
    pub(crate) gates: ClosedGate,
    pub(crate) brake: BrakePause,
    pub(crate) stages: StageWait,
    slots: SlotWait,
    pub(crate) pace: WritePause,
}

/// The parts of the state of the loop that restraints and other features of a pass are made of.
pub(crate) struct Parts {
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Metrics,
    pub(crate) workloads: Arc<Workloads>,
    pub(crate) lists: Arc<ListsDue>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) releases: Arc<Releases>,
    pub(crate) stages: Arc<Stages>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) worker: Arc<Worker<WorkloadId>>,
}

impl Parts {
    /// Returns the state at the beginning of a term.
    pub(crate) fn new(
        settings: Settings,
        scope: &Scope,
        progress: Progress,
        metrics: Metrics,
    ) -> Self {
        let releases = Releases::new(
            settings.release_wait,
            scope.releases(),
            settings.namespace_memory / RELEASES_PART,
        );
        Self {
            metrics,
            workloads: Arc::new(Workloads::new(settings.namespace_memory)),
            lists: Arc::new(ListsDue::of(&scope.watched())),
            progress: Arc::new(progress),
            releases: Arc::new(releases),
            stages: Arc::default(),
            slots: Arc::new(Slots::new(settings.limits)),
            worker: Arc::default(),
            settings: Arc::new(settings),
        }
    }
}

/// A restraint, and the phases in which it is asked.
struct Row<'a> {
    restraint: &'a dyn Restraint,
    phases: &'static [Phase],
}

impl Restraints {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self {
            settle: SettlePeriod::new(parts),
            releases: ReleaseWait::new(parts),
            together: TogetherWait::new(parts),
            gates: ClosedGate::new(parts),
            brake: BrakePause::new(parts),
            stages: StageWait::new(parts),
            slots: SlotWait::new(parts),
            pace: WritePause::new(parts),
        }
    }

    /// Returns the restraints in the order in which they are asked.
    fn in_order(&self) -> [Row<'_>; 8] {
        // Without `..`, so that a restraint that is added is not left out here.
        let Self {
            settle,
            releases,
            together,
            gates,
            brake,
            stages,
            slots,
            pace,
        } = self;
        [
            // It notes that the restart is due, and since when. The others rely on that.
            in_both(settle),
            // A release that goes on may change more objects, so nobody is asked yet to approve their content.
            in_both(releases),
            // Nor is anybody asked to approve content of which a part is missing.
            in_both(together),
            // What users hold is reported as held, even if it was restarted too often, or if others would go first.
            in_both(gates),
            // Nobody waits for a workload with its brake on, so it does not get as far as the stages. Nothing is written to
            // the workload between the two phases, so the brake is as it was.
            in_preview(brake),
            // A workload that waits for others must not have a place in the line for a slot.
            in_both(stages),
            // The last one that depends on other workloads: from here on, the workload keeps its place until the pass ends.
            in_both(slots),
            // A workload is reported as reverted only if it could go otherwise. The write itself asks for its pace again.
            in_preview(pace),
        ]
    }

    /// Returns what to do with a restart that is due, if something holds it back.
    pub(crate) fn hold_back(&self, due: &DueRestart<'_>, phase: Phase) -> Option<Action> {
        let rows = self.in_order().into_iter();
        let mut asked = rows.filter(|row| row.phases.contains(&phase));
        asked.find_map(|row| row.restraint.holds_back(due, phase))
    }
}

fn in_both(restraint: &dyn Restraint) -> Row<'_> {
    Row {
        restraint,
        phases: &[Phase::Preview, Phase::Commit],
    }
}

fn in_preview(restraint: &dyn Restraint) -> Row<'_> {
    Row {
        restraint,
        phases: &[Phase::Preview],
    }
}
