//! Objects that change together: a restart waits until all of them have changed.
//!
//! Its rule is `pod_reloader_core::together`.

use std::sync::Arc;

use pod_reloader_core::decision::Decision;
use pod_reloader_core::digest::Objects;
use pod_reloader_core::together::{Round, Together, Verdict};
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;

use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::clock::now;
use crate::restart::digests::Snapshot;
use crate::restart::parts::Parts;
use crate::restart::restraint::{DueRestart, Phase, Restraint};
use crate::restart::stages::Stages;

/// Holds a restart back while some of the objects have yet to change.
pub(crate) struct TogetherWait {
    parts: Arc<Parts>,
    stages: Arc<Stages>,
}

impl TogetherWait {
    pub(crate) fn new(parts: &Arc<Parts>, stages: &Arc<Stages>) -> Self {
        Self {
            parts: parts.clone(),
            stages: stages.clone(),
        }
    }

    /// Notes which objects of a workload have changed, of those that change together.
    pub(crate) fn look(&self, workload: &Workload, snapshot: &Snapshot, decision: &Decision) {
        let (id, memories) = (&*workload.id, &self.parts.progress.memories);
        let has_looked = || memories.with(id, |memory| memory.round.is_some());
        let is_due = match decision {
            Decision::Set { cause, .. } => cause.is_of_content(),
            Decision::Unchanged => false,
            // What appears later is a change that was seen.
            Decision::MissingConfig(_) if !has_looked() => false,
            Decision::MissingConfig(_) | Decision::Baseline(_) => return,
        };
        let objects = &snapshot.objects;
        memories.with(id, |memory| {
            look(&mut memory.round, workload, objects, is_due)
        });
    }
}

impl Restraint for TogetherWait {
    fn holds_back(&self, due: &DueRestart<'_>, _: Phase) -> Option<Action> {
        let workload = due.workload;
        let together = workload.rare().together.as_deref()?;
        if !due.cause.is_of_content() {
            return None;
        }
        let id = &*workload.id;
        let memories = &self.parts.progress.memories;
        match memories.with(id, |memory| verdict(memory.round.as_deref_mut(), together)) {
            Verdict::Go => None,
            Verdict::Wait(missing, until) => {
                let notice = Notice::AwaitsTogether(missing, together.timeout);
                self.parts.progress.report(workload, notice);
                // The wait ends by itself, so others of its stages wait for it.
                self.parts.worker.push_all(self.stages.stops_waiting(id));
                Some(Action::RequeueAt(Instant::from_std(until)))
            }
            // Other objects may be about to change along with the last one.
            Verdict::Complete => {
                self.parts.progress.settles_anew(id);
                Some(Action::RequeueAt(Instant::now()))
            }
            Verdict::TimedOut(missing) => {
                let notice = Notice::TogetherTimedOut(missing);
                self.parts.progress.report(workload, notice);
                None
            }
        }
    }
}

/// Takes in the objects of a workload as they are now. `is_due` says that its pods have other content.
fn look(round: &mut Option<Box<Round>>, workload: &Workload, objects: &Objects, is_due: bool) {
    let Some(together) = workload.rare().together.as_deref() else {
        *round = None;
        return;
    };
    let contents = workload.references.contents(objects);
    let round = round.get_or_insert_default();
    round.look(together, &contents, is_due, now());
}

/// Returns whether a restart that is due has to wait for objects.
fn verdict(round: Option<&mut Round>, together: &Together) -> Verdict {
    round.map_or(Verdict::Go, |round| round.verdict(together, now()))
}
