//! Holds restarts back for releases, and takes in what watches show of these.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_core::digest::Presence;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::release::{
    AppliedRevision, Candidate, Change, Release, Releases, Revision, Tool, Wait,
};
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::report::notice::Notice;
use crate::restart::action::Action;
use crate::restart::clock::now;
use crate::restart::digests::Snapshot;
use crate::restart::parts::Parts;
use crate::restart::releases::waits;
use crate::restart::restraint::{DueRestart, Phase, Restraint};

/// The releases of a tool in one namespace may take this part of the memory of its workloads, in addition.
const PART_OF_MEMORY: usize = 8;

/// The time for which a new leader waits for the first lists of releases. Without the right to list them, or
/// without their kind, no list arrives.
const FIRST_LISTS: Duration = Duration::from_secs(5);

/// Holds a restart back while its release is under way.
pub(crate) struct ReleaseWait {
    parts: Arc<Parts>,
    /// The time for which a restart waits after the last sign of a release.
    patience: Duration,
    /// The releases, as they were last seen.
    releases: Mutex<Releases>,
    /// The number of lists that have not arrived yet.
    lists_due: watch::Sender<usize>,
}

impl ReleaseWait {
    pub(crate) fn new(parts: &Arc<Parts>, scope: &Scope) -> Self {
        let settings = &parts.settings;
        let (places, share) = (&scope.releases, settings.namespace_memory / PART_OF_MEMORY);
        Self {
            patience: settings.release_wait,
            releases: Mutex::new(Releases::new(places, share)),
            lists_due: watch::Sender::new(places.values().map(Vec::len).sum()),
            parts: parts.clone(),
        }
    }

    /// Waits until the releases have been listed, within reason.
    pub(crate) async fn first_lists(&self) {
        let mut lists_due = self.lists_due.subscribe();
        let listed = lists_due.wait_for(|lists| *lists == 0);
        // The wait fails only if the sender is dropped, which `self` holds.
        let _ = timeout(FIRST_LISTS, listed).await;
    }

    /// Takes in a revision of a release as it is now.
    pub(crate) fn seen(&self, revision: Revision) {
        let release = revision.release.clone();
        let AppliedRevision {
            is_news,
            is_first_left_out,
        } = self.releases.lock().apply(revision, now());
        if is_first_left_out {
            warn!(%release, "the releases of a namespace take more memory than their share: restarts do not wait for those that do not fit, such as this one");
        }
        if is_news {
            self.moved(&release);
        }
    }

    /// Takes in that a revision of a release is gone, or has been replaced.
    pub(crate) fn gone(&self, revision: &Revision) {
        let was_known = self.releases.lock().delete(revision);
        if was_known {
            self.moved(&revision.release);
        }
    }

    /// Takes in that a list of a tool's revisions in a namespace, or in all of them, begins.
    pub(crate) fn listing(&self, tool: Tool, namespace: Option<&Name>) {
        self.releases.lock().listing(tool, namespace);
    }

    /// Takes in that such a list is complete.
    pub(crate) fn all_listed(&self, tool: Tool, namespace: Option<&Name>) {
        self.lists_due
            .send_modify(|lists| *lists = lists.saturating_sub(1));
        let affected = self.releases.lock().listed(tool, namespace);
        for release in affected {
            self.moved(&release);
        }
    }

    /// Returns when the restart of a workload last stopped waiting for a release.
    pub(crate) fn ended(&self, id: &WorkloadId) -> Option<Instant> {
        waits::ended(&self.parts.progress.memories, id)
    }

    /// Returns the release for which the restart of a workload waits, if there is one. The restart has
    /// waited since `since`, and is due because of `changes` to the objects in `snapshot`.
    fn wait(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
        changes: &[(Reference, Instant)],
        since: Instant,
    ) -> Option<Wait> {
        let changes: Vec<_> = changes
            .iter()
            .map(|(reference, at)| {
                let object = match snapshot.objects.get(reference) {
                    Some(Presence::Present(object)) => Some(object),
                    Some(Presence::Absent) | None => None,
                };
                Change {
                    releases: object.map_or(&[], |object| &object.releases),
                    version: object.and_then(|object| object.resource_version().parse().ok()),
                    at: at.into_std(),
                }
            })
            .collect();
        let candidate = Candidate {
            releases: &workload.releases,
            kind: workload.id.kind,
            namespace: &workload.id.namespace,
            name: &workload.id.name,
        };
        let times = (since.into_std(), now());
        let releases = self.releases.lock();
        releases.wait(candidate, &changes, times, self.patience)
    }

    /// Queues the workloads whose restart waits for a release.
    fn moved(&self, release: &Release) {
        let awaiting = waits::awaiting(&self.parts.progress.memories, release);
        self.parts.worker.push_all(awaiting);
    }
}

impl Restraint for ReleaseWait {
    fn holds_back(&self, due: &DueRestart<'_>, _: Phase) -> Option<Action> {
        let (workload, snapshot) = (due.workload, due.snapshot);
        let (id, now) = (&*workload.id, Instant::now());
        let memories = &self.parts.progress.memories;
        if self.releases.lock().is_empty() {
            waits::note(memories, id, None);
            return None;
        }
        let mut changes = memories.tracked_changes(workload, snapshot);
        changes.retain(|(_, at)| *at >= due.hash_since);
        let since = waits::since(memories, id).unwrap_or(now);
        let Some(Wait { release, until }) = self.wait(workload, snapshot, &changes, since) else {
            waits::note(memories, id, None);
            return None;
        };
        let until = Instant::from_std(until);
        if until <= now {
            waits::note(memories, id, None);
            self.releases
                .lock()
                .give_up(&release, Instant::now().into_std());
            let notice = Notice::ReleaseUnfinished(release);
            self.parts.progress.send(workload, notice);
            self.parts.metrics.release_timeouts.inc();
            return None;
        }
        let is_news = waits::note(memories, id, Some(&release));
        let notice = Notice::AwaitsRelease(release);
        self.parts.progress.waits_untold(workload, notice.clone());
        if is_news {
            self.parts.progress.send(workload, notice);
            self.parts.metrics.release_waits.inc();
        }
        Some(Action::RequeueAt(until))
    }
}
