//! One pass over a workload: checks if there is anything to do, and if it is time, and then writes.

use std::time::Duration;

use pod_reloader_core::decision::{Decision, decide};
use pod_reloader_core::discovery::Unmet;
use pod_reloader_core::rotation::with_rotation;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use super::Reconciler;
use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::digests::Snapshot;
use crate::restart::error::RestartError;
use crate::restart::left_out::take_in_again;
use crate::restart::restraint::{DueRestart, Phase};
use crate::runtime::worker::Handler;

/// The time after which certificates are read again that could not be read.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// What a pass reads before its first decision, for the write as well.
#[derive(Clone, Copy)]
enum AtOnce {
    /// Nothing: the objects are read for the write.
    Nothing,
    /// The objects with news: the workload carries the hash of what was read of the others.
    News,
    /// All objects, by reads that began then or later.
    AllSince(Instant),
}

impl AtOnce {
    /// Returns the time from which on all reads must have begun.
    fn since(self) -> Option<Instant> {
        match self {
            Self::Nothing | Self::News => None,
            Self::AllSince(since) => Some(since),
        }
    }
}

impl Handler for Reconciler {
    type Item = WorkloadId;

    /// Makes one pass over one workload. Returns when the next is due, if nothing happens earlier.
    async fn handle(&self, id: &WorkloadId) -> Option<Instant> {
        if let Some(slots) = &self.slots {
            slots.pass_begins(id);
        }
        self.progress.pass_begins(id);
        if !self.intake.selects(&id.namespace) {
            self.progress.forget(id);
            return None;
        }
        if let Some(next) = self.lost_settings.put_back(id).await {
            return Some(next);
        }
        let Some((workload, hash_since)) = self.workloads.get(id) else {
            return take_in_again(&self.intake, &self.kinds, id).await;
        };
        let first_news = self.workloads.take_first_news(id);
        let next = self.reconcile(&workload, hash_since, first_news).await;
        if !matches!(next, Ok(Action::AwaitChange)) {
            self.workloads.put_back(id, first_news);
        }
        match next {
            Ok(next) => self.after(id, next),
            Err(error) => Some(self.failures.failed(&workload, &error)),
        }
    }

    fn handled(&self, id: &WorkloadId) {
        self.progress.pass_ended(id);
        if self.workloads.get(id).is_none() {
            self.progress.forget(id);
        }
        if let Some(slots) = &self.slots {
            slots.pass_ended(id);
        }
    }

    fn is_busy(&self, is_busy: bool) {
        self.progress.is_busy(is_busy);
    }
}

impl Reconciler {
    /// Makes one pass over one workload. The first half works from memory, and checks if there is anything
    /// to do. The second half asks the apiserver, decides again, and writes.
    async fn reconcile(
        &self,
        workload: &Workload,
        hash_since: Instant,
        first_news: Option<Instant>,
    ) -> Result<Action, RestartError> {
        let at_once = self.to_read_at_once(workload, hash_since);
        let Some(snapshot) = self.snapshot(workload, at_once.since(), first_news).await? else {
            return Ok(Action::AwaitChange);
        };
        let decision = self.first_decision(workload, &snapshot, hash_since).await?;
        let (since, cause) = match decision {
            Decision::Unchanged => return self.at_rest(workload, &snapshot).await,
            Decision::MissingConfig(missing) => return Ok(self.missing_config(workload, missing)),
            Decision::Baseline(baseline) => {
                let next = self.restraints.pace.next_write(workload, &baseline);
                if let Some(next) = next {
                    return Ok(Action::RequeueAt(next));
                }
                (Some(hash_since), None)
            }
            Decision::Set { config_hash, cause } => {
                let due = DueRestart::new(workload, &config_hash, cause, hash_since, &snapshot);
                // A hold or a closed window that comes later does not stop pods that reload.
                if let Some(reloads) = &self.http_reloads
                    && let Some(action) = reloads.in_progress(&due).await?
                {
                    return Ok(action);
                }
                if let Some(action) = self.restraints.hold_back(&due, Phase::Preview) {
                    return Ok(action);
                }
                (self.reads_since(&due, at_once), Some(cause))
            }
        };
        let Some(fresh) = self.snapshot(workload, since, first_news).await? else {
            return Ok(Action::AwaitChange);
        };
        if self.workloads.get(&workload.id).is_none() {
            return Ok(Action::AwaitChange);
        }
        // The result if the decision has changed to another kind in the meantime.
        let changed_kind = Ok(Action::RequeueAt(Instant::now()));
        let decision = self.last_decision(workload, &fresh, hash_since).await?;
        match (decision, cause) {
            (Decision::Unchanged, _) => {
                let next = self.unchanged(workload, &fresh).await;
                Ok(next.at_latest(fresh.rotation_due))
            }
            (Decision::Baseline(baseline), _) => self.set_baseline(workload, &baseline).await,
            (Decision::Set { config_hash, .. }, Some(cause)) => {
                let due = DueRestart::new(workload, &config_hash, cause, hash_since, &fresh);
                match self.restraints.hold_back(&due, Phase::Commit) {
                    Some(action) => Ok(action),
                    None => self.reload_or_restart(&due).await,
                }
            }
            (Decision::Set { .. }, None) | (Decision::MissingConfig(_), _) => changed_kind,
        }
    }

