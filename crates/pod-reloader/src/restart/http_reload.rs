//! HTTP reload: lets pods reload changed config in place of a restart, if their workload asks for that. Restarts them if
//! a pod cannot.
//!
//! Its rule is `pod_reloader_core::http_reload`. What a pod is asked, and when, is in `reload_rounds.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use pod_reloader_core::decision::{
    Cause, baseline_after_reload, baseline_before_reload, is_reloading,
};
use pod_reloader_core::digest::{Objects, Presence};
use pod_reloader_core::http_reload::{Had, HttpReload};
use pod_reloader_core::patch;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;
use tracing::info;

use crate::metrics::ReloadOutcome;
use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::digests::Snapshot;
use crate::restart::error::RestartError;
use crate::restart::parts::Parts;
use crate::restart::reload_rounds::{Begin, Changes, Reload, Reloads, Stand, over_http};
use crate::restart::restraint::DueRestart;
use crate::restart::slots::Slots;
use crate::restart::stages::Stages;
use crate::restart::workload_writes::WorkloadWrites;

/// Lets pods reload changed config.
pub(crate) struct HttpReloads {
    parts: Arc<Parts>,
    stages: Arc<Stages>,
    slots: Option<Arc<Slots>>,
    writes: Arc<WorkloadWrites>,
    /// What runs the rounds.
    pub(crate) reloads: Reloads,
}

impl HttpReloads {
    /// Returns what lets pods reload. `None` if that is switched off.
    pub(crate) fn of(
        parts: &Arc<Parts>,
        scope: &Scope,
        stages: &Arc<Stages>,
        slots: &Option<Arc<Slots>>,
        writes: &Arc<WorkloadWrites>,
    ) -> Option<Self> {
        scope.http_reloads().then(|| {
            let (client, budget) = (parts.client.clone(), parts.budget.clone());
            let worker = parts.worker.clone();
            Self {
                parts: parts.clone(),
                stages: stages.clone(),
                slots: slots.clone(),
                writes: writes.clone(),
                reloads: Reloads::new(client, budget, over_http(), worker),
            }
        })
    }

    /// Returns what to do with a workload that is to get `config_hash` and whose pods are reloading its content, or
    /// have. A hold or a closed window that comes later does not stop them.
    pub(crate) async fn in_progress(
        &self,
        due: &DueRestart<'_>,
    ) -> Result<Option<Action>, RestartError> {
        let (id, config_hash) = (&*due.workload.id, due.config_hash);
        if self.reload_of(due.workload, due.cause).is_none() {
            self.is_moot(id);
            return Ok(None);
        }
        match self.stand(id, config_hash) {
            Some(Stand::Runs(until)) => Ok(Some(Action::RequeueAt(until))),
            Some(Stand::Ended(Ok(pods))) => {
                let action = self.reloaded(due, pods).await?;
                Ok(Some(action))
            }
            Some(Stand::Ended(Err(_))) | None => Ok(None),
        }
    }

    /// Lets the pods of a workload reload the content of `config_hash`. Returns `None` if they have to be restarted.
    pub(crate) async fn reload(
        &self,
        due: &DueRestart<'_>,
    ) -> Result<Option<Action>, RestartError> {
        let (workload, config_hash) = (due.workload, due.config_hash);
        let id = &*workload.id;
        let Some(reload) = self.reload_of(workload, due.cause) else {
            return Ok(None);
        };
        match self.stand(id, config_hash) {
            None => {}
            Some(Stand::Ended(Err(failed))) => {
                let notice = Notice::ReloadFailed(failed);
                if self.parts.progress.report(workload, notice) {
                    self.parts.metrics.reloads.count(ReloadOutcome::Failed);
                }
                return Ok(None);
            }
            Some(Stand::Ended(Ok(_))) => return Ok(Some(Action::RequeueAt(Instant::now()))),
            Some(Stand::Runs(until)) => return Ok(Some(Action::RequeueAt(until))),
        }
        let contents = workload.references.contents(&due.snapshot.objects);
        let changes = self.parts.progress.memories.with(id, |memory| {
            let known = memory.reload.as_deref();
            known
                .unwrap_or(&Reload::default())
                .changes(&contents, reload)
        });
        let Ok(changes) = changes else {
            return Ok(None);
        };
        let begin = || self.begin_round(due, reload, changes);
        // Whatever happens meanwhile, nobody may take what the config hash stands for as what all pods have.
        let baseline = baseline_before_reload(workload);
        if is_reloading(workload) {
            begin();
            return Ok(Some(Action::AwaitChange));
        }
        if !workload.markers.has_room_for(&baseline) {
            return Ok(None);
        }
        let patch = patch::set_baseline(workload, &baseline);
        let is_written = |now: &Workload| now.markers.baseline.as_deref() == Some(&*baseline);
        self.writes
            .write(workload, patch, is_written, begin)
            .await
            .map(Some)
    }

