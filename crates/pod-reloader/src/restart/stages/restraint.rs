//! Holds restarts back for workloads that get the content before.

use std::collections::HashMap;
use std::sync::Arc;

use pod_reloader_core::decision::{Cause, Decision};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::stages::{Changed, Look, Why};
use pod_reloader_core::staging::Staging;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::digests::Snapshot;
use crate::restart::parts::Parts;
use crate::restart::restraint::{DueRestart, Phase, Restraint};
use crate::restart::stages::memory::Stages;

/// Holds a restart back while others go first or are on trial. In the commit phase, others wait for it from then on.
pub(crate) struct StageWait {
    parts: Arc<Parts>,
    stages: Arc<Stages>,
}

impl StageWait {
    pub(crate) fn new(parts: &Arc<Parts>, stages: &Arc<Stages>) -> Self {
        Self {
            parts: parts.clone(),
            stages: stages.clone(),
        }
    }

    /// Notes what a pass over a workload has decided, for those that wait for it.
    pub(crate) fn looked(&self, workload: &Workload, snapshot: &Snapshot, decision: &Decision) {
        let look = match decision {
            // Rotated pods have the right content.
            Decision::Set {
                cause: Cause::Rotated,
                ..
            } => Look::Right,
            Decision::Set { .. } => Look::Due,
            Decision::Unchanged => Look::Right,
            Decision::MissingConfig(_) | Decision::Baseline(_) => Look::Out,
        };
        let undone = snapshot.undone.iter();
        let undone =
            undone.map(|(source, _)| Reference::config_map(&workload.id.namespace, source));
        let looked = self.stages.looked(workload, look, Some(undone.collect()));
        self.parts.worker.push_all(looked);
    }

    /// Returns true if others wait because a workload has failed with the present content.
    pub(crate) fn fails_first(&self, id: &WorkloadId) -> bool {
        self.parts.progress.is_reported_failed_first(id) && self.stages.is_waited_for(id)
    }

    /// Reports that a workload waits for another one.
    fn report(&self, workload: &Workload, other: WorkloadId, why: Why) {
        // There is no other Event until the workload goes or other content is due: the other one may crash again. Status
        // queries are told how it is.
        if self.parts.progress.is_reported_halted(&workload.id) {
            let notice = match why {
                Why::IsUnseen => return,
                Why::GoesFirst | Why::IsTried => Notice::AwaitsStage(other),
                Why::Failed => Notice::Halted(other),
            };
            self.parts.progress.waits_untold(workload, notice);
            return;
        }
        match why {
            Why::IsUnseen => {}
            Why::GoesFirst | Why::IsTried => {
                let notice = Notice::AwaitsStage(other);
                self.parts.progress.report(workload, notice);
            }
            Why::Failed => {
                if let Some((failed, _)) = self.parts.workloads.get(&other) {
                    self.parts.progress.report(&failed, Notice::FailedFirst);
                }
                self.parts.progress.report(workload, Notice::Halted(other));
            }
        }
    }

    /// Returns the objects whose changes a workload lacks and whose changes are staged. If some of the changes
    /// were not seen, these are all objects of the workload.
    fn changed(&self, workload: &Workload, staging: &Staging, snapshot: &Snapshot) -> Vec<Changed> {
        let id = &*workload.id;
        let right_at = self.stages.right_at(id);
        let memories = &self.parts.progress.memories;
        let known = memories.tracked_changes(workload, snapshot).into_iter();
        let mut known: HashMap<Reference, Instant> = known.collect();
        known.retain(|_, at| right_at.is_none_or(|right_at| *at >= right_at));
        let are_all_known = right_at.is_some() && !known.is_empty();
        let (due_since, hash_changed) = self.parts.progress.due_since(id);
        let objects = snapshot.objects.keys().filter(|object| {
            staging.staged.includes(object.kind)
                && object.namespace == id.namespace
                && (!are_all_known || known.contains_key(object))
        });
        let changed = objects.map(|object| {
            let at = known.get(object).copied();
            Changed {
                object: object.clone(),
                // A later change of keys that the workload does not track makes no difference.
                at: at.map_or(due_since, |at| at.min(hash_changed)).into_std(),
                is_known: at.is_some(),
            }
        });
        changed.collect()
    }
}

impl Restraint for StageWait {
    fn holds_back(&self, due: &DueRestart<'_>, phase: Phase) -> Option<Action> {
        let workload = due.workload;
        let staging = workload.staged()?;
        if !due.cause.is_of_content() || self.parts.settings.observe {
            return None;
        }
        if let Some(next) = self.parts.lists.next_look() {
            return Some(Action::RequeueAt(next));
        }
        let changed = self.changed(workload, staging, due.snapshot);
        let consumers = |object: &Reference| {
            let consumers = self.parts.workloads.consumers(object, None).into_iter();
            let consumers = consumers.filter_map(|id| Some(self.parts.workloads.get(&id)?.0));
            consumers.collect()
        };
        let stages = &self.stages;
        let turn = stages.wait(workload, staging, &changed, consumers, phase);
        // The one that is no longer waited for may have nothing more to say.
        self.parts.worker.push_all(turn.before);
        let wait = turn.wait?;
        self.report(workload, wait.workload, wait.why);
        Some(Action::RequeueAt(wait.until.into()))
    }
}

/// Returns the stage in which a workload goes because of these changes, if its restart is staged.
pub(crate) fn stage_for(workload: &Workload, cause: Cause, changed: &[Reference]) -> Option<i32> {
    let staging = workload.staged().filter(|_| cause.is_of_content())?;
    let is_staged = |it: &Reference| staging.staged.includes(it.kind);
    // Nobody knows what has changed before our time.
    (changed.is_empty() || changed.iter().any(is_staged)).then_some(staging.stage)
}
