//! The parts with which fields are kept equal to keys, for one term of leadership.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_api::FieldBinding;
use pod_reloader_core::field_binding::BindingId;
use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::field_binding::metadata::BoundMetadata;
use pod_reloader_core::name::Name;
use pod_reloader_core::scope::Scope;
use tokio::sync::watch;
use tokio::time::Instant;

use super::calls::BindCalls;
use super::metrics::BindMetrics;
use super::state::{ObjectName, State, Watched, What};
use super::turns::Turns;
use crate::runtime::kit::Kit;
use crate::runtime::own::{Room, Serves};
use crate::runtime::queue::Item;
use crate::runtime::worker::{Handler, Worker};

/// The number of FieldBindings that are looked at once. Restarts of pods must not wait for them.
const AT_ONCE: usize = 2;
/// The shortest time between two writes of one status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Something to do for a FieldBinding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Work {
    /// To look at its fields.
    Fields(BindingId),
    /// To write its status.
    Status(BindingId),
}

impl Item for Work {
    fn namespace(&self) -> &Name {
        match self {
            Self::Fields(id) | Self::Status(id) => &id.namespace,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fields(id) => write!(f, "{id}"),
            Self::Status(id) => write!(f, "the status of {id}"),
        }
    }
}

/// The parts with which fields are written, for one term of leadership.
pub(super) struct Binder {
    pub(super) kit: Kit,
    pub(super) calls: BindCalls,
    pub(super) metrics: BindMetrics,
    pub(super) state: Mutex<State>,
    pub(super) turns: Mutex<Turns>,
    pub(super) scope: Scope,
    pub(super) worker: Worker<Work>,
    /// The kinds of sources and targets to watch, as they change.
    pub(super) watched: watch::Sender<BTreeSet<Watched>>,
}

impl Binder {
    /// Returns parts that bind fields of `kinds`.
    pub(super) fn new(
        kit: Kit,
        metrics: BindMetrics,
        scope: Scope,
        kinds: Arc<[BoundKind]>,
    ) -> Self {
        Self {
            calls: BindCalls(kit.calls()),
            kit,
            metrics,
            state: Mutex::new(State::new(kinds, scope.clone())),
            turns: Mutex::default(),
            scope,
            worker: Worker::new(AT_ONCE),
            watched: watch::Sender::default(),
        }
    }

    /// Takes in the versions of all objects of a watch that are bound.
    pub(super) fn objects_listed(
        &self,
        watched: &Watched,
        list: u64,
        objects: HashMap<ObjectName, Box<str>>,
    ) {
        let bindings = self.state.lock().objects_listed(watched, list, objects);
        self.push(bindings);
    }

    /// Takes in the version of an object that is bound, or that it is gone.
    pub(super) fn object_seen(
        &self,
        watched: &Watched,
        object: &ObjectName,
        version: Option<Box<str>>,
    ) {
        let bindings = self.state.lock().object_seen(watched, object, version);
        self.push(bindings);
    }

    /// Returns an object and its version. `None` if no FieldBinding reads or writes it.
    pub(super) fn bound(
        &self,
        watched: &Watched,
        object: &BoundMetadata,
    ) -> Option<(ObjectName, Box<str>)> {
        let (namespace, name) = object.names()?;
        let state = self.state.lock();
        if !state.objects.is_bound(watched, namespace, name) {
            return None;
        }
        let version = match watched.what {
            What::Source(_) => object.resource_version(),
            What::Target(_) => object.spec_version(),
        };
        let object = ObjectName {
            namespace: Name::parse(namespace).ok()?,
            name: Name::parse(name).ok()?,
        };
        Some((object, version))
    }

    /// Shows how many FieldBindings there are for each reason.
    pub(super) fn show(&self) {
        let state = self.state.lock();
        self.metrics.show(|reason| state.count(reason));
    }

    fn publish_watches(&self) {
        if let Some(watched) = self.state.lock().objects.news() {
            self.watched.send_replace(watched);
        }
    }

    pub(super) fn push(&self, bindings: Vec<BindingId>) {
        self.worker.push_all(bindings.into_iter().map(Work::Fields));
    }

    pub(super) fn push_status(&self, id: BindingId) {
        let now = Instant::now();
        let written = self.state.lock().status_written_at(&id);
        let at = written.map_or(now, |at| now.max(at + STATUS_INTERVAL));
        self.worker.push(Work::Status(id), at);
    }
}

impl Serves for Binder {
    type Kind = FieldBinding;
    type Id = BindingId;

    fn id(object: &FieldBinding) -> Option<BindingId> {
        let name = |text: &Option<String>| Name::parse(text.as_deref()?).ok();
        Some(BindingId {
            namespace: name(&object.metadata.namespace)?,
            name: name(&object.metadata.name)?,
        })
    }

    fn seen(&self, id: BindingId, object: FieldBinding) -> Room {
        if !self.scope.covers(&id.namespace) {
            return Room::OutOfScope;
        }
        let mut state = self.state.lock();
        let bindings = state.binding_seen(id.clone(), object);
        let (is_kept, has_status) = (state.is_kept(&id), state.has_status(&id));
        drop(state);
        self.push(bindings);
        if has_status {
            self.push_status(id);
        }
        self.publish_watches();
        match is_kept {
            true => Room::Kept,
            false => Room::LeftOut,
        }
    }

    fn gone(&self, id: &BindingId) {
        let bindings = self.state.lock().binding_gone(id);
        self.push(bindings);
        self.publish_watches();
        self.show();
    }

    fn known(&self, place: Option<&Name>) -> Vec<BindingId> {
        self.state.lock().bindings_in(place)
    }

    fn all_listed(&self, place: Option<&Name>, left_out: usize) {
        let bindings = self.state.lock().all_listed(place, left_out);
        self.push(bindings);
        self.show();
    }
}

impl Handler for Binder {
    type Item = Work;

    async fn handle(&self, work: &Work) -> Option<Instant> {
        match work {
            Work::Fields(id) => self.look(id).await,
            Work::Status(id) => self.write_status(id).await,
        }
    }
}