    /// Returns what is read at once. That is something if one of the objects has probably changed, and a write does not wait
    /// until they have settled: otherwise, the others would be read for the write after the change has been.
    fn to_read_at_once(&self, workload: &Workload, hash_since: Instant) -> AtOnce {
        let is_at_once = self.settings.settle_period(workload).is_zero();
        let Some(news) = is_at_once.then(|| self.digests.news(workload)).flatten() else {
            return AtOnce::Nothing;
        };
        // With a single object, both are the same, and this is the quicker one.
        let has_others = workload.references.named().nth(1).is_some();
        match has_others && self.has_what_was_read(workload) {
            true => AtOnce::News,
            false => AtOnce::AllSince(news.max(hash_since)),
        }
    }

    /// Returns true if the workload carries the hash of what was last read of its objects. Whatever watches are late with,
    /// the hash is then of no later content, and cannot move back.
    fn has_what_was_read(&self, workload: &Workload) -> bool {
        let (keys, objects) = (self.keys.keyring(), self.digests.last_read(workload));
        let first_stamp = self.settings.first_stamp;
        keys.zip(objects).is_some_and(|(keys, objects)| {
            decide(workload, &objects, &keys, first_stamp) == Decision::Unchanged
        })
    }

    /// Returns the objects of a workload. `None` if nobody knows what its pods have.
    async fn snapshot(
        &self,
        workload: &Workload,
        since: Option<Instant>,
        first_news: Option<Instant>,
    ) -> Result<Option<Snapshot>, RestartError> {
        let mut snapshot = self.digests.snapshot(workload, since).await?;
        snapshot.first_news = first_news;
        if let Some(rotated) = &self.rotated {
            rotated.add_to(workload, &mut snapshot).await;
        }
        match &self.pins {
            Some(pins) => pins.content.without_undone(workload, snapshot).await,
            None => Ok(Some(snapshot)),
        }
    }

    /// Decides by what is remembered, and notes the decision for other workloads and for the features that wait for it.
    async fn first_decision(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
        hash_since: Instant,
    ) -> Result<Decision, RestartError> {
        self.progress
            .report_rejected(workload, snapshot.left_out.as_ref());
        let mut decision = self.decide(workload, snapshot, hash_since).await?;
        // What was there when it was last read is read again only before a write.
        if self.progress.lacks_untracked(&workload.id) {
            decision = self.unless_untracked_is_missing(workload, decision).await?;
        }
        let restraints = &self.restraints;
        restraints.stages.looked(workload, snapshot, &decision);
        restraints.together.look(workload, snapshot, &decision);
        // The pods cannot get the content now.
        if let Some(reloads) = &self.http_reloads
            && let Decision::MissingConfig(_) | Decision::Baseline(_) = decision
        {
            reloads.is_moot(&workload.id);
        }
        Ok(decision)
    }

    /// Decides by fresh reads.
    async fn last_decision(
        &self,
        workload: &Workload,
        fresh: &Snapshot,
        hash_since: Instant,
    ) -> Result<Decision, RestartError> {
        let decision = self.decide(workload, fresh, hash_since).await?;
        let decision = self.unless_untracked_is_missing(workload, decision).await?;
        self.restraints.together.look(workload, fresh, &decision);
        Ok(decision)
    }

    async fn decide(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
        hash_since: Instant,
    ) -> Result<Decision, RestartError> {
        let mut keys = match self.keys.keyring() {
            Some(keys) => keys,
            None => self.keys.read_since(hash_since).await?,
        };
        if workload
            .config_hash()
            .is_some_and(|value| keys.lacks_key_of(value))
        {
            keys = self.keys.read_since(hash_since).await?;
        }
        let is_foreign = workload
            .config_hash()
            .is_some_and(|value| !keys.knows(value));
        self.progress.foreign(&workload.id, is_foreign);
        let objects = &snapshot.objects;
        let decision = decide(workload, objects, &keys, self.settings.first_stamp);
        let rotated = &snapshot.rotated;
        Ok(with_rotation(decision, workload, objects, &keys, rotated))
    }

