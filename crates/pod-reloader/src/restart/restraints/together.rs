//! Objects that change together: a restart waits until all of them have changed.

use std::sync::Arc;

use pod_reloader_core::decision::Decision;
use pod_reloader_core::together::Verdict;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use super::{DueRestart, Parts, Phase, Restraint};
use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::digests::Snapshot;
use crate::restart::progress::Progress;
use crate::restart::stages::Stages;
use crate::runtime::worker::Worker;

/// Holds a restart back while some of the objects have yet to change.
pub(crate) struct TogetherWait {
    progress: Arc<Progress>,
    stages: Arc<Stages>,
    worker: Arc<Worker<WorkloadId>>,
}

impl TogetherWait {
    pub(super) fn new(parts: &Parts) -> Self {
        Self {
            progress: parts.progress.clone(),
            stages: parts.stages.clone(),
            worker: parts.worker.clone(),
        }
    }

    /// Notes which objects of a workload have changed, of those that change together.
    pub(crate) fn look(&self, workload: &Workload, snapshot: &Snapshot, decision: &Decision) {
        let (id, memories) = (&workload.id, &self.progress.memories);
        let has_looked = || memories.with(id, |memory| !memory.rounds.is_empty());
        let is_due = match decision {
            Decision::Set { cause, .. } => cause.is_of_content(),
            Decision::Unchanged => false,
            // What appears later is a change that was seen.
            Decision::MissingConfig(_) if !has_looked() => false,
            Decision::MissingConfig(_) | Decision::Baseline(_) => return,
        };
        let objects = &snapshot.objects;
        memories.with(id, |memory| memory.rounds.look(workload, objects, is_due));
    }
}

impl Restraint for TogetherWait {
    fn holds_back(&self, due: &DueRestart<'_>, _: Phase) -> Option<Action> {
        let DueRestart {
            workload, cause, ..
        } = *due;
        let together = workload.together.as_deref()?;
        if !cause.is_of_content() {
            return None;
        }
        let id = &workload.id;
        let memories = &self.progress.memories;
        match memories.with(id, |memory| memory.rounds.verdict(together)) {
            Verdict::Go => None,
            Verdict::Wait(missing, until) => {
                let notice = Notice::AwaitsTogether(missing, together.timeout);
                self.progress.report(workload, notice);
                // The wait ends by itself, so others of its stages wait for it.
                self.worker.push_all(self.stages.stops_waiting(id));
                Some(Action::RequeueAt(Instant::from_std(until)))
            }
            // Other objects may be about to change along with the last one.
            Verdict::Complete => {
                self.progress.settles_anew(id);
                Some(Action::RequeueAt(Instant::now()))
            }
            Verdict::TimedOut(missing) => {
                let notice = Notice::TogetherTimedOut(missing);
                self.progress.report(workload, notice);
                None
            }
        }
    }
}
