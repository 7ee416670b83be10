//! Makes each copy exact, one copy at a time.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use pod_reloader_api::ClusterConfigSync;
use pod_reloader_core::config_sync::content::{Content, Object, Step};
use pod_reloader_core::config_sync::outcome::{Obstacle, Reason};
use pod_reloader_core::config_sync::{NamespaceLabels, Target};
use pod_reloader_core::error::chain;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::calls::{Calls, reason};
use super::metrics::{SyncMetrics, Write};
use super::state::{Copying, Exact, Key, Place, State, Task};
use crate::runtime::budget::Budget;
use crate::runtime::client::Clients;
use crate::runtime::controller::ControllerErrors;
use crate::runtime::error::CallError;
use crate::runtime::events::Events;
use crate::runtime::queue::Item;
use crate::runtime::watch_age::Watches;
use crate::runtime::worker::{Handler, Worker};

/// The number of copies that are written at once. Restarts of pods must not wait for copies.
const AT_ONCE: usize = 4;
/// The time after a change of a copy at which the status is written: many copies may change at once.
pub(super) const STATUS_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a first failure, which doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after failures.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The number of attempts to write a copy that somebody else writes at the same time.
const ATTEMPTS: usize = 3;

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

/// The parts with which copies are written, for one term of leadership.
pub(super) struct Syncer {
    clients: Clients,
    pub(super) calls: Calls,
    budget: Budget,
    watches: Watches,
    pub(super) events: Events,
    metrics: SyncMetrics,
    pub(super) errors: ControllerErrors,
    pub(super) state: Mutex<State>,
    worker: Worker<Work>,
    keys: watch::Sender<BTreeSet<Key>>,
}

impl Syncer {
    pub(super) fn new(
        clients: Clients,
        budget: Budget,
        watches: Watches,
        events: Events,
        metrics: SyncMetrics,
        errors: ControllerErrors,
        own: Name,
    ) -> Self {
        Self {
            calls: Calls::new(clients.reconcile.clone(), budget.clone()),
            clients,
            budget,
            watches,
            events,
            metrics,
            errors,
            state: Mutex::new(State::new(own)),
            worker: Worker::new(AT_ONCE),
            keys: watch::Sender::default(),
        }
    }

