//! Releases: a restart waits for one that is under way and may change more objects.

use std::sync::Arc;

use pod_reloader_core::name::Name;
use pod_reloader_core::release::{AppliedRevision, Release, Revision, Tool, Wait};
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;
use tracing::warn;

use super::{DueRestart, Parts, Phase, Restraint};
use crate::metrics::Metrics;
use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::progress::Progress;
use crate::restart::releases::Releases;
use crate::runtime::worker::Worker;

/// Holds a restart back while its release is under way.
pub(crate) struct ReleaseWait {
    releases: Arc<Releases>,
    progress: Arc<Progress>,
    metrics: Metrics,
    worker: Arc<Worker<WorkloadId>>,
}

impl ReleaseWait {
    pub(super) fn new(parts: &Parts) -> Self {
        Self {
            releases: parts.releases.clone(),
            progress: parts.progress.clone(),
            metrics: parts.metrics.clone(),
            worker: parts.worker.clone(),
        }
    }

    /// Waits until the releases have been listed, within reason.
    pub(crate) async fn first_lists(&self) {
        self.releases.listed().await;
    }

    /// Takes in a revision of a release as it is now.
    pub(crate) fn seen(&self, revision: Revision) {
        let release = revision.release.clone();
        let AppliedRevision {
            is_news,
            is_first_left_out,
        } = self.releases.apply(revision);
        if is_first_left_out {
            warn!(%release, "the releases of a namespace take more memory than their share: restarts do not wait for those that do not fit, such as this one");
        }
        if is_news {
            self.moved(&release);
        }
    }

    /// Takes in that a revision of a release is gone, or has been replaced.
    pub(crate) fn gone(&self, revision: &Revision) {
        if self.releases.delete(revision) {
            self.moved(&revision.release);
        }
    }

    /// Takes in that a list of a tool's revisions in a namespace, or in all of them, begins.
    pub(crate) fn listing(&self, tool: Tool, namespace: Option<&Name>) {
        self.releases.listing(tool, namespace);
    }

    /// Takes in that such a list is complete.
    pub(crate) fn all_listed(&self, tool: Tool, namespace: Option<&Name>) {
        for release in self.releases.all_listed(tool, namespace) {
            self.moved(&release);
        }
    }

    /// Queues the workloads whose restart waits for a release.
    fn moved(&self, release: &Release) {
        self.worker.push_all(self.progress.awaiting(release));
    }
}

impl Restraint for ReleaseWait {
    fn holds_back(&self, due: &DueRestart<'_>, _: Phase) -> Option<Action> {
        let DueRestart {
            workload,
            hash_since,
            snapshot,
            ..
        } = *due;
        let (id, now) = (&workload.id, Instant::now());
        if self.releases.is_empty() {
            self.progress.awaits(id, None);
            return None;
        }
        let memories = &self.progress.memories;
        let mut changes = memories.tracked_changes(workload, snapshot);
        changes.retain(|(_, at)| *at >= hash_since);
        let since = self.progress.waiting_since(id).unwrap_or(now);
        let Some(Wait { release, until }) = self.releases.wait(workload, snapshot, &changes, since)
        else {
            self.progress.awaits(id, None);
            return None;
        };
        let until = Instant::from_std(until);
        if until <= now {
            self.progress.awaits(id, None);
            self.releases.give_up(&release);
            let notice = Notice::ReleaseUnfinished(release);
            self.progress.send(workload, notice);
            self.metrics.release_timeouts.inc();
            return None;
        }
        let is_news = self.progress.awaits(id, Some(&release));
        let notice = Notice::AwaitsRelease(release);
        self.progress.waits_untold(workload, notice.clone());
        if is_news {
            self.progress.send(workload, notice);
            self.metrics.release_waits.inc();
        }
        Some(Action::RequeueAt(until))
    }
}
