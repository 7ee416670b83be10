//! Watches ClusterConfigSyncs, namespaces, and the objects that have the names of copies.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::Api;
use kube::runtime::watcher::Event;
use pod_reloader_api::ClusterConfigSync;
use pod_reloader_core::config_sync::{NamespaceMetadata, Target, TargetMetadata};
use pod_reloader_core::name::Name;
use pod_reloader_core::slim::Slim;
use tokio::task::{AbortHandle, JoinSet};

use super::by_namespace::ByNamespace;
use super::state::Key;
use super::syncer::Syncer;
use crate::runtime::resources::{Resources, api};

/// Starts all watches. They end when the set is dropped.
pub(super) fn spawn(syncer: &Arc<Syncer>) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    watches.spawn(watch_syncs(syncer.clone()));
    watches.spawn(watch_namespaces(syncer.clone()));
    watches.spawn(watch_all_targets(syncer.clone()));
    watches
}

async fn watch_syncs(syncer: Arc<Syncer>) {
    let syncs = Api::<Slim<ClusterConfigSync>>::all(syncer.watch_client());
    let syncs = Resources::new(syncs, "ClusterConfigSync", syncer.budget());
    let _watching = syncer
        .watches()
        .begin(&syncs.watch_id(), "ClusterConfigSync");
    let mut listed = BTreeSet::new();
    let name =
        |object: &Slim<ClusterConfigSync>| Name::parse(object.0.metadata.name.as_deref()?).ok();
    let watching = syncs.follow(|event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            if let Some(name) = name(&object) {
                listed.insert(name.clone());
                syncer.sync_seen(name, object.0);
            }
        }
        Event::Apply(object) => {
            if let Some(name) = name(&object) {
                syncer.sync_seen(name, object.0);
            }
        }
        Event::Delete(object) => name(&object).iter().for_each(|name| syncer.sync_gone(name)),
        Event::InitDone => syncer.syncs_listed(&std::mem::take(&mut listed)),
    });
    watching.await;
}

async fn watch_namespaces(syncer: Arc<Syncer>) {
    let namespaces = Api::<NamespaceMetadata>::all(syncer.watch_client());
    let namespaces = Resources::new(namespaces, "Namespace", syncer.budget());
    let _watching = syncer.watches().begin(&namespaces.watch_id(), "Namespace");
    let mut listed = ByNamespace::default();
    let watching = namespaces.follow(|event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            listed.extend(object.name().map(|name| (name, object.labels())));
        }
        Event::Apply(object) => {
            if let Some(name) = object.name() {
                syncer.namespace_seen(&name, Some(object.labels()));
            }
        }
        Event::Delete(object) => {
            let name = object.name();
            name.iter()
                .for_each(|name| syncer.namespace_seen(name, None));
        }
        Event::InitDone => syncer.namespaces_listed(std::mem::take(&mut listed)),
    });
    watching.await;
}

/// Watches the objects of each kind and name that a source has.
async fn watch_all_targets(syncer: Arc<Syncer>) {
    let mut keys = syncer.keys();
    let mut watches = JoinSet::new();
    let mut running: HashMap<Key, AbortHandle> = HashMap::new();
    loop {
        let wanted = keys.borrow_and_update().clone();
        running.retain(|key, watch| {
            let is_wanted = wanted.contains(key);
            if !is_wanted {
                watch.abort();
                syncer.targets_gone(key);
            }
            is_wanted
        });
        for key in wanted {
            let watch = running.entry(key.clone());
            watch.or_insert_with(|| watches.spawn(watch_targets(syncer.clone(), key)));
        }
        tokio::select! {
            changed = keys.changed() => if changed.is_err() { return },
            Some(ended) = watches.join_next() => if !ended.is_err_and(|error| error.is_cancelled()) {
                return;
            },
        }
    }
}

/// Watches the metadata of all objects of a kind with one name: the source, its copies, and what others have.
async fn watch_targets(syncer: Arc<Syncer>, key: Key) {
    let (kind, name) = key.clone();
    let targets = api::<TargetMetadata>(&syncer.watch_client(), None, kind);
    let targets = Resources::new(targets, kind.as_str(), syncer.budget());
    let targets = targets.with_fields(Some(&format!("metadata.name={name}")));
    let _watching = syncer.watches().begin(&targets.watch_id(), kind.as_str());
    let mut listed: ByNamespace<Target> = ByNamespace::default();
    let watching = targets.follow(|event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            listed.extend(object.namespace().map(|it| (it, object.into())));
        }
        Event::Apply(object) => {
            if let Some(namespace) = object.namespace() {
                syncer.target_seen(&key, &namespace, Some(object.into()));
            }
        }
        Event::Delete(object) => {
            let namespace = object.namespace();
            namespace
                .iter()
                .for_each(|it| syncer.target_seen(&key, it, None));
        }
        Event::InitDone => syncer.targets_listed(&key, std::mem::take(&mut listed)),
    });
    watching.await;
}
