//! Watches FieldBindings, their sources and their targets.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::Api;
use kube::core::{ApiResource, GroupVersionKind};
use pod_reloader_api::FieldBinding;
use pod_reloader_core::field_binding::BindingId;
use pod_reloader_core::field_binding::metadata::BoundMetadata;
use pod_reloader_core::name::Name;
use pod_reloader_core::slim::Slim;
use tokio::task::JoinSet;

use super::binder::{Binder, Room};
use super::state::{ObjectName, Watched, What};
use crate::runtime::follower::Follower;
use crate::runtime::keyed::watch_each;
use crate::runtime::resources::{Resources, api};

/// Starts all watches. They end when the set is dropped.
pub(super) fn spawn(binder: &Arc<Binder>) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    for place in binder.namespaces() {
        watches.spawn(watch_bindings(binder.clone(), place));
    }
    watches.spawn(watch_all_objects(binder.clone()));
    watches
}

/// Watches the FieldBindings of a namespace, or of all of them.
async fn watch_bindings(binder: Arc<Binder>, place: Option<Name>) {
    let kit = &binder.kit;
    let client = kit.clients.watch.clone();
    let bindings = match &place {
        Some(namespace) => Api::<Slim<FieldBinding>>::namespaced(client, namespace.as_str()),
        None => Api::all(client),
    };
    let bindings = Resources::new(bindings, "FieldBinding", &kit.budget);
    let watches = kit.watches.clone();
    bindings
        .follow(watches, BindingFollower { binder, place })
        .await;
}

struct BindingFollower {
    binder: Arc<Binder>,
    /// The namespace. `None` stands for all of them.
    place: Option<Name>,
}

impl Follower<Slim<FieldBinding>> for BindingFollower {
    type Noted = (BindingId, Room);
    type List = ListedBindings;

    fn listed(&mut self, object: Slim<FieldBinding>) -> Option<(BindingId, Room)> {
        let id = binding_id(&object)?;
        let room = self.binder.binding_seen(id.clone(), object.0);
        Some((id, room))
    }

    fn all_listed(&mut self, list: ListedBindings) {
        let place = self.place.as_ref();
        self.binder
            .bindings_listed(place, &list.kept, list.left_out);
    }

    fn gone(&mut self, object: Slim<FieldBinding>) {
        if let Some(id) = binding_id(&object) {
            self.binder.binding_gone(&id);
        }
    }
}

/// The FieldBindings of a list.
#[derive(Default)]
struct ListedBindings {
    kept: BTreeSet<BindingId>,
    /// The number of those for which there is no room.
    left_out: usize,
}

impl Extend<(BindingId, Room)> for ListedBindings {
    fn extend<I: IntoIterator<Item = (BindingId, Room)>>(&mut self, bindings: I) {
        for (id, room) in bindings {
            match room {
                Room::Kept => {
                    self.kept.insert(id);
                }
                Room::LeftOut => self.left_out += 1,
                Room::OutOfScope => {}
            }
        }
    }
}

fn binding_id(Slim(object): &Slim<FieldBinding>) -> Option<BindingId> {
    let name = |text: &Option<String>| Name::parse(text.as_deref()?).ok();
    Some(BindingId {
        namespace: name(&object.metadata.namespace)?,
        name: name(&object.metadata.name)?,
    })
}

/// Watches the objects of each kind that a source or a target has.
async fn watch_all_objects(binder: Arc<Binder>) {
    let begin = |watched| watch_objects(binder.clone(), watched);
    // What is known of objects goes with the FieldBindings that use them.
    watch_each(binder.watched(), begin, |_| {}).await;
}

/// Watches the metadata of the objects of a kind. Those that are not bound are forgotten at once.
async fn watch_objects(binder: Arc<Binder>, watched: Watched) {
    let kit = &binder.kit;
    let resource = resource(&watched.what);
    let kind = watched.what.kind();
    let objects = api::<BoundMetadata>(&kit.clients.watch, watched.place.as_ref(), resource);
    let objects = Resources::new(objects, kind, &kit.budget);
    let watches = kit.watches.clone();
    let follower = ObjectFollower {
        binder,
        watched,
        list: 0,
    };
    objects.follow(watches, follower).await;
}

struct ObjectFollower {
    binder: Arc<Binder>,
    watched: Watched,
    /// The number of the current list.
    list: u64,
}

impl Follower<BoundMetadata> for ObjectFollower {
    type Noted = (ObjectName, Box<str>);
    type List = HashMap<ObjectName, Box<str>>;

    fn listing(&mut self) {
        self.list = self.binder.objects_listing();
    }

    fn listed(&mut self, object: BoundMetadata) -> Option<(ObjectName, Box<str>)> {
        self.binder.bound(&self.watched, &object)
    }

    fn all_listed(&mut self, list: HashMap<ObjectName, Box<str>>) {
        self.binder.objects_listed(&self.watched, self.list, list);
    }

    fn seen(&mut self, object: BoundMetadata) {
        if let Some((object, version)) = self.binder.bound(&self.watched, &object) {
            self.binder
                .object_seen(&self.watched, &object, Some(version));
        }
    }

    fn gone(&mut self, object: BoundMetadata) {
        if let Some((object, _)) = self.binder.bound(&self.watched, &object) {
            self.binder.object_seen(&self.watched, &object, None);
        }
    }
}

fn resource(what: &What) -> ApiResource {
    match what {
        What::Source(kind) => {
            let core = GroupVersionKind::gvk("", "v1", kind.as_str());
            ApiResource::from_gvk_with_plural(&core, kind.plural())
        }
        What::Target(kind) => kind.api_resource(),
    }
}
