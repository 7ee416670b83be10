//! Takes in workloads that were left out because their namespace takes too much memory.

use std::time::Duration;

use pod_reloader_core::by_kind;
use pod_reloader_core::index::LeftOut;
use pod_reloader_core::object::{Object, Served};
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::Reconciler;
use crate::report::notice::Notice;
use crate::restart::kinds::version;
use crate::restart::progress::Progress;
use crate::runtime::client::{DEADLINE, within};
use crate::runtime::error::CallError;

/// The pause after a failed read of a left-out workload.
const TAKE_IN_PAUSE: Duration = Duration::from_secs(10);

impl Reconciler {
    /// Reads a workload that was left out, and manages it if there is room for it. Returns when to try
    /// again.
    pub(super) async fn take_in_again(&self, id: &WorkloadId) -> Option<Instant> {
        if !self.workloads.is_left_out(id) {
            return None;
        }
        let served = self.kinds.get(id.kind)?;
        let answer = by_kind!(id.kind, O => self.current::<O>(&served, id).await);
        match answer {
            // A watch may have shown in the meantime that the workload is gone, or is managed.
            Ok(Some((workload, version))) if self.workloads.is_left_out(id) => {
                self.apply(workload, version);
                None
            }
            Ok(_) => None,
            Err(error) if error.is_not_found() => {
                self.workload_gone(id);
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
        &self,
        served: &Served,
        id: &WorkloadId,
    ) -> Result<Option<(Workload, u64)>, CallError> {
        let object = within(
            DEADLINE,
            self.kinds.api::<O>(served, &id.namespace).get(&id.name),
        )
        .await?;
        let version = version(&object);
        let workload = self.namespaces.read(&self.scope, id.kind, object);
        Ok(workload.map(|workload| (workload, version)))
    }
}

/// Reports that there is no room for a workload in the `share` of its namespace, in bytes: to its user, and once for each
/// namespace in the log.
pub(super) fn report(left_out: &LeftOut, progress: &Progress, share: usize) {
    let namespace = &left_out.workload.id.namespace;
    if left_out.is_first {
        warn!(%namespace, share, "the workloads of a namespace take more memory than its share: those that do not fit are not managed");
    }
    if left_out.is_news {
        progress.send(&left_out.workload, Notice::NamespaceTooLarge(share));
    }
}
