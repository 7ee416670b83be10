//! Lets restarts wait until all objects have changed that change together.

use pod_reloader_core::decision::{Cause, Decision};
use pod_reloader_core::together::Verdict;
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;

use super::Reconciler;
use crate::report::notice::Notice;
use crate::restart::digests::Snapshot;

impl Reconciler {
    /// Notes which objects of a workload have changed, of those that change together.
    pub(super) fn look_together(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
        decision: &Decision,
    ) {
        let id = &workload.id;
        let has_looked = || self.memories.with(id, |memory| !memory.rounds.is_empty());
        let is_due = match decision {
            Decision::Set { cause, .. } => cause.is_of_content(),
            Decision::Unchanged => false,
            // What appears later is a change that was seen.
            Decision::MissingConfig(_) if !has_looked() => false,
            Decision::MissingConfig(_) | Decision::Baseline(_) => return,
        };
        let objects = &snapshot.objects;
        self.memories
            .with(id, |memory| memory.rounds.look(workload, objects, is_due));
    }

    /// Returns when to look again at a workload some of whose objects have yet to change, and reports that.
    pub(super) fn awaits_together(&self, workload: &Workload, cause: Cause) -> Option<Instant> {
        let together = workload.together.as_deref()?;
        if !cause.is_of_content() {
            return None;
        }
        let id = &workload.id;
        let verdict = self
            .memories
            .with(id, |memory| memory.rounds.verdict(together));
        match verdict {
            Verdict::Go => None,
            Verdict::Wait(missing, until) => {
                let notice = Notice::AwaitsTogether(missing, together.timeout);
                self.progress.report(workload, notice);
                // The wait ends by itself, so others of its stages wait for it.
                self.worker.push_all(self.stages.stops_waiting(id));
                Some(Instant::from_std(until))
            }
            // Other objects may be about to change along with the last one.
            Verdict::Complete => {
                self.progress.settles_anew(id);
                Some(Instant::now())
            }
            Verdict::TimedOut(missing) => {
                let notice = Notice::TogetherTimedOut(missing);
                self.progress.report(workload, notice);
                None
            }
        }
    }
}