    /// Returns the decision, unless it is a restart and an object is missing that the pods need and the workload does not
    /// track. Such objects are read here, and nothing of them is remembered but that something was missing.
    async fn unless_untracked_is_missing(
        &self,
        workload: &Workload,
        decision: Decision,
    ) -> Result<Decision, RestartError> {
        if !matches!(decision, Decision::Set { .. }) {
            return Ok(decision);
        }
        let objects = self.digests.source().untracked_needs(workload).await?;
        let missing = workload.missing_untracked(&objects);
        let lacks_some = !missing.is_empty();
        self.progress.note_untracked(&workload.id, lacks_some);
        Ok(match lacks_some {
            true => Decision::MissingConfig(missing.into_iter().collect()),
            false => decision,
        })
    }

    /// Returns the time from which on all reads must have begun that a restart relies on which nothing holds back. `None` if
    /// any read will do of an object without news.
    fn reads_since(&self, due: &DueRestart<'_>, at_once: AtOnce) -> Option<Instant> {
        // What was read while a release was under way says nothing about its end.
        let ended = self.restraints.releases.ended(&due.workload.id);
        let settled = match (at_once, ended) {
            (AtOnce::News, None) => return None,
            // Without a settle period, nothing needs to be unchanged for a while after the news.
            (AtOnce::AllSince(since), _) => since,
            (AtOnce::News | AtOnce::Nothing, _) => self.restraints.settle.settled(due),
        };
        Some(due.hash_since.max(settled).max(ended.unwrap_or(settled)))
    }

    /// Lets pods get what they are to have: by reloading it, or else by a restart.
    async fn reload_or_restart(&self, due: &DueRestart<'_>) -> Result<Action, RestartError> {
        self.restraints.gates.report_outside_window(due);
        if let Some(reloads) = &self.http_reloads
            && let Some(action) = reloads.reload(due).await?
        {
            return Ok(action);
        }
        self.restart(due).await
    }

    /// Looks after a workload that carries the right hash, by what is remembered: nothing is about to be written.
    async fn at_rest(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
    ) -> Result<Action, RestartError> {
        let mut next = self.unchanged(workload, snapshot).await;
        if let Some(pins) = &self.pins
            && let Some(put_back) = pins.rollbacks.put_back(workload).await?
        {
            next = put_back;
        }
        self.stuck_pods.unstick(workload).await?;
        Ok(next.at_latest(snapshot.rotation_due))
    }

    /// Leaves a workload alone that carries the right hash.
    async fn unchanged(&self, workload: &Workload, snapshot: &Snapshot) -> Action {
        let id = &*workload.id;
        if let Some(reloads) = &self.http_reloads {
            reloads.has_content(workload, snapshot);
        }
        if let Some(pins) = &self.pins {
            pins.content.report_undone(workload, &snapshot.undone);
        }
        if self.progress.pending_since(id).is_some() {
            self.metrics.saved.inc();
        }
        self.progress.memories.hash_is_right(workload, snapshot);
        // Somebody who reverted the hash before may do so again in a moment.
        if self.progress.disputed_until(id).is_none() && !self.restraints.stages.fails_first(id) {
            self.progress.at_rest(id);
        }
        self.progress.not_pending(id);
        let next = match self.certificates.note(workload, snapshot).await {
            true => Action::AwaitChange,
            false => Action::RequeueAt(Instant::now() + READ_AGAIN),
        };
        next.at_latest(self.cron_jobs.run(workload).await)
    }

    /// Leaves a workload alone whose pods cannot start. It gets an Event after the settle period, because
    /// the config and the workload of one release may be that far apart.
    fn missing_config(&self, workload: &Workload, missing: Vec<Unmet>) -> Action {
        let since = self.progress.missing_since(&workload.id);
        let report_at = since + self.settings.settle_period(workload);
        if Instant::now() < report_at {
            let next = Action::RequeueAt(report_at);
            return next.at_latest(self.progress.next_look(&workload.id));
        }
        let notice = Notice::MissingConfig(missing);
        if self.progress.report(workload, notice) {
            // If one of several objects has come, the others may follow soon.
            self.progress.news([&*workload.id]);
        }
        Action::AwaitChange.at_latest(self.progress.next_look(&workload.id))
    }

    fn after(&self, id: &WorkloadId, action: Action) -> Option<Instant> {
        match action {
            Action::AwaitChange => {
                self.progress.went_well(id);
                self.progress.disputed_until(id)
            }
            Action::RequeueAt(at) => Some(at),
        }
    }
}
