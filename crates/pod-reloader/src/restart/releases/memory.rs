//! Remembers the releases, for which restarts wait while they are under way.

use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_core::digest::Presence;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::release::{
    AppliedRevision, Candidate, Change, Places, Release, Releases as Rules, Revision, Tool, Wait,
};
use pod_reloader_core::workload::Workload;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::restart::clock::now;
use crate::restart::digests::Snapshot;

/// The time for which a new leader waits for the first lists of releases. Without the right to list them, or
/// without their kind, no list arrives.
const FIRST_LISTS: Duration = Duration::from_secs(5);

/// The releases, as they were last seen.
pub(crate) struct Releases {
    /// The time for which a restart waits after the last sign of a release.
    patience: Duration,
    rules: Mutex<Rules>,
    /// The number of lists that have not arrived yet.
    lists_due: watch::Sender<usize>,
}

impl Releases {
    /// Returns no releases. Those of a tool in one namespace may take `share` bytes.
    pub(crate) fn new(patience: Duration, places: &Places, share: usize) -> Self {
        Self {
            patience,
            rules: Mutex::new(Rules::new(places, share)),
            lists_due: watch::Sender::new(places.values().map(Vec::len).sum()),
        }
    }

    /// Waits until the releases have been listed, within reason.
    pub(crate) async fn listed(&self) {
        let mut lists_due = self.lists_due.subscribe();
        let listed = lists_due.wait_for(|lists| *lists == 0);
        // The wait fails only if the sender is dropped, which `self` holds.
        let _ = timeout(FIRST_LISTS, listed).await;
    }

    /// Takes in a revision.
    pub(crate) fn apply(&self, revision: Revision) -> AppliedRevision {
        self.rules.lock().apply(revision, now())
    }

    /// Forgets a revision that is gone. Returns true if it was known.
    pub(crate) fn delete(&self, revision: &Revision) -> bool {
        self.rules.lock().delete(revision)
    }

    /// Takes in that a list of a tool's revisions in a namespace, or in all of them, begins.
    pub(crate) fn listing(&self, tool: Tool, namespace: Option<&Name>) {
        self.rules.lock().listing(tool, namespace);
    }

    /// Takes in that such a list is complete. Forgets what it does not contain, and returns the releases that this
    /// affects.
    pub(crate) fn all_listed(&self, tool: Tool, namespace: Option<&Name>) -> Vec<Release> {
        self.lists_due
            .send_modify(|lists| *lists = lists.saturating_sub(1));
        self.rules.lock().listed(tool, namespace)
    }

    /// Notes that a restart has waited for a release in vain.
    pub(crate) fn give_up(&self, release: &Release) {
        self.rules.lock().give_up(release, now());
    }

    /// Returns true if no release is stored, so that none is waited for.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.lock().is_empty()
    }

    /// Returns the release for which the restart of a workload waits, if there is one. The restart has
    /// waited since `since`, and is due because of `changes` to the objects in `snapshot`.
    pub(crate) fn wait(
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
        let rules = self.rules.lock();
        rules.wait(candidate, &changes, times, self.patience)
    }
}