    pub(super) fn watch_client(&self) -> Client {
        self.clients.watch.clone()
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(super) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Returns the kinds and names of all sources, as they change.
    pub(super) fn keys(&self) -> watch::Receiver<BTreeSet<Key>> {
        self.keys.subscribe()
    }

    pub(super) fn sync_seen(&self, name: Name, object: ClusterConfigSync) {
        let places = self.state.lock().sync_seen(name.clone(), object);
        self.push_status(name);
        self.push(places);
        self.publish_keys();
    }

    pub(super) fn sync_gone(&self, name: &Name) {
        let places = self.state.lock().sync_gone(name);
        self.push(places);
        self.publish_keys();
        self.show();
    }

    pub(super) fn syncs_listed(&self, listed: &BTreeSet<Name>) {
        let gone = self.state.lock().syncs_without(listed);
        gone.iter().for_each(|name| self.sync_gone(name));
    }

    pub(super) fn namespaces_listed(&self, namespaces: HashMap<Name, NamespaceLabels>) {
        let places = self.state.lock().namespaces_listed(namespaces);
        self.push(places);
    }

    pub(super) fn namespace_seen(&self, name: &Name, labels: Option<NamespaceLabels>) {
        let places = self.state.lock().namespace_seen(name, labels);
        self.push(places);
    }

    pub(super) fn targets_listed(&self, key: &Key, targets: HashMap<Name, Target>) {
        let places = self.state.lock().targets_listed(key, targets);
        self.push(places);
    }

    pub(super) fn target_seen(&self, key: &Key, namespace: &Name, target: Option<Target>) {
        let places = self.state.lock().target_seen(key, namespace, target);
        self.push(places);
    }

    pub(super) fn targets_gone(&self, key: &Key) {
        self.state.lock().targets_gone(key);
    }

    /// Handles what is due, for ever.
    pub(super) async fn run(self: &Arc<Self>) {
        self.worker.run(self).await;
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
        let now = Instant::now();
        for (sync, namespace) in places {
            self.worker.push(Work::Copy { namespace, sync }, now);
        }
    }

    fn push_status(&self, sync: Name) {
        let at = Instant::now() + STATUS_PAUSE;
        self.worker.push(Work::Status(sync), at);
    }

    /// Makes the copy of a ClusterConfigSync in a namespace exact, as far as it can be. Returns the time to look at it
    /// again.
    async fn copy(&self, place: Place) -> Option<Instant> {
        let task = self.state.lock().task(&place);
        let again = match task {
            Task::None => None,
            Task::Delete(copy, seen) => self.delete(&copy, &seen).await,
            Task::Write(copying) => self.make_exact(&copying).await,
        };
        self.push_status(place.0);
        again
    }

    async fn delete(&self, copy: &Reference, seen: &Target) -> Option<Instant> {
        match self.calls.delete(copy, seen).await {
            Ok(()) => {
                info!(%copy, "deleted a copy that is not wanted any more");
                self.metrics.wrote(Write::Delete);
                None
            }
            // The watch brings what has happened to it.
            Err(error) if error.is_not_found() || error.is_conflict() => None,
            Err(error) => {
                self.errors.count(Some(&error));
                let error = chain(&error);
                warn!(%copy, error, "cannot delete a copy that is not wanted any more, trying again");
                Some(Instant::now() + LONGEST_PAUSE)
            }
        }
    }

    async fn make_exact(&self, copying: &Copying) -> Option<Instant> {
        let (sync, namespace) = (&copying.sync, &copying.copy.namespace);
        let content = match self.content(copying).await {
            Ok(Ok((version, content))) => {
                let current = Ok((version, content.digest));
                self.state.lock().read(sync, current);
                content
            }
            Ok(Err(obstacle)) => {
                // What is not found or not right comes by the watch. A right does not.
                let again = obstacle == Obstacle::SourceForbidden;
                self.state.lock().read(sync, Err(obstacle));
                return again.then(|| Instant::now() + LONGEST_PAUSE);
            }
            Err(error) => return self.failed(copying, &error),
        };
        let exact = copying.exact.as_ref();
        let exact = exact.filter(|exact| exact.digest == content.digest);
        if let Some(exact) = exact.filter(|it| copying.seen.as_ref() == Some(&it.version)) {
            self.state.lock().exact(sync, namespace, exact.clone());
            return None;
        }
        // It is repaired, and not just given a new content.
        let had_it = exact.is_some();
        let now = Instant::now().into_std();
        if let Some(next) = copying.pace.not_before(now).filter(|_| had_it) {
            return Some(next.into());
        }
        match self.write(copying, &content).await {
            Ok(Written::Exact { version, writes }) => {
                let exact = Exact {
                    version,
                    digest: content.digest,
                };
                let mut state = self.state.lock();
                state.exact(sync, namespace, exact);
                if had_it && writes > 0 {
                    let mut pace = copying.pace;
                    pace.wrote(now);
                    state.repaired(sync, namespace, pace);
                }
                None
            }
            Ok(Written::NotOurs) => {
                self.state
                    .lock()
                    .failed(sync, namespace, Reason::ExistsNotOurs);
                None
            }
            Ok(Written::Waits) => None,
            Err(error) if error.is_conflict() => Some(Instant::now() + FIRST_PAUSE),
            Err(error) => self.failed(copying, &error),
        }
    }

    /// Returns the content of copies, and the resourceVersion of the source that it was read from. Copies that are
    /// written at the same time share one read.
    async fn content(
        &self,
        copying: &Copying,
    ) -> Result<Result<(Box<str>, Arc<Content>), Obstacle>, CallError> {
        let mut reading = copying.source.lock().await;
        if reading.version == copying.source_version
            && let Some(content) = reading.content.upgrade()
        {
            return Ok(Ok((reading.version.clone(), content)));
        }
        let source = match self.calls.read(&copying.sync.source).await {
            Ok(Some(source)) => source,
            Ok(None) => return Ok(Err(Obstacle::SourceNotFound)),
            Err(error) if error.reason() == "forbidden" => {
                self.errors.count(Some(&error));
                return Ok(Err(Obstacle::SourceForbidden));
            }
            Err(error) => return Err(error),
        };
        let version: Box<str> = source.resource_version().into();
        Ok(match copying.sync.content(source) {
            Ok(content) => {
                let content = Arc::new(content);
                reading.version = version.clone();
                reading.content = Arc::downgrade(&content);
                Ok((version, content))
            }
            Err(not_copied) => Err(Obstacle::Source(not_copied)),
        })
    }

    /// Writes a copy until it is exact.
    async fn write(&self, copying: &Copying, content: &Content) -> Result<Written, CallError> {
        let (sync, copy) = (&copying.sync, &copying.copy);
        let mut is_there = copying.seen.is_some();
        let mut writes = 0;
        let mut attempts = 0..ATTEMPTS;
        loop {
            let object: Option<Object> = match is_there {
                true => self.calls.read(copy).await?,
                false => None,
            };
            let step = object
                .as_ref()
                .map(|object| sync.step(&copy.namespace, content, object));
            let manifest = || sync.manifest(&copy.namespace, content, object.as_ref());
            let written = match (step, &object) {
                (None, _) | (_, None) => {
                    let created = self.calls.create(copy, manifest()).await;
                    created.inspect(|_| self.wrote(copy, Write::Create))
                }
                (Some(Step::Nothing), Some(object)) => {
                    let version = object.resource_version().into();
                    return Ok(Written::Exact { version, writes });
                }
                (Some(Step::LeaveAlone), _) => return Ok(Written::NotOurs),
                (Some(Step::Wait), _) => return Ok(Written::Waits),
                (Some(Step::Replace), _) => {
                    let replaced = self.calls.replace(copy, manifest()).await;
                    replaced.inspect(|_| self.wrote(copy, Write::Update))
                }
                (Some(Step::Recreate), Some(object)) => {
                    let deleted = self.calls.delete(copy, &object.target()).await;
                    deleted.map(|()| {
                        self.wrote(copy, Write::Delete);
                        object.target()
                    })
                }
            };
            match written {
                Ok(_) if step == Some(Step::Recreate) => {
                    writes += 1;
                    // Finalizers may keep it for a while.
                    is_there = true;
                }
                // Whatever the apiserver has made of it: a webhook that changes it would do so again.
                Ok(target) => {
                    let version = target.resource_version;
                    return Ok(Written::Exact {
                        version,
                        writes: writes + 1,
                    });
                }
                Err(error) if error.is_conflict() && attempts.next().is_some() => is_there = true,
                Err(error) => return Err(error),
            }
        }
    }

    fn wrote(&self, copy: &Reference, write: Write) {
        self.metrics.wrote(write);
        match write {
            Write::Create => info!(%copy, "created a copy"),
            Write::Update => info!(%copy, "updated a copy"),
            Write::Delete => info!(%copy, "deleted a copy, to create it again"),
        }
    }

    /// Notes that a copy cannot be written. Returns the time to try again.
    fn failed(&self, copying: &Copying, error: &CallError) -> Option<Instant> {
        let (sync, namespace) = (&copying.sync, &copying.copy.namespace);
        let Some(reason) = reason(error) else {
            debug!(copy = %copying.copy, "the namespace of a copy is gone, or about to be");
            return None;
        };
        self.errors.count(Some(error));
        let failures = self.state.lock().failed(sync, namespace, reason.clone());
        let pause = FIRST_PAUSE * 2_u32.pow(failures.saturating_sub(1).min(6));
        let pause = pause.min(LONGEST_PAUSE);
        // The words of the apiserver may quote a value.
        let reason = reason.as_str();
        warn!(copy = %copying.copy, reason, cause = error.reason(), ?pause, "cannot write a copy, trying again");
        Some(Instant::now() + pause)
    }
}

/// The result of writing a copy.
enum Written {
    /// The copy is exact.
    Exact {
        /// Its resourceVersion.
        version: Box<str>,
        /// The number of writes that it took.
        writes: usize,
    },
    /// The object is somebody else's.
    NotOurs,
    /// The copy is being deleted.
    Waits,
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
