//! Holds restarts back for releases, and takes in what watches show of these.

use std::sync::Arc;

use pod_reloader_core::name::Name;
use pod_reloader_core::release::{AppliedRevision, Release, Revision, Tool, Wait};
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;
use tracing::warn;

use crate::metrics::Metrics;
use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::memory::Memories;
use crate::restart::parts::Parts;
use crate::restart::progress::Progress;
use crate::restart::releases::memory::Releases;
use crate::restart::releases::waits;
use crate::restart::restraint::{DueRestart, Phase, Restraint};
use crate::runtime::worker::Worker;

/// The releases of a tool in one namespace may take this part of the memory of its workloads, in addition.
const PART_OF_MEMORY: usize = 8;

/// Holds a restart back while its release is under way.
pub(crate) struct ReleaseWait {
    releases: Releases,
    memories: Memories,
    progress: Arc<Progress>,
    metrics: Metrics,
    worker: Arc<Worker<WorkloadId>>,
}

impl ReleaseWait {
    pub(crate) fn new(parts: &Parts, scope: &Scope) -> Self {
        let settings = &parts.settings;
        Self {
            releases: Releases::new(
                settings.release_wait,
                scope.releases(),
                settings.namespace_memory / PART_OF_MEMORY,
            ),
            memories: parts.progress.memories.clone(),
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

    /// Returns when the restart of a workload last stopped waiting for a release.
    pub(crate) fn ended(&self, id: &WorkloadId) -> Option<Instant> {
        waits::ended(&self.memories, id)
    }

    /// Queues the workloads whose restart waits for a release.
    fn moved(&self, release: &Release) {
        self.worker
            .push_all(waits::awaiting(&self.memories, release));
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
        let (id, now) = (&*workload.id, Instant::now());
        if self.releases.is_empty() {
            waits::note(&self.memories, id, None);
            return None;
        }
        let mut changes = self.memories.tracked_changes(workload, snapshot);
        changes.retain(|(_, at)| *at >= hash_since);
        let since = waits::since(&self.memories, id).unwrap_or(now);
        let Some(Wait { release, until }) = self.releases.wait(workload, snapshot, &changes, since)
        else {
            waits::note(&self.memories, id, None);
            return None;
        };
        let until = Instant::from_std(until);
        if until <= now {
            waits::note(&self.memories, id, None);
            self.releases.give_up(&release);
            let notice = Notice::ReleaseUnfinished(release);
            self.progress.send(workload, notice);
            self.metrics.release_timeouts.inc();
            return None;
        }
        let is_news = waits::note(&self.memories, id, Some(&release));
        let notice = Notice::AwaitsRelease(release);
        self.progress.waits_untold(workload, notice.clone());
        if is_news {
            self.progress.send(workload, notice);
            self.metrics.release_waits.inc();
        }
        Some(Action::RequeueAt(until))
    }
}
