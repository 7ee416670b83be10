//! Shares what people had set on workloads that were deleted, in case they come back.

use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::lasting::{self, Lasting};
use pod_reloader_core::name::Name;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;
use tracing::warn;

use crate::restart::clock::now;

/// The workloads that were deleted a moment ago, and on which people had set something. Some have come back.
#[derive(Default)]
pub(crate) struct Deleted(Mutex<lasting::Deleted>);

impl Deleted {
    /// Remembers what people had set on a workload that was deleted.
    pub(crate) fn remember(&self, workload: &Workload, settings: Lasting) {
        let id = &*workload.id;
        if !self.0.lock().note(id, &workload.uid, settings, now()) {
            warn!(workload = %id, "what people had set on this workload is not put back any more: it was deleted too often soon after that");
        }
    }

    /// Returns the ID of a workload that was deleted and has come back. No pass decides about it from here on until it
    /// has its settings again.
    pub(crate) fn back(&self, workload: &Workload) -> Option<WorkloadId> {
        let is_back = self.0.lock().is_back(&workload.id, &workload.uid);
        is_back.then(|| (*workload.id).clone())
    }

    /// Returns what to put back on a workload, if it has come back in time.
    pub(crate) fn due(&self, id: &WorkloadId) -> Option<Arc<Lasting>> {
        self.0.lock().due(id, now())
    }

    /// Notes that these settings could not be put back. Returns when to try again.
    pub(crate) fn failed(&self, id: &WorkloadId, settings: &Arc<Lasting>) -> Instant {
        self.0.lock().failed(id, settings, now()).into()
    }

    /// Notes that these settings have been put back, and forgets them. Those of a workload that was deleted since then
    /// stay.
    pub(crate) fn put_back(&self, id: &WorkloadId, settings: &Arc<Lasting>) {
        self.0.lock().put_back(id, settings, now());
    }

    /// Forgets these settings. Those of a workload that was deleted since then stay.
    pub(crate) fn forget(&self, id: &WorkloadId, settings: &Arc<Lasting>) {
        self.0.lock().forget(id, settings);
    }

    /// Forgets the workloads of a namespace. What has these names later need not be of the same people.
    pub(crate) fn forget_all_in(&self, namespace: &Name) {
        self.0.lock().forget_all_in(namespace);
    }

    /// Forgets the workloads that have not come back in time.
    pub(crate) fn tidy(&self) {
        self.0.lock().tidy(now());
    }
}
