//! Restarts workloads in stages: who waits for whom, and what their users are told.

use std::collections::HashMap;

use pod_reloader_core::decision::{Cause, Decision};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::stages::Why;
use pod_reloader_core::staging::Staging;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use super::Reconciler;
use crate::report::notice::Notice;
use crate::restart::digests::Snapshot;
use crate::restart::stages::{Changed, Look, Wait};

impl Reconciler {
    /// Notes what a pass over a workload has decided, for those that wait for it.
    pub(super) fn looked(&self, workload: &Workload, snapshot: &Snapshot, decision: &Decision) {
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
        self.look(workload, look, Some(undone.collect()));
    }

    /// Notes that a workload may not go for a while, so nobody waits for it.
    pub(super) fn is_held_up(&self, workload: &Workload) {
        self.look(workload, Look::Out, None);
    }

    fn look(&self, workload: &Workload, look: Look, undone: Option<Vec<Reference>>) {
        if workload.staged().is_some() {
            self.worker
                .push_all(self.stages.looked(&workload.id, look, undone));
        }
    }

    /// Notes that a pass over a workload has failed. `is_refused` says that nothing was written.
    pub(super) fn looked_in_vain(&self, workload: &Workload, is_refused: bool) {
        if is_refused {
            self.worker.push_all(self.slots.free(&workload.id));
        }
        if workload.staged().is_some() {
            self.worker
                .push_all(self.stages.looked_in_vain(&workload.id, is_refused));
        }
    }

    /// Takes in a workload as it is now, for those that wait for it.
    pub(super) fn saw_staged(&self, id: &WorkloadId) {
        if let Some((workload, _)) = self.workloads.get(id) {
            self.worker.push_all(self.stages.saw(&workload));
            self.worker.push_all(self.slots.saw(&workload));
        }
    }

    /// Takes in that a workload is gone, for those that wait for it.
    pub(super) fn staged_gone(&self, id: &WorkloadId) {
        self.worker.push_all(self.stages.forget(id));
        self.worker.push_all(self.slots.free(id));
    }

    /// Returns when to look again at a workload that waits until fewer rollouts are under way, and reports
    /// that. If it does not wait and `goes` is true, it counts as one of them from now on.
    pub(super) fn limited(&self, workload: &Workload, goes: bool) -> Option<Instant> {
        if !self.slots.are_limited() || self.settings.observe {
            return None;
        }
        if let Some(next) = self.lists.next_look() {
            return Some(next);
        }
        let (full, until) = self.slots.take(workload, goes).err()?;
        self.progress.report(workload, Notice::AwaitsSlot(full));
        Some(until)
    }

    /// Returns when to look again at a workload that is due, if it waits for others of its stages, and
    /// reports that. If it does not wait and `goes` is true, others wait for it from now on.
    pub(super) fn staged(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
        cause: Cause,
        goes: bool,
    ) -> Option<Instant> {
        let staging = workload.staged()?;
        if !cause.is_of_content() || self.settings.observe {
            return None;
        }
        if let Some(next) = self.lists.next_look() {
            return Some(next);
        }
        let changed = self.changed(workload, staging, snapshot);
        let consumers = |object: &Reference| {
            let consumers = self.workloads.consumers(object, None).into_iter();
            let consumers = consumers.filter_map(|id| Some(self.workloads.get(&id)?.0));
            consumers.collect()
        };
        let stages = &self.stages;
        let (wait, before) = match stages.wait(workload, staging, &changed, consumers, goes) {
            Ok((wait, before)) => (Some(wait), before),
            Err(before) => (None, before),
        };
        // The one that is no longer waited for may have nothing more to say.
        self.worker.push_all(before);
        let Wait {
            workload: other,
            why,
            until,
        } = wait?;
        // What was said of a halt holds until the workload goes: the other one may crash again.
        if !self.progress.is_reported_halted(&workload.id) {
            match why {
                Why::IsUnseen => {}
                Why::GoesFirst | Why::IsTried => {
                    self.progress.report(workload, Notice::AwaitsStage(other));
                }
                Why::Failed => {
                    if let Some((failed, _)) = self.workloads.get(&other) {
                        self.progress.report(&failed, Notice::FailedFirst);
                    }
                    self.progress.report(workload, Notice::Halted(other));
                }
            }
        }
        Some(until)
    }

    /// Returns the stage in which a workload goes because of these changes, if its restart is staged.
    pub(super) fn stage_for(
        &self,
        workload: &Workload,
        cause: Cause,
        changed: &[Reference],
    ) -> Option<i32> {
        let staging = workload.staged().filter(|_| cause.is_of_content())?;
        let is_staged = |it: &Reference| staging.staged.includes(it.kind);
        // Nobody knows what has changed before our time.
        (changed.is_empty() || changed.iter().any(is_staged)).then_some(staging.stage)
    }

    /// Returns true if others wait because a workload has failed with the present content.
    pub(super) fn fails_first(&self, id: &WorkloadId) -> bool {
        self.progress.is_reported_failed_first(id) && self.stages.is_waited_for(id)
    }

    /// Returns the objects whose changes a workload lacks and whose changes are staged. If some of the changes
    /// were not seen, these are all objects of the workload.
    fn changed(&self, workload: &Workload, staging: &Staging, snapshot: &Snapshot) -> Vec<Changed> {
        let id = &workload.id;
        let right_at = self.stages.right_at(id);
        let mut known: HashMap<Reference, Instant> = self
            .memories
            .tracked_changes(workload, snapshot)
            .into_iter()
            .collect();
        known.retain(|_, at| right_at.is_none_or(|right_at| *at >= right_at));
        let are_all_known = right_at.is_some() && !known.is_empty();
        let (due_since, hash_changed) = self.progress.due_since(id);
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
                at: at.map_or(due_since, |at| at.min(hash_changed)),
                is_known: at.is_some(),
            }
        });
        changed.collect()
    }
}
