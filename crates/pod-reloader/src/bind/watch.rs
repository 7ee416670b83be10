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

use super::binder::Binder;
use super::state::{Key, What};
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
    let mut listed = BTreeSet::new();
    let id = |Slim(object): &Slim<FieldBinding>| {
        let name = |text: &Option<String>| Name::parse(text.as_deref()?).ok();
        Some(BindingId {
            namespace: name(&object.metadata.namespace)?,
            name: name(&object.metadata.name)?,
        })
    };
    let watching = bindings.follow(|event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            if let Some(id) = id(&object) {
                listed.insert(id.clone());
                binder.binding_seen(id, object.0);
            }
        }
        Event::Apply(object) => {
            if let Some(id) = id(&object) {
                binder.binding_seen(id, object.0);
            }
        }
        Event::Delete(object) => id(&object).iter().for_each(|id| binder.binding_gone(id)),
        Event::InitDone => binder.bindings_listed(place.as_ref(), &std::mem::take(&mut listed)),
    });
    watching.await;
}

/// Watches the objects of each kind and name that a source or a target has.
async fn watch_all_objects(binder: Arc<Binder>) {
    let mut keys = binder.keys();
    let mut watches = JoinSet::new();
    let mut running: HashMap<Key, AbortHandle> = HashMap::new();
    loop {
        let wanted = keys.borrow_and_update().clone();
        running.retain(|key, watch| {
            let is_wanted = wanted.contains(key);
            if !is_wanted {
                watch.abort();
                binder.objects_gone(key);
            }
            is_wanted
        });
        for key in wanted {
            let watch = running.entry(key.clone());
            watch.or_insert_with(|| watches.spawn(watch_objects(binder.clone(), key)));
        }
        tokio::select! {
            changed = keys.changed() => if changed.is_err() { return },
            Some(ended) = watches.join_next() => if !ended.is_err_and(|error| error.is_cancelled()) {
                return;
            },
        }
    }
}

/// Watches the metadata of the objects of a kind with one name.
async fn watch_objects(binder: Arc<Binder>, key: Key) {
    let resource = resource(&key.what);
    let objects = api::<BoundMetadata>(binder.watch_client(), key.place.as_ref(), resource);
    let objects = Resources::new(objects, key.what.kind(), binder.budget());
    let objects = objects.with_fields(Some(&format!("metadata.name={}", key.name)));
    let _watching = binder.watches().begin(&objects.watch_id(), key.what.kind());
    let version = |object: &BoundMetadata| match key.what {
        What::Source(_) => object.resource_version(),
        What::Target(_) => object.spec_version(),
    };
    let mut listed: HashMap<Name, Box<str>> = HashMap::new();
    let watching = objects.follow(|event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            listed.extend(object.namespace().map(|it| (it, version(&object))));
        }
        Event::Apply(object) => {
            if let Some(namespace) = object.namespace() {
                binder.object_seen(&key, &namespace, Some(version(&object)));
            }
        }
        Event::Delete(object) => {
            let namespace = object.namespace();
            namespace
                .iter()
                .for_each(|it| binder.object_seen(&key, it, None));
        }
        Event::InitDone => binder.objects_listed(&key, std::mem::take(&mut listed)),
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