    /// Begins a round in which the pods of a workload reload these changes.
    fn begin_round(&self, due: &DueRestart<'_>, reload: &HttpReload, changes: Changes) {
        let id = &*due.workload.id;
        log_reload(id, "asking pods to reload changed config");
        let begin = Begin {
            id,
            reload,
            config_hash: due.config_hash,
            config_created: youngest(&changes, &due.snapshot.objects),
            changes,
        };
        let until = self.parts.progress.memories.with(id, |memory| {
            let own = memory.reload.get_or_insert_default();
            self.reloads.begin(own, begin)
        });
        self.stages.begins_to_reload(id, until);
    }

    /// Records that all pods of a workload have reloaded the content of `config_hash`.
    async fn reloaded(&self, due: &DueRestart<'_>, pods: usize) -> Result<Action, RestartError> {
        let (workload, config_hash) = (due.workload, due.config_hash);
        let id = &*workload.id;
        let began = Instant::now();
        let memories = &self.parts.progress.memories;
        let changed = memories.due_changes(workload, due.snapshot);
        let baseline = baseline_after_reload(workload, config_hash);
        let patch = patch::set_baseline(workload, &baseline);
        let is_written = |now: &Workload| now.markers.baseline.as_deref() == Some(&*baseline);
        let written = || {
            self.parts.progress.not_pending(id);
            let recent_writes = &self.parts.progress.recent_writes;
            let max_restarts = self.parts.settings.max_restarts;
            recent_writes.restarted(id, config_hash, began, true, max_restarts);
            // The baseline before and this one are one restart less.
            recent_writes.give_back(id);
            self.parts.metrics.reloads.count(ReloadOutcome::Reloaded);
            log_reload(id, "reloaded pods");
            let notice = Notice::Reloaded(pods, changed);
            self.parts.progress.report(workload, notice);
            // No rollout follows.
            self.free_slot(id);
        };
        self.writes
            .write(workload, patch, is_written, written)
            .await
    }

    /// Notes that the pods of a workload have the content that they are to have, or cannot get it now.
    pub(crate) fn is_moot(&self, id: &WorkloadId) {
        let is_abandoned = self.parts.progress.memories.with(id, |memory| {
            let reload = memory.reload.as_mut();
            reload.is_some_and(|reload| reload.abandon())
        });
        if is_abandoned {
            self.free_slot(id);
        }
    }

    fn free_slot(&self, id: &WorkloadId) {
        if let Some(slots) = &self.slots {
            slots.free(id);
        }
    }

    /// Notes that the pods of a workload have the right content.
    pub(crate) fn has_content(&self, workload: &Workload, snapshot: &Snapshot) {
        // Not while the memories are locked: it hashes content.
        let reload = workload.rare().http_reload.as_ref();
        let had = reload.map(|_| Had::of(&workload.references.contents(&snapshot.objects)));
        let memories = &self.parts.progress.memories;
        memories.with(&workload.id, |memory| match had {
            Some(had) => memory.reload.get_or_insert_default().are_right(had),
            None => memory.reload = None,
        });
    }

    /// Returns how the round of a workload for this config hash stands, if there is one.
    fn stand(&self, id: &WorkloadId, config_hash: &str) -> Option<Stand> {
        let memories = &self.parts.progress.memories;
        memories.with(id, |memory| memory.reload.as_mut()?.stand(config_hash))
    }

    /// Returns how a workload reloads, if its pods may reload changed config now.
    fn reload_of<'a>(&self, workload: &'a Workload, cause: Cause) -> Option<&'a HttpReload> {
        let is_change = cause == Cause::Changed && !self.parts.settings.observe;
        workload.rare().http_reload.as_deref().filter(|_| is_change)
    }
}

/// Returns when the youngest of the objects was created that have changed, or may have.
fn youngest(changes: &Changes, objects: &Objects) -> Option<Timestamp> {
    let has_changed = |reference: &Reference| {
        let known: Option<&BTreeSet<Reference>> = changes.objects.as_ref();
        known.is_none_or(|known| known.contains(reference))
    };
    let changed = objects
        .iter()
        .filter(|(reference, _)| has_changed(reference));
    let created = changed.filter_map(|(_, object)| match object {
        Presence::Present(object) => object.created(),
        Presence::Absent => None,
    });
    created.max()
}

fn log_reload(id: &WorkloadId, message: &str) {
    info!(kind = %id.kind, namespace = %id.namespace, name = &*id.name, "{message}");
}
