//! Takes in workloads that were left out because their namespace takes too much memory.
//!
//! Which ones fit is the rule of `pod_reloader_core::index`.

use std::time::Duration;

use pod_reloader_core::by_kind;
use pod_reloader_core::object::{Object, Served};
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;
use tracing::debug;

use crate::restart::intake::Intake;
use crate::restart::kinds::{ServedKinds, version};
use crate::runtime::client::{DEADLINE, within};
use crate::runtime::error::CallError;

/// The pause after a failed read of a left-out workload.
const TAKE_IN_PAUSE: Duration = Duration::from_secs(10);

/// Reads a workload that was left out, and manages it if there is room for it. Returns when to try again.
pub(crate) async fn take_in_again(
    intake: &Intake,
    kinds: &ServedKinds,
    id: &WorkloadId,
) -> Option<Instant> {
    if !intake.is_left_out(id) {
        return None;
    }
    let served = kinds.get(id.kind)?;
    let answer = by_kind!(id.kind, O => current::<O>(intake, kinds, &served, id).await);
    match answer {
        // A watch may have shown in the meantime that the workload is gone, or is managed.
        Ok(Some((workload, version))) if intake.is_left_out(id) => {
            intake.apply(workload, version);
            None
        }
        Ok(_) => None,
        Err(error) if error.is_not_found() => {
            intake.gone(id);
            None
        }
        Err(error) => {
            debug!(workload = %id, %error, "cannot read a workload that there is room for now");
            Some(Instant::now() + TAKE_IN_PAUSE)
        }
    }
}

/// Reads the current state of a workload, with its resourceVersion.
async fn current<O: Object>(
    intake: &Intake,
    kinds: &ServedKinds,
    served: &Served,
    id: &WorkloadId,
) -> Result<Option<(Workload, u64)>, CallError> {
    let api = kinds.api::<O>(served, &id.namespace);
    let object = within(DEADLINE, api.get(&id.name)).await?;
    let version = version(&object);
    let workload = intake.read(id.kind, object);
    Ok(workload.map(|workload| (workload, version)))
}
