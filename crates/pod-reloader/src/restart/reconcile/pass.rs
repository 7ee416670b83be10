//! One pass over a workload: checks if there is anything to do, and if it is time, and then writes.

use std::collections::HashSet;

use pod_reloader_core::decision::{Decision, decide};
use pod_reloader_core::discovery::Requirement;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use super::Reconciler;
use crate::report::notice::Notice;
use crate::restart::digests::Known;
use crate::restart::error::RestartError;

/// The outcome of a pass over a workload.
pub(super) enum Action {
    /// Wait until something happens.
    AwaitChange,
    /// Make another pass at this time.
    RequeueAt(Instant),
}

impl Reconciler {
    /// Makes one pass over one workload. Returns when the next is due, if nothing happens earlier.
    pub(super) async fn pass(&self, id: &WorkloadId) -> Option<Instant> {
        if !self.namespaces.contain(&id.namespace) {
            self.progress.forget(id);
            return None;
        }
        let Some((workload, key_seen)) = self.workloads.get(id) else {
            return self.take_in_again(id).await;
        };
        let heard = self.workloads.take_heard(id);
        let next = self.reconcile(&workload, key_seen, heard).await;
        if !matches!(next, Ok(Action::AwaitChange)) {
            self.workloads.put_back(id, heard);
        }
        match next {
            Ok(next) => self.after(id, next),
            Err(error) => Some(self.failed(&workload, &error)),
        }
    }

    /// Makes one pass over one workload. The first half works from memory, and checks if there is anything
    /// to do. The second half asks the apiserver, decides again, and writes.
    async fn reconcile(
        &self,
        workload: &Workload,
        key_seen: Instant,
        heard: Option<Instant>,
    ) -> Result<Action, RestartError> {
        let known = self.known(workload, None).await?;
        self.progress
            .tell_rejected(workload, known.left_out.as_ref());
        let (since, cause) = match self.decide(workload, &known, key_seen).await? {
            Decision::Keep => return Ok(self.keep(workload, &known)),
            Decision::Hold(missing) => return Ok(self.hold(workload, missing)),
            Decision::Baseline(baseline) => {
                if let Some(next) = self.next_write(workload, &baseline) {
                    return Ok(Action::RequeueAt(next));
                }
                (key_seen, None)
            }
            Decision::Set { config_hash, cause } => {
                let settled = self.settled(workload, &config_hash, known.changed);
                if Instant::now() < settled {
                    return Ok(Action::RequeueAt(settled));
                }
                let released = self.braked(workload, &config_hash);
                if let Some(next) = released.or_else(|| self.next_write(workload, &config_hash)) {
                    return Ok(Action::RequeueAt(next));
                }
                (key_seen.max(settled), Some(cause))
            }
        };
        let fresh = self.known(workload, Some(since)).await?;
        // The result if the decision has changed to another kind in the meantime.
        let changed_kind = Ok(Action::RequeueAt(Instant::now()));
        match self.decide(workload, &fresh, key_seen).await? {
            Decision::Keep => Ok(self.keep(workload, &fresh)),
            Decision::Baseline(baseline) => self.set_baseline(workload, &baseline).await,
            Decision::Set { config_hash, .. } => {
                let Some(cause) = cause else {
                    return changed_kind;
                };
                let settled = self.settled(workload, &config_hash, fresh.changed);
                if Instant::now() < settled {
                    return Ok(Action::RequeueAt(settled));
                }
                self.restart(workload, &config_hash, cause, &fresh, heard)
                    .await
            }
            Decision::Hold(_) => changed_kind,
        }
    }

    async fn known(
        &self,
        workload: &Workload,
        since: Option<Instant>,
    ) -> Result<Known, RestartError> {
        Ok(self.digests.known(workload, since).await?)
    }

