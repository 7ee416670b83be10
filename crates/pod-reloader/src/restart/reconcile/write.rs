//! Writes that a pass has decided on: a restart, or a baseline.

use std::time::Duration;

use pod_reloader_core::decision::{Cause, baseline_by_time};
use pod_reloader_core::patch::{self, Stamp};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::{Restart, Workload};
use tokio::time::Instant;
use tracing::info;

use super::Reconciler;
use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::digests::Snapshot;
use crate::restart::error::RestartError;
use crate::restart::pins::Pinned;
use crate::restart::restraint::DueRestart;
use crate::restart::stages::stage_for;
use crate::runtime::error::CallError;

/// The time after which a ConfigMap is read again that changed while it was copied.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// A restart that is about to be written, and what is reported of it.
struct Restarting<'a> {
    workload: &'a Workload,
    config_hash: &'a str,
    cause: Cause,
    /// The time when the content for the hash had been read.
    began: Instant,
    /// The time of the first news of the change.
    first_news: Option<Instant>,
    /// The objects that changed.
    changed: Vec<Reference>,
    /// True if one of them has changed since the last write.
    is_changed: bool,
    /// True if the last write was the same, so that somebody must have reverted it.
    is_again: bool,
}

impl Reconciler {
    /// Sets the config hash of a workload, or the time of its restart, or reports what it would do.
    pub(super) async fn restart(&self, due: &DueRestart<'_>) -> Result<Action, RestartError> {
        let (workload, config_hash) = (due.workload, due.config_hash);
        let id = &*workload.id;
        let restarting = self.restarting(due);
        if self.settings.observe {
            return Ok(self.would_restart(restarting));
        }
        let pinned = match &self.pins {
            Some(pins) => pins.content.pin(due).await?,
            None => Pinned::As(None),
        };
        let Pinned::As(pins) = pinned else {
            return Ok(Action::RequeueAt(Instant::now() + READ_AGAIN));
        };
        let undone = Some(due.snapshot.undone.to_string()).filter(|it| !it.is_empty());
        // The apiserver would not always refuse it. For a custom resource, only the creation of its pods
        // would fail.
        if let Some(size) = workload.too_long_with(config_hash, pins.as_deref()) {
            return Err(RestartError::Patch {
                workload: id.clone(),
                source: CallError::AnnotationsTooLong(size),
            });
        }
        let baseline = baseline_by_time(config_hash);
        let stamp = Stamp {
            config_hash,
            pins: pins.as_deref(),
            undone: undone.as_deref(),
        };
        let patch = restart_patch(workload, &stamp, &baseline);
        let is_written = |now: &Workload| match workload.restart {
            Restart::Template => {
                now.config_hash() == Some(config_hash) && now.has_pins(pins.as_deref())
            }
            Restart::At { .. } => now.markers.baseline.as_deref() == Some(&baseline),
        };
        let runs = self.settings.run_cron_jobs && due.cause.is_of_content() && !restarting.is_again;
        let mut is_restarted = false;
        let action = self.writes.write(workload, patch, is_written, || {
            is_restarted = true;
            self.restarted(restarting);
        });
        let action = action.await;
        if runs && is_restarted {
            self.cron_jobs.run_is_due(id);
        }
        Ok(action?.at_latest(self.cron_jobs.run(workload).await))
    }

