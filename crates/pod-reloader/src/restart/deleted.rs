//! Deleted workloads: puts back what people had set on a workload that was deleted and has come back.
//!
//! Its rule is `pod_reloader_core::lasting`.

use std::sync::Arc;

use kube::api::Patch;
use parking_lot::Mutex;
use pod_reloader_core::by_kind;
use pod_reloader_core::lasting::{Deleted, Lasting};
use pod_reloader_core::object::{Object, Served};
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::metrics::RESTART;
use crate::report::notice::Notice;
use crate::restart::clock::now;
use crate::restart::intake::Intake;
use crate::restart::kinds::{ServedKinds, version};
use crate::restart::parts::Parts;
use crate::runtime::client::{DEADLINE, patch_params, within};
use crate::runtime::controller::ControllerErrors;
use crate::runtime::error::CallError;

/// Puts settings back on workloads that have come back.
pub(crate) struct LostSettings {
    parts: Arc<Parts>,
    /// The workloads that were deleted a moment ago, and on which people had set something. Some have come back.
    pub(crate) deleted: Mutex<Deleted>,
    errors: ControllerErrors,
    intake: Arc<Intake>,
    kinds: Arc<ServedKinds>,
}

impl LostSettings {
    pub(crate) fn new(parts: &Arc<Parts>, intake: &Arc<Intake>, kinds: &Arc<ServedKinds>) -> Self {
        Self {
            deleted: Mutex::default(),
            parts: parts.clone(),
            errors: parts.metrics.errors.of(RESTART),
            intake: intake.clone(),
            kinds: kinds.clone(),
        }
    }

    /// Remembers what people had set on a workload that was deleted.
    pub(crate) fn remember(&self, workload: &Workload, settings: Lasting) {
        let (id, uid) = (&*workload.id, &*workload.uid);
        let is_noted = self.deleted.lock().note(id, uid, settings, now());
        if !is_noted {
            warn!(workload = %id, "what people had set on this workload is not put back any more: it was deleted too often soon after that");
        }
    }

    /// Returns the ID of a workload that was deleted and has come back. No pass decides about it from here on until it
    /// has its settings again.
    pub(crate) fn back(&self, workload: &Workload) -> Option<WorkloadId> {
        let is_back = self.deleted.lock().is_back(&workload.id, &workload.uid);
        is_back.then(|| (*workload.id).clone())
    }

    /// Puts back what people had set on a workload that has come back. Returns when to try again if that was not
    /// possible: until then, nothing may be decided about the workload.
    pub(crate) async fn put_back(&self, id: &WorkloadId) -> Option<Instant> {
        let settings = self.deleted.lock().due(id, now())?;
        let served = self.kinds.get(id.kind)?;
        let outcome = by_kind!(id.kind, O => self.give_back::<O>(&served, id, &settings).await);
        let Err(error) = outcome else {
            self.deleted.lock().put_back(id, &settings, now());
            return None;
        };
        // It is gone again, and may come back once more.
        if error.is_not_found() {
            return None;
        }
        let is_moved = error.is_failed_test() || error.is_conflict();
        if is_moved {
            self.parts.metrics.patch_conflicts.inc();
        } else {
            self.errors.count(Some(&error));
        }
        if is_moved || !error.is_refusal() {
            debug!(workload = %id, reason = error.reason(), "cannot put settings back, trying again");
            let next = self.deleted.lock().failed(id, &settings, now());
            return Some(next.into());
        }
        warn!(workload = %id, reason = error.reason(), "cannot put back what people had set before this workload was deleted and created again");
        self.deleted.lock().forget(id, &settings);
        None
    }

    /// Writes those of these settings that a workload lacks, unless it is none of ours.
    async fn give_back<O: Object>(
        &self,
        served: &Served,
        id: &WorkloadId,
        settings: &Lasting,
    ) -> Result<(), CallError> {
        let api = self.kinds.api::<O>(served, &id.namespace);
        let object = within(DEADLINE, api.get(&id.name)).await?;
        let Some(lacking) = settings.lacking_in(&object) else {
            return Ok(());
        };
        let workload = self.intake.read(id.kind, object);
        let Some(workload) = workload.filter(|it| self.intake.includes(it)) else {
            return Ok(());
        };
        let keys = lacking.keys().collect::<Vec<_>>().join(", ");
        let (kind, namespace, name) = (id.kind, &id.namespace, &*id.name);
        let Some(patch) = lacking.patch(&workload) else {
            warn!(%kind, %namespace, name, keys, "no room for what people had set before this workload was deleted and created again");
            return Ok(());
        };
        let patch = Patch::<()>::Json(patch);
        let object = within(DEADLINE, api.patch(&id.name, &patch_params(), &patch)).await?;
        if lacking.lacking_in(&object).is_some() {
            warn!(%kind, %namespace, name, keys, "another webhook or policy takes away what people had set before this workload was deleted and created again");
            return Ok(());
        }
        info!(%kind, %namespace, name, keys, "put back what people had set before this workload was deleted and created again");
        let keys = lacking.keys().map(Into::into).collect();
        let notice = Notice::SettingsKept(keys);
        self.parts.progress.send(&workload, notice);
        let version = version(&object);
        if let Some(now) = self.intake.read(id.kind, object) {
            self.intake.take_in_answer(now, version);
        }
        Ok(())
    }
}