    async fn decide(
        &self,
        workload: &Workload,
        known: &Known,
        key_seen: Instant,
    ) -> Result<Decision, RestartError> {
        let mut keys = match self.keys.keyring() {
            Some(keys) => keys,
            None => self.keys.read_since(key_seen).await?,
        };
        if workload
            .config_hash()
            .is_some_and(|value| keys.lacks_key_of(value))
        {
            keys = self.keys.read_since(key_seen).await?;
        }
        let is_foreign = workload
            .config_hash()
            .is_some_and(|value| !keys.knows(value));
        self.progress.foreign(&workload.id, is_foreign);
        Ok(decide(
            workload,
            &known.objects,
            &keys,
            self.settings.first_stamp,
        ))
    }

    /// Returns when a workload may get `config_hash`. Its objects last changed at `changed`.
    fn settled(&self, workload: &Workload, config_hash: &str, changed: Instant) -> Instant {
        let period = workload
            .settle_period
            .unwrap_or(self.settings.settle_period);
        self.progress
            .settled(&workload.id, config_hash, changed, period)
    }

    /// Returns when a workload that was restarted too often may be restarted again, and reports that.
    fn braked(&self, workload: &Workload, config_hash: &str) -> Option<Instant> {
        let limit = self.settings.max_restarts;
        if limit == 0 {
            return None;
        }
        let (released, pause) = self
            .progress
            .brakes
            .braked(&workload.id, config_hash, limit)?;
        (Instant::now() < released).then(|| {
            self.progress.tell(workload, Notice::Braked(pause));
            released
        })
    }

    /// Returns when a workload may be written to next, if not now. If it would get the same value once
    /// more, somebody has reverted it, and it gets an Event.
    fn next_write(&self, workload: &Workload, value: &str) -> Option<Instant> {
        let max_restarts = self.settings.max_restarts;
        let next = self
            .progress
            .brakes
            .next_write(&workload.id, max_restarts)?;
        if self.progress.brakes.is_again(&workload.id, value) {
            self.progress.tell(workload, Notice::Reverted);
        }
        Some(next)
    }

    /// Leaves a workload alone that carries the right hash.
    fn keep(&self, workload: &Workload, known: &Known) -> Action {
        let id = &workload.id;
        if self.progress.pending_since(id).is_some() {
            self.metrics.saved();
        }
        self.tracked_by_key(workload, known, true);
        // Somebody who reverted the hash before may do so again in a moment.
        if self.progress.disputed_until(id).is_none() {
            self.progress.at_rest(id);
        }
        self.progress.not_pending(id);
        Action::AwaitChange
    }

    /// Leaves a workload alone whose pods cannot start. It gets an Event after the settle period, because
    /// the config and the workload of one release may be that far apart.
    fn hold(&self, workload: &Workload, missing: Vec<Requirement>) -> Action {
        let since = self.progress.missing_since(&workload.id);
        let told_from = since + self.settings.settle_period;
        if Instant::now() < told_from {
            return Action::RequeueAt(told_from);
        }
        self.progress.tell(workload, Notice::Waiting(missing));
        Action::AwaitChange
    }

    /// Returns the tracked objects that were seen to change, and when.
    pub(super) fn tracked_changes(
        &self,
        workload: &Workload,
        known: &Known,
    ) -> Vec<(Reference, Instant)> {
        let unchanged = self.tracked_by_key(workload, known, false);
        let changes = known.changes.iter().cloned();
        let is_tracked = |(reference, _): &(Reference, Instant)| !unchanged.contains(reference);
        changes.filter(is_tracked).collect()
    }

    /// Returns the objects of which only single keys are tracked, if these keys are unchanged since the
    /// config hash was last right. `is_right` says that the hash is right now.
    fn tracked_by_key(
        &self,
        workload: &Workload,
        known: &Known,
        is_right: bool,
    ) -> HashSet<Reference> {
        let fingerprints = workload.references.fingerprints(&known.objects);
        let fingerprints = fingerprints.map(|(reference, print)| (reference.clone(), print));
        self.progress.entries(&workload.id, fingerprints, is_right)
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
