//! One pass over a workload: is there anything to do, is it time, and then the write.

use std::collections::HashSet;
use std::time::Duration;

use kube::Api;
use kube::api::Patch;
use pod_reloader_core::decision::{Cause, Decision, baseline_by_time, decide};
use pod_reloader_core::discovery::Requirement;
use pod_reloader_core::object::{CustomObject, Object, Served, WorkloadObject};
use pod_reloader_core::patch;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::{Restart, Workload, WorkloadId};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{Reconciler, version};
use crate::config::error::ReadError;
use crate::report::notice::Notice;
use crate::restart::cron_jobs;
use crate::restart::digests::Known;
use crate::restart::error::RestartError;
use crate::runtime::client::{DEADLINE, patch_params, within};
use crate::runtime::error::CallError;
use crate::runtime::resources::Resources;
use pod_reloader_core::error::chain;

const UNDONE: &str = "another webhook or policy takes it back";

/// The outcome of a pass over a workload.
enum Action {
    /// Nothing, until something happens.
    AwaitChange,
    /// Another pass at this time.
    RequeueAt(Instant),
}

impl Reconciler {
    /// Makes one pass over one workload. Returns when the next is due, if nothing happens before.
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

    /// One pass over one workload: the first half asks what is remembered whether there is anything
    /// to do, the second asks the apiserver, decides again, and writes.
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
        match self.decide(workload, &fresh, key_seen).await? {
            Decision::Keep => Ok(self.keep(workload, &fresh)),
            Decision::Set { config_hash, .. } if cause.is_some() => {
                let settled = self.settled(workload, &config_hash, fresh.changed);
                if Instant::now() < settled {
                    return Ok(Action::RequeueAt(settled));
                }
                self.restart(
                    workload,
                    &config_hash,
                    cause.unwrap_or(Cause::Changed),
                    &fresh,
                    heard,
                )
                .await
            }
            Decision::Baseline(baseline) => self.set_baseline(workload, &baseline).await,
            // It changed from one kind of decision to another meanwhile.
            Decision::Set { .. } | Decision::Hold(_) => Ok(Action::RequeueAt(Instant::now())),
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

    /// When a workload may get `config_hash` whose objects last changed at `changed`.
    fn settled(&self, workload: &Workload, config_hash: &str, changed: Instant) -> Instant {
        let period = workload
            .settle_period
            .unwrap_or(self.settings.settle_period);
        self.progress
            .settled(&workload.id, config_hash, changed, period)
    }

    /// When a workload may be restarted that was restarted too often, which its user is told.
    fn braked(&self, workload: &Workload, config_hash: &str) -> Option<Instant> {
        let limit = self.settings.max_restarts;
        if limit == 0 {
            return None;
        }
        let (released, pause) = self.progress.braked(&workload.id, config_hash, limit)?;
        (Instant::now() < released).then(|| {
            self.progress.tell(workload, Notice::Braked(pause));
            released
        })
    }

    /// When a workload may be written to next, where that is not now. If it would get the same once more,
    /// somebody takes it back, which its user is told.
    fn next_write(&self, workload: &Workload, value: &str) -> Option<Instant> {
        let max_restarts = self.settings.max_restarts;
        let next = self.progress.next_write(&workload.id, max_restarts)?;
        if self.progress.is_again(&workload.id, value) {
            self.progress.tell(workload, Notice::Reverted);
        }
        Some(next)
    }

    /// Leaves alone what carries what it should.
    fn keep(&self, workload: &Workload, known: &Known) -> Action {
        let id = &workload.id;
        if self.progress.pending_since(id).is_some() {
            self.metrics.saved();
        }
        self.tracked_by_key(workload, known, true);
        // Whoever took it back before may do so again in a moment.
        if self.progress.disputed_until(id).is_none() {
            self.progress.at_rest(id);
        }
        self.progress.not_pending(id);
        Action::AwaitChange
    }

    /// Leaves alone a workload whose pods cannot start. Its user is told once that has lasted for as long
    /// as config and workload of one release may be apart.
    fn hold(&self, workload: &Workload, missing: Vec<Requirement>) -> Action {
        let since = self.progress.missing_since(&workload.id);
        let told_from = since + self.settings.settle_period;
        if Instant::now() < told_from {
            return Action::RequeueAt(told_from);
        }
        self.progress.tell(workload, Notice::Waiting(missing));
        Action::AwaitChange
    }

    async fn restart(
        &self,
        workload: &Workload,
        config_hash: &str,
        cause: Cause,
        known: &Known,
        heard: Option<Instant>,
    ) -> Result<Action, RestartError> {
        let began = Instant::now();
        let id = &workload.id;
        let since = self.progress.pending_since(id);
        let changes = self.tracked_changes(workload, known);
        let last_write = self.progress.last_write(id).or(since);
        let is_changed = changes.iter().any(|(_, at)| Some(*at) >= last_write);
        let changed = changes.into_iter().filter(|(_, at)| Some(*at) >= since);
        let changed: Vec<_> = changed.map(|(reference, _)| reference).collect();
        let is_again = self.progress.is_again(id, config_hash);
        if self.settings.observe {
            if self
                .progress
                .tell(workload, Notice::WouldRestart(cause, changed))
            {
                self.metrics.would_restart(workload.id.kind, cause);
                log_restart(workload, cause, "would restart pods");
            }
            self.progress.not_pending(&workload.id);
            return Ok(Action::AwaitChange);
        }
        // Not every apiserver would refuse it: of a custom resource, what makes the pods would.
        if let Some(size) = workload.too_long_with(config_hash) {
            return Err(RestartError::Patch {
                workload: workload.id.clone(),
                source: CallError::AnnotationsTooLong(size),
            });
        }
        let baseline = baseline_by_time(config_hash);
        let patch = match workload.restart {
            Restart::Template => patch::set_config_hash(workload, config_hash),
            Restart::At { .. } => {
                let time = workload.restart.time(jiff::Timestamp::now());
                patch::restart_at(workload, &time.to_string(), &baseline)
            }
        };
        let is_written = |now: &Workload| match workload.restart {
            Restart::Template => now.config_hash() == Some(config_hash),
            Restart::At { .. } => now.markers.baseline.as_deref() == Some(&baseline),
        };
        // What no event has told of, such as what changed before we led, was seen by a read.
        let heard = heard.or(since);
        let mut is_restarted = false;
        let next = self.write(workload, patch, is_written, || {
            is_restarted = true;
            // What changes from here on is a restart of its own, which settles anew.
            self.progress.not_pending(id);
            let max_restarts = self.settings.max_restarts;
            self.progress
                .restarted(id, config_hash, began, is_changed, max_restarts);
            self.metrics.restart(workload.id.kind, cause);
            if let (Cause::Changed, Some(heard)) = (cause, heard) {
                self.metrics.patched_after(heard.elapsed());
            }
            log_restart(workload, cause, "restarting pods");
            let notice = match workload.stall {
                None => Notice::Restarted(cause, changed),
                Some(stall) => {
                    self.metrics.stalled(workload.id.kind, stall);
                    Notice::Stalled(cause, changed, stall)
                }
            };
            if !(is_again && self.progress.is_told_reverted(id)) {
                self.progress.tell(workload, notice);
            }
        });
        let next = next.await;
        let runs = self.settings.run_cron_jobs && cause != Cause::FirstStamp && !is_again;
        if runs && is_restarted && cron_jobs::is_cron_job(workload.id.kind) {
            self.run_cron_job(workload).await;
        }
        next
    }

    /// Runs a CronJob out of turn. That is done once, or told.
    async fn run_cron_job(&self, workload: &Workload) {
        let id = &workload.id;
        match cron_jobs::run(&self.client, id).await {
            Ok(job) => {
                let WorkloadId {
                    namespace, name, ..
                } = id;
                info!(%namespace, name, job, "ran a CronJob");
            }
            Err(error) => {
                let notice = Notice::NotRun(chain(&error));
                self.progress.tell(workload, notice);
            }
        }
    }

    async fn set_baseline(
        &self,
        workload: &Workload,
        baseline: &str,
    ) -> Result<Action, RestartError> {
        if self.settings.observe {
            return Ok(Action::AwaitChange);
        }
        let patch = patch::set_baseline(workload, baseline);
        let is_written = |now: &Workload| now.markers.baseline.as_deref() == Some(baseline);
        self.write(workload, patch, is_written, || {
            self.metrics.baseline();
            self.progress.baseline_written(&workload.id, baseline);
            let WorkloadId {
                kind,
                namespace,
                name,
            } = &workload.id;
            info!(%kind, %namespace, name, "wrote a baseline");
        })
        .await
    }

    /// The objects that were seen to change, and when, as far as they are tracked.
    fn tracked_changes(&self, workload: &Workload, known: &Known) -> Vec<(Reference, Instant)> {
        let unchanged = self.tracked_by_key(workload, known, false);
        let changes = known.changes.iter().cloned();
        let is_tracked = |(reference, _): &(Reference, Instant)| !unchanged.contains(reference);
        changes.filter(is_tracked).collect()
    }

    /// The objects of which single keys are tracked, and none of these has changed since the config hash
    /// was right, as `is_right` says that it is now.
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

    /// Writes `patch`, whose tests hold only as long as `workload` is as we saw it, and calls `written`
    /// where the answer shows that it stands. Every write to a workload comes by here, and is counted.
    async fn write(
        &self,
        workload: &Workload,
        patch: json_patch::Patch,
        is_written: impl Fn(&Workload) -> bool,
        written: impl FnOnce(),
    ) -> Result<Action, RestartError> {
        let id = &workload.id;
        // Another release may keep it by now.
        if !self.namespaces.contain(&id.namespace) {
            return Ok(Action::AwaitChange);
        }
        match (self.served(id.kind), id.kind.is_built_in()) {
            (None, _) => Ok(Action::AwaitChange),
            (Some(served), true) => {
                let api = self.api::<WorkloadObject>(&served, id);
                self.write_to(api, workload, patch, is_written, written)
                    .await
            }
            (Some(served), false) => {
                let api = self.api::<CustomObject>(&served, id);
                self.write_to(api, workload, patch, is_written, written)
                    .await
            }
        }
    }

    /// The calls about a workload. What they answer is read through the budget.
    pub(super) fn api<O: Object>(&self, served: &Served, id: &WorkloadId) -> Resources<O> {
        let api = Api::namespaced_with(self.client.clone(), id.namespace.as_str(), served);
        Resources::new(api, id.kind.as_str(), &self.budget)
    }

    async fn write_to<O: Object>(
        &self,
        api: Resources<O>,
        workload: &Workload,
        patch: json_patch::Patch,
        is_written: impl Fn(&Workload) -> bool,
        written: impl FnOnce(),
    ) -> Result<Action, RestartError> {
        let id = &workload.id;
        let max_restarts = self.settings.max_restarts;
        if let Err(next) = self.progress.begin_write(id, max_restarts) {
            return Ok(Action::RequeueAt(next));
        }
        let params = patch_params();
        let patch = Patch::<()>::Json(patch);
        match within(DEADLINE, api.patch(&id.name, &params, &patch)).await {
            Ok(object) => {
                let version = version(&object);
                match self.workload(id.kind, object) {
                    Some(now) if is_written(&now) => {
                        written();
                        self.take_in_answer(now, version);
                        Ok(Action::AwaitChange)
                    }
                    _ => Err(RestartError::Undone(id.clone())),
                }
            }
            Err(error) if error.is_not_found() => {
                self.workload_gone(id);
                Ok(Action::AwaitChange)
            }
            Err(error) if error.is_failed_test() || error.is_conflict() => {
                debug!(workload = %id, "it moved while it was patched");
                self.metrics.patch_conflict();
                match within(DEADLINE, api.get(&id.name)).await {
                    Ok(object) => {
                        let version = version(&object);
                        if let Some(now) = self.workload(id.kind, object) {
                            self.take_in_answer(now, version);
                        }
                    }
                    Err(error) if error.is_not_found() => self.workload_gone(id),
                    Err(source) => {
                        return Err(RestartError::ReadWorkload {
                            workload: id.clone(),
                            source,
                        });
                    }
                }
                match self.progress.next_write(id, max_restarts) {
                    None => Ok(Action::RequeueAt(Instant::now())),
                    Some(_) => Err(RestartError::Patch {
                        workload: id.clone(),
                        source: error,
                    }),
                }
            }
            Err(source) => Err(RestartError::Patch {
                workload: id.clone(),
                source,
            }),
        }
    }

    /// Takes in an answer to a call of ours. It does not bring back what a watch has shown to be gone.
    fn take_in_answer(&self, workload: Workload, version: u64) {
        if self.workloads.get(&workload.id).is_some() {
            self.take_in(workload, version);
        }
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

    /// Says what failed, once, and when to try again.
    fn failed(&self, workload: &Workload, error: &RestartError) -> Instant {
        let (cause, notice) = match error {
            RestartError::Read(ReadError::Object { reference, source }) => (
                Some(source),
                source
                    .is_refusal()
                    .then(|| Notice::Unreadable(reference.clone(), source.to_string())),
            ),
            RestartError::Patch { source, .. } => (
                Some(source),
                source
                    .is_refusal()
                    .then(|| Notice::Refused(source.to_string())),
            ),
            RestartError::Undone(_) => (None, Some(Notice::Refused(UNDONE.to_owned()))),
            RestartError::Read(ReadError::List { source, .. } | ReadError::Keys { source, .. })
            | RestartError::ReadWorkload { source, .. } => (Some(source), None),
            RestartError::Read(ReadError::NoKeys(_)) => (None, None),
        };
        self.errors.count(cause);
        if let Some(notice) = notice {
            self.progress.tell(workload, notice);
        }
        // A workload that moves all the time may stop at any time.
        let moves = |cause: &CallError| cause.is_conflict() || cause.is_failed_test();
        let refused = cause.is_some_and(|cause| cause.is_refusal() && !moves(cause));
        let failures = self.progress.failed(&workload.id, refused);
        let WorkloadId {
            kind,
            namespace,
            name,
        } = &workload.id;
        let pause = pause(failures, refused);
        // Who read it has told of it.
        if failures == 1 && !matches!(error, RestartError::Read(ReadError::Object { .. })) {
            warn!(%kind, %namespace, name, error = chain(error), "reconciling failed, trying again");
        } else {
            debug!(%kind, %namespace, name, error = chain(error), ?pause, "reconciling failed");
        }
        Instant::now() + pause
    }
}

fn log_restart(workload: &Workload, cause: Cause, message: &str) {
    let WorkloadId {
        kind,
        namespace,
        name,
    } = &workload.id;
    info!(%kind, %namespace, name, ?cause, "{message}");
}

/// How long to wait after so many failures: doubled each time, with some chance in it so that many
/// do not come back at once. What was refused waits longer: somebody has to change something first.
/// Anything else is tried again within a minute, with chance and a call without an answer included.
fn pause(failures: u32, refused: bool) -> Duration {
    let (first, longest) = if refused { (15, 600) } else { (1, 40) };
    let doubled =
        Duration::from_secs(first) * 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    let mut random = [0];
    // Without random bytes there is no chance in it: no reason to fail.
    let _ = getrandom::fill(&mut random);
    doubled
        .min(Duration::from_secs(longest))
        .mul_f64(0.75 + f64::from(random[0]) / 512.0)
}
