//! The parts with which copies are kept exact, for one term of leadership.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_api::ClusterConfigSync;
use pod_reloader_core::config_sync::{NamespaceLabels, Target};
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::name::Name;
use tokio::sync::watch;
use tokio::time::Instant;

use super::by_namespace::ByNamespace;
use super::calls::SyncCalls;
use super::metrics::SyncMetrics;
use super::state::{Key, Place, State};
use crate::live::keys::Keys;
use crate::runtime::kit::Kit;
use crate::runtime::own::{Room, Serves};
use crate::runtime::queue::Item;
use crate::runtime::worker::{Handler, Worker};

/// The number of copies that are written at once. Restarts of pods must not wait for copies: while 1,000 of them were
/// written, a restart took 2.0 times as long with four, and 1.4 times with two, for which the copies took 3.9 s in place
/// of 3.4 s.
const AT_ONCE: usize = 2;
/// The time after a change of a copy at which the status is written: many copies may change at once.
pub(super) const STATUS_PAUSE: Duration = Duration::from_secs(1);
/// Something to do for a ClusterConfigSync.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Work {
    /// To make the copy in a namespace exact.
    Copy {
        /// The namespace, in whose turn this is done.
        namespace: Name,
        sync: Name,
    },
    /// To write the status.
    Status(Name),
}

impl Item for Work {
    fn namespace(&self) -> &Name {
        match self {
            Self::Copy { namespace, .. } => namespace,
            Self::Status(sync) => sync,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy { namespace, sync } => write!(f, "ClusterConfigSync {sync} in {namespace}"),
            Self::Status(sync) => write!(f, "the status of ClusterConfigSync {sync}"),
        }
    }
}

/// The parts that this installation shares with no other.
#[derive(Clone)]
pub struct Own {
    /// The namespace of the operator.
    pub namespace: Name,
    /// The keys that seals are made with.
    pub keys: Arc<Keys>,
}

/// The parts with which copies are written, for one term of leadership.
pub(super) struct Syncer {
    pub(super) kit: Kit,
    pub(super) own: Own,
    pub(super) calls: SyncCalls,
    pub(super) metrics: SyncMetrics,
    pub(super) state: Mutex<State>,
    pub(super) worker: Worker<Work>,
    /// The kinds and names of all sources, as they change.
    pub(super) keys: watch::Sender<BTreeSet<Key>>,
    /// The keys of seals when namespaces were last listed.
    keyring: Mutex<Option<Arc<Keyring>>>,
}

impl Syncer {
    pub(super) fn new(kit: Kit, metrics: SyncMetrics, own: Own) -> Self {
        Self {
            state: Mutex::new(State::new(own.namespace.clone())),
            own,
            calls: SyncCalls(kit.calls()),
            kit,
            metrics,
            worker: Worker::new(AT_ONCE),
            keys: watch::Sender::default(),
            keyring: Mutex::default(),
        }
    }

    pub(super) fn namespaces_listed(&self, namespaces: ByNamespace<NamespaceLabels>) {
        let places = self.state.lock().namespaces_listed(namespaces);
        self.push(places);
        // Everything is listed every few minutes. That is soon enough for new keys: the earlier ones still hold.
        if self.has_other_keys() {
            let all = self.state.lock().all();
            self.push(all);
        }
    }

    /// Returns true if the keys of seals are others than when this was last asked.
    fn has_other_keys(&self) -> bool {
        let now = self.own.keys.keyring();
        let mut last = self.keyring.lock();
        let is_news = last.is_some() && *last != now;
        *last = now;
        is_news
    }

    pub(super) fn namespace_seen(&self, name: &Name, labels: Option<NamespaceLabels>) {
        let places = self.state.lock().namespace_seen(name, labels);
        self.push(places);
    }

    pub(super) fn targets_listed(&self, key: &Key, targets: ByNamespace<Target>) {
        let places = self.state.lock().targets_listed(key, targets);
        self.push(places);
    }

    pub(super) fn target_seen(&self, key: &Key, namespace: &Name, target: Option<Target>) {
        let places = self.state.lock().target_seen(key, namespace, target);
        self.push(places);
    }

    /// Shows how many copies there are.
    pub(super) fn show(&self) {
        let (exact, failed, not_ready) = self.state.lock().counts();
        self.metrics.copies.set(exact as i64);
        self.metrics.conflicts.set(failed as i64);
        self.metrics.not_ready.set(not_ready as i64);
    }

    fn publish_keys(&self) {
        let keys = self.state.lock().keys();
        self.keys.send_if_modified(|known| {
            let is_news = *known != keys;
            *known = keys;
            is_news
        });
    }

    fn push(&self, places: Vec<Place>) {
        let copies = places.into_iter();
        let copies = copies.map(|(sync, namespace)| Work::Copy { namespace, sync });
        self.worker.push_all(copies);
    }

    pub(super) fn push_status(&self, sync: Name) {
        let at = Instant::now() + STATUS_PAUSE;
        self.worker.push(Work::Status(sync), at);
    }
}

impl Serves for Syncer {
    type Kind = ClusterConfigSync;
    type Id = Name;

    fn id(object: &ClusterConfigSync) -> Option<Name> {
        Name::parse(object.metadata.name.as_deref()?).ok()
    }

    fn seen(&self, name: Name, object: ClusterConfigSync) -> Room {
        let places = self.state.lock().sync_seen(name.clone(), object);
        self.push_status(name);
        self.push(places);
        self.publish_keys();
        Room::Kept
    }

    fn gone(&self, name: &Name) {
        let places = self.state.lock().sync_gone(name);
        self.push(places);
        self.publish_keys();
        self.show();
    }

    fn known(&self, _place: Option<&Name>) -> Vec<Name> {
        self.state.lock().names()
    }
}

impl Handler for Syncer {
    type Item = Work;

    async fn handle(&self, work: &Work) -> Option<Instant> {
        match work {
            Work::Copy { namespace, sync } => self.copy((sync.clone(), namespace.clone())).await,
            Work::Status(sync) => self.write_status(sync).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_number_of_copies_at_once_is_right() {
        let page = include_str!("../../../../docs/architecture.md");
        assert_eq!(AT_ONCE, 2);
        assert!(page.contains("writes two synced copies at a time"));
    }
}