    /// Returns what is known of a restart at its beginning.
    fn restarting<'a>(&self, due: &DueRestart<'a>) -> Restarting<'a> {
        let (workload, snapshot) = (due.workload, due.snapshot);
        let began = Instant::now();
        let id = &*workload.id;
        let since = self.progress.pending_since(id);
        let changes = self.progress.memories.tracked_changes(workload, snapshot);
        let last_write = self.progress.recent_writes.last_write(id).or(since);
        let is_changed =
            due.cause == Cause::Rotated || changes.iter().any(|(_, at)| Some(*at) >= last_write);
        let mut changed = self.progress.memories.due_changes(workload, snapshot);
        if changed.is_empty() {
            changed = self.heard_of_since_the_hash(workload, snapshot);
        }
        Restarting {
            workload,
            config_hash: due.config_hash,
            cause: due.cause,
            began,
            // A change that no event has reported, such as one from before our term, was found by a read.
            first_news: snapshot.first_news.or(since),
            changed,
            is_changed,
            is_again: self.progress.recent_writes.is_again(id, due.config_hash),
        }
    }

    /// Returns the objects that were first read with the content that the pods lack, if it came while we were watching:
    /// after the workload had got its config hash.
    fn heard_of_since_the_hash(&self, workload: &Workload, snapshot: &Snapshot) -> Vec<Reference> {
        let Some((_, hash_since)) = self.workloads.get(&workload.id) else {
            return Vec::new();
        };
        let heard_of = snapshot.heard_of.iter();
        let heard_of = heard_of.filter(|(_, at)| *at >= hash_since);
        heard_of.map(|(reference, _)| reference.clone()).collect()
    }

    /// Reports, once, a restart that would be made.
    fn would_restart(&self, restarting: Restarting<'_>) -> Action {
        let (workload, cause) = (restarting.workload, restarting.cause);
        let stage = stage_for(workload, cause, &restarting.changed);
        let notice = Notice::WouldRestart(cause, restarting.changed, stage);
        if self.progress.report(workload, notice) {
            self.metrics.would_restart(workload.id.kind, cause);
            log_restart(workload, cause, "would restart pods");
        }
        self.progress.not_pending(&workload.id);
        Action::AwaitChange
    }

    /// Records a restart that stands, and reports it.
    fn restarted(&self, restarting: Restarting<'_>) {
        let (workload, cause) = (restarting.workload, restarting.cause);
        let id = &*workload.id;
        // Changes from here on are a restart of their own, which settles anew.
        self.progress.not_pending(id);
        let max_restarts = self.settings.max_restarts;
        self.progress.recent_writes.restarted(
            id,
            restarting.config_hash,
            restarting.began,
            restarting.is_changed,
            max_restarts,
        );
        self.metrics.restart(id, cause);
        if let (Cause::Changed, Some(pins)) = (cause, &self.pins) {
            pins.rollbacks.begins_trial(workload);
        }
        if let (Cause::Changed, Some(first_news)) = (cause, restarting.first_news) {
            let time = first_news.elapsed().as_secs_f64();
            self.metrics.change_to_patch.observe(time);
        }
        log_restart(workload, cause, "restarting pods");
        let notice = match workload.stall {
            None => Notice::Restarted(cause, restarting.changed),
            Some(stall) => {
                self.metrics.stalled(id.kind, stall);
                Notice::Stalled(cause, restarting.changed, stall)
            }
        };
        if !(restarting.is_again && self.progress.is_reported_reverted(id)) {
            self.progress.report(workload, notice);
        }
    }

    /// Writes a baseline.
    pub(super) async fn set_baseline(
        &self,
        workload: &Workload,
        baseline: &str,
    ) -> Result<Action, RestartError> {
        if self.settings.observe {
            return Ok(Action::AwaitChange);
        }
        let patch = patch::set_baseline(workload, baseline);
        let is_written = |now: &Workload| now.markers.baseline.as_deref() == Some(baseline);
        let written = || {
            self.metrics.baselines.inc();
            self.progress
                .recent_writes
                .baseline_written(&workload.id, baseline);
            let id = &*workload.id;
            info!(kind = %id.kind, namespace = %id.namespace, name = &*id.name, "wrote a baseline");
        };
        self.writes
            .write(workload, patch, is_written, written)
            .await
    }
}

/// Returns the patch that restarts a workload: by the stamp, or by a time, with a baseline.
fn restart_patch(workload: &Workload, stamp: &Stamp<'_>, baseline: &str) -> json_patch::Patch {
    match workload.restart {
        Restart::Template => patch::stamp(workload, stamp),
        Restart::At { .. } => {
            let time = workload.restart.time(jiff::Timestamp::now());
            patch::restart_at(workload, &time.to_string(), baseline)
        }
    }
}

fn log_restart(workload: &Workload, cause: Cause, message: &str) {
    let id = &*workload.id;
    info!(kind = %id.kind, namespace = %id.namespace, name = &*id.name, ?cause, "{message}");
}
