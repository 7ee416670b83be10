//! CronJobs: runs them out of schedule when their config has changed, if the settings ask for it.
//!
//! Its rule is `pod_reloader_core::cron_job`.

mod jobs;

use std::sync::Arc;

use pod_reloader_core::cron_job::{DueRun, NoRun, Run};
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;
use tracing::info;

use crate::live::error::in_own_words;
use crate::report::notice::Notice;
use crate::restart::clock::now;
use crate::restart::parts::Parts;

/// Runs CronJobs.
pub(crate) struct CronJobs {
    parts: Arc<Parts>,
}

impl CronJobs {
    pub(crate) fn new(parts: &Arc<Parts>) -> Self {
        Self {
            parts: parts.clone(),
        }
    }

    /// Notes that a workload has other content from now on: if it is a CronJob, a run is due.
    pub(crate) fn run_is_due(&self, id: &WorkloadId) {
        if id.kind.is("batch", "CronJob") {
            let since = (self.parts.settings.clock)();
            let run = DueRun::new(since, now());
            let memories = &self.parts.progress.memories;
            memories.with(id, |memory| memory.run = Some(Box::new(run)));
        }
    }

    /// Runs a CronJob out of schedule, if a run of it is due and need not wait. Returns when to look again. Creates a Job
    /// once, and reports a failure.
    pub(crate) async fn run(&self, workload: &Workload) -> Option<Instant> {
        let id = &*workload.id;
        let memories = &self.parts.progress.memories;
        let due = memories.with(id, |memory| memory.run.as_deref().copied())?;
        // A workload that is gone by now has no run.
        let waits = || {
            let next = memories.with(id, |memory| Some(memory.run.as_mut()?.waits(now())));
            next.map(Instant::from_std)
        };
        let next_look = Instant::from_std(due.next_look);
        if Instant::now() < next_look {
            return Some(next_look);
        }
        let (client, budget) = (&self.parts.client, &self.parts.budget);
        let begun = match jobs::read(client, budget, id).await {
            Ok(cron_job) => match cron_job.run(due.since, (self.parts.settings.clock)()) {
                Run::Wait => return waits(),
                Run::GiveUp(why) => {
                    self.not_run(workload, why);
                    Ok(None)
                }
                Run::Begin(replaced) => jobs::begin(client, budget, id, &cron_job, replaced).await,
            },
            Err(error) if !error.is_refusal() => return waits(),
            Err(error) => Err(error),
        };
        memories.with(id, |memory| memory.run = None);
        match begun {
            Ok(Some(job)) => {
                info!(namespace = %id.namespace, name = &*id.name, job, "ran a CronJob")
            }
            Ok(None) => {}
            Err(error) => {
                let notice = Notice::NotRun(in_own_words(&error).to_owned());
                self.parts.progress.report(workload, notice);
            }
        }
        None
    }

    /// Reports that a CronJob is not run out of schedule.
    fn not_run(&self, workload: &Workload, why: NoRun) {
        let why = match why {
            NoRun::TooLate => {
                let error = "it could not begin within startingDeadlineSeconds";
                let notice = Notice::NotRun(error.to_owned());
                self.parts.progress.report(workload, notice);
                return;
            }
            NoRun::Suspended => "it is suspended",
            NoRun::Scheduled => "its schedule has run it since",
            NoRun::Deleted => "it is being deleted",
        };
        let id = &*workload.id;
        info!(namespace = %id.namespace, name = &*id.name, why, "a CronJob was not run");
    }
}
