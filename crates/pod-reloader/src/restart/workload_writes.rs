//! Writes to workloads: every write goes through here and is counted, except the one that puts settings back.

use std::sync::Arc;

use kube::api::Patch;
use pod_reloader_core::by_kind;
use pod_reloader_core::object::Object;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;
use tracing::debug;

use crate::restart::action::Action;
use crate::restart::error::RestartError;
use crate::restart::intake::Intake;
use crate::restart::kinds::{ServedKinds, version};
use crate::restart::parts::Parts;
use crate::runtime::client::{DEADLINE, patch_params, within};
use crate::runtime::resources::Resources;

/// Writes to workloads.
pub(crate) struct WorkloadWrites {
    parts: Arc<Parts>,
    intake: Arc<Intake>,
    kinds: Arc<ServedKinds>,
}

impl WorkloadWrites {
    pub(crate) fn new(parts: &Arc<Parts>, intake: &Arc<Intake>, kinds: &Arc<ServedKinds>) -> Self {
        Self {
            parts: parts.clone(),
            intake: intake.clone(),
            kinds: kinds.clone(),
        }
    }

    /// Writes `patch`, whose tests hold only as long as `workload` is as we saw it. Calls `written` if the
    /// answer shows that the write stands.
    pub(crate) async fn write(
        &self,
        workload: &Workload,
        patch: json_patch::Patch,
        is_written: impl Fn(&Workload) -> bool,
        written: impl FnOnce(),
    ) -> Result<Action, RestartError> {
        let id = &*workload.id;
        // Another release of the operator may manage the workload by now.
        if !self.intake.selects(&id.namespace) {
            return Ok(Action::AwaitChange);
        }
        let Some(served) = self.kinds.get(id.kind) else {
            return Ok(Action::AwaitChange);
        };
        by_kind!(id.kind, O => {
            let api = self.kinds.api::<O>(&served, &id.namespace);
            self.write_to(api, workload, patch, is_written, written).await
        })
    }

    async fn write_to<O: Object>(
        &self,
        api: Resources<O>,
        workload: &Workload,
        patch: json_patch::Patch,
        is_written: impl Fn(&Workload) -> bool,
        written: impl FnOnce(),
    ) -> Result<Action, RestartError> {
        let id = &*workload.id;
        let (recent_writes, max_restarts) = (
            &self.parts.progress.recent_writes,
            self.parts.settings.max_restarts,
        );
        if let Err(next) = recent_writes.begin_write(id, max_restarts) {
            return Ok(Action::RequeueAt(next));
        }
        let params = patch_params();
        let patch = Patch::<()>::Json(patch);
        match within(DEADLINE, api.patch(&id.name, &params, &patch)).await {
            Ok(object) => {
                let version = version(&object);
                match self.intake.read(id.kind, object) {
                    Some(now) if is_written(&now) => {
                        written();
                        self.intake.take_in_answer(now, version);
                        Ok(Action::AwaitChange)
                    }
                    _ => Err(RestartError::Reverted(id.clone())),
                }
            }
            Err(error) if error.is_not_found() => {
                self.intake.gone(id);
                Ok(Action::AwaitChange)
            }
            Err(error) if error.is_failed_test() || error.is_conflict() => {
                debug!(workload = %id, "the workload changed while it was patched");
                self.parts.metrics.patch_conflicts.inc();
                self.read_again(&api, id).await?;
                match recent_writes.next_write(id, max_restarts) {
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

    /// Reads a workload that has changed while it was patched.
    async fn read_again<O: Object>(
        &self,
        api: &Resources<O>,
        id: &WorkloadId,
    ) -> Result<(), RestartError> {
        match within(DEADLINE, api.get(&id.name)).await {
            Ok(object) => {
                let version = version(&object);
                if let Some(now) = self.intake.read(id.kind, object) {
                    self.intake.take_in_answer(now, version);
                }
            }
            Err(error) if error.is_not_found() => self.intake.gone(id),
            Err(source) => {
                return Err(RestartError::ReadWorkload {
                    workload: id.clone(),
                    source,
                });
            }
        }
        Ok(())
    }
}
