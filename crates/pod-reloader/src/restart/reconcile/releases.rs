//! Lets restarts wait for releases that are under way.

use pod_reloader_core::name::Name;
use pod_reloader_core::release::{AppliedRevision, Release, Revision, Tool, Wait};
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;
use tracing::warn;

use super::Reconciler;
use crate::report::notice::Notice;
use crate::restart::digests::Snapshot;

impl Reconciler {
    /// Takes in a revision of a release as it is now.
    pub(crate) fn release_seen(&self, revision: Revision) {
        let release = revision.release.clone();
        let AppliedRevision {
            is_news,
            is_first_left_out,
        } = self.releases.apply(revision);
        if is_first_left_out {
            warn!(%release, "the releases of a namespace take more memory than their share: restarts do not wait for those that do not fit, such as this one");
        }
        if is_news {
            self.release_moved(&release);
        }
    }

    /// Takes in that a revision of a release is gone, or has been replaced.
    pub(crate) fn release_gone(&self, revision: &Revision) {
        if self.releases.delete(revision) {
            self.release_moved(&revision.release);
        }
    }

    /// Takes in that a list of a tool's revisions in a namespace, or in all of them, begins.
    pub(crate) fn releases_listing(&self, tool: Tool, namespace: Option<&Name>) {
        self.releases.listing(tool, namespace);
    }

    /// Takes in that such a list is complete.
    pub(crate) fn releases_listed(&self, tool: Tool, namespace: Option<&Name>) {
        for release in self.releases.all_listed(tool, namespace) {
            self.release_moved(&release);
        }
    }

    /// Queues the workloads whose restart waits for a release.
    fn release_moved(&self, release: &Release) {
        self.worker.push_all(self.progress.awaiting(release));
    }

    /// Returns until when the restart of a workload waits for a release, if it does, and reports that.
    /// The workload has carried its config hash since `hash_since`.
    pub(super) fn awaits_release(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
        hash_since: Instant,
    ) -> Option<Instant> {
        let (id, now) = (&workload.id, Instant::now());
        if self.releases.is_empty() {
            self.progress.awaits(id, None);
            return None;
        }
        let mut changes = self.memories.tracked_changes(workload, snapshot);
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
        if self.progress.awaits(id, Some(&release)) {
            self.progress.send(workload, Notice::AwaitsRelease(release));
            self.metrics.release_waits.inc();
        }
        Some(until)
    }
}
