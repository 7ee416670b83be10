//! Watches FieldBindings, their sources and their targets.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Api;
use kube::core::{ApiResource, GroupVersionKind};
use pod_reloader_api::FieldBinding;
use pod_reloader_core::field_binding::metadata::BoundMetadata;
use pod_reloader_core::slim::Slim;
use tokio::task::JoinSet;

use super::binder::Binder;
use super::state::{ObjectName, Watched, What};
use crate::runtime::follower::Follower;
use crate::runtime::keyed::watch_each;
use crate::runtime::own::follow;
use crate::runtime::resources::{Resources, api};

/// Starts all watches. They end when the set is dropped.
pub(super) fn spawn(binder: &Arc<Binder>) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    for place in binder.scope.watched() {
        let (kit, client) = (binder.kit.clone(), binder.kit.clients.watch.clone());
        let bindings = match &place {
            Some(namespace) => Api::<Slim<FieldBinding>>::namespaced(client, namespace.as_str()),
            None => Api::all(client),
        };
        let following = follow(kit, binder.clone(), "FieldBinding", bindings, place);
        watches.spawn(following);
    }
    watches.spawn(watch_all_objects(binder.clone()));
    watches
}

/// Watches the objects of each kind that a source or a target has.
async fn watch_all_objects(binder: Arc<Binder>) {
    let begin = |watched| watch_objects(binder.clone(), watched);
    // What is known of objects goes with the FieldBindings that use them.
    watch_each(binder.watched.subscribe(), begin, |_| {}).await;
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
        self.list = self.binder.state.lock().objects.listing();
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
