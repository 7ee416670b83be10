//! Watches FieldBindings, their sources and their targets.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::Api;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::Event;
use pod_reloader_api::FieldBinding;
use pod_reloader_core::field_binding::BindingId;
use pod_reloader_core::field_binding::metadata::BoundMetadata;
use pod_reloader_core::name::Name;
use pod_reloader_core::slim::Slim;
use tokio::task::{AbortHandle, JoinSet};

use super::binder::{Binder, Room};
use super::state::{ObjectName, Watched, What};
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
    let client = binder.watch_client().clone();
    let bindings = match &place {
        Some(namespace) => Api::<Slim<FieldBinding>>::namespaced(client, namespace.as_str()),
        None => Api::all(client),
    };
    let bindings = Resources::new(bindings, "FieldBinding", binder.budget());
    let _watching = binder.watches().begin(&bindings.watch_id(), "FieldBinding");
    let (mut listed, mut left_out) = (BTreeSet::new(), 0);
    let id = |Slim(object): &Slim<FieldBinding>| {
        let name = |text: &Option<String>| Name::parse(text.as_deref()?).ok();
        Some(BindingId {
            namespace: name(&object.metadata.namespace)?,
            name: name(&object.metadata.name)?,
        })
    };
    let watching = bindings.follow(|event| match event {
        Event::Init => (listed, left_out) = (BTreeSet::new(), 0),
        Event::InitApply(object) => {
            let Some(id) = id(&object) else {
                return;
            };
            match binder.binding_seen(id.clone(), object.0) {
                Room::Kept => {
                    listed.insert(id);
                }
                Room::LeftOut => left_out += 1,
                Room::OutOfScope => {}
            }
        }
        Event::Apply(object) => {
            if let Some(id) = id(&object) {
                binder.binding_seen(id, object.0);
            }
        }
        Event::Delete(object) => id(&object).iter().for_each(|id| binder.binding_gone(id)),
        Event::InitDone => {
            let listed = std::mem::take(&mut listed);
            binder.bindings_listed(place.as_ref(), &listed, left_out);
        }
    });
    watching.await;
}

/// Watches the objects of each kind that a source or a target has.
async fn watch_all_objects(binder: Arc<Binder>) {
    let mut watched = binder.watched();
    let mut watches = JoinSet::new();
    let mut running: HashMap<Watched, AbortHandle> = HashMap::new();
    loop {
        let wanted = watched.borrow_and_update().clone();
        running.retain(|watched, watch| {
            let is_wanted = wanted.contains(watched);
            if !is_wanted {
                watch.abort();
            }
            is_wanted
        });
        for watched in wanted {
            let watch = running.entry(watched.clone());
            watch.or_insert_with(|| watches.spawn(watch_objects(binder.clone(), watched)));
        }
        tokio::select! {
            changed = watched.changed() => if changed.is_err() { return },
            Some(ended) = watches.join_next() => if !ended.is_err_and(|error| error.is_cancelled()) {
                return;
            },
        }
    }
}

/// Watches the metadata of the objects of a kind. Those that are not bound are forgotten at once.
async fn watch_objects(binder: Arc<Binder>, watched: Watched) {
    let resource = resource(&watched.what);
    let kind = watched.what.kind();
    let objects = api::<BoundMetadata>(binder.watch_client(), watched.place.as_ref(), resource);
    let objects = Resources::new(objects, kind, binder.budget());
    let _watching = binder.watches().begin(&objects.watch_id(), kind);
    let mut list = 0;
    let mut listed: HashMap<ObjectName, Box<str>> = HashMap::new();
    let watching = objects.follow(|event| match event {
        Event::Init => {
            listed.clear();
            list = binder.objects_listing();
        }
        Event::InitApply(object) => listed.extend(binder.bound(&watched, &object)),
        Event::Apply(object) => {
            if let Some((object, version)) = binder.bound(&watched, &object) {
                binder.object_seen(&watched, &object, Some(version));
            }
        }
        Event::Delete(object) => {
            if let Some((object, _)) = binder.bound(&watched, &object) {
                binder.object_seen(&watched, &object, None);
            }
        }
        Event::InitDone => binder.objects_listed(&watched, list, std::mem::take(&mut listed)),
    });
    watching.await;
}

fn resource(what: &What) -> ApiResource {
    match what {
        What::Source(kind) => {
            let core = GroupVersionKind::gvk("", "v1", kind.as_str());
            ApiResource::from_gvk_with_plural(&core, kind.plural())
        }
        What::Target(kind) => {
            let its = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
            ApiResource::from_gvk_with_plural(&its, kind.resource)
        }
    }
}
