//! Lists what may keep a workload from getting a config hash now.
//!
//! A pass asks the list twice: by what is remembered, and with fresh reads just before the write. The first restraint that
//! holds a restart back reports why, and ends the pass. A restraint is a type in the file or folder of its feature, and a
//! row in the list.

use std::sync::Arc;

use pod_reloader_core::scope::Scope;

use crate::restart::action::Action;
use crate::restart::brake::{BrakePause, WritePause};
use crate::restart::gates::ClosedGate;
use crate::restart::parts::Parts;
use crate::restart::releases::ReleaseWait;
use crate::restart::restraint::{DueRestart, Phase, Restraint};
use crate::restart::settle::SettlePeriod;
use crate::restart::slots::{SlotWait, Slots};
use crate::restart::stages::{StageWait, Stages};
use crate::restart::together::TogetherWait;

/// The restraints.
pub(crate) struct Restraints {
    pub(crate) settle: SettlePeriod,
    pub(crate) releases: Arc<ReleaseWait>,
    pub(crate) together: TogetherWait,
    pub(crate) gates: ClosedGate,
    brake: BrakePause,
    pub(crate) stages: StageWait,
    slots: Option<SlotWait>,
    pub(crate) pace: WritePause,
}

/// A restraint, and the phases in which it is asked.
struct Row<'a> {
    restraint: &'a dyn Restraint,
    phases: &'static [Phase],
}

impl Restraints {
    pub(crate) fn new(
        parts: &Arc<Parts>,
        scope: &Scope,
        stages: &Arc<Stages>,
        slots: &Option<Arc<Slots>>,
    ) -> Self {
        Self {
            settle: SettlePeriod::new(parts),
            releases: Arc::new(ReleaseWait::new(parts, scope)),
            together: TogetherWait::new(parts, stages),
            gates: ClosedGate::new(parts, stages),
            brake: BrakePause::new(parts, stages),
            stages: StageWait::new(parts, stages),
            slots: slots.as_ref().map(|slots| SlotWait::new(parts, slots)),
            pace: WritePause::new(parts),
        }
    }

    /// Returns the restraints in the order in which they are asked.
    fn in_order(&self) -> [Row<'_>; COUNT] {
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
            in_both(&**releases),
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

/// The number of restraints.
const COUNT: usize = 8;

#[cfg(test)]
mod tests {
    use super::COUNT;

    /// The page also has a paragraph about missing config, which is no restraint: the pass itself finds it.
    #[test]
    fn every_restraint_has_its_paragraph_in_the_concepts() {
        let page = include_str!("../../../../docs/concepts.md");
        let (_, section) = page.split_once("\n## When it waits\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let paragraphs = section.lines().filter(|line| line.starts_with("**"));
        assert_eq!(paragraphs.count(), COUNT + 1);
    }
}
