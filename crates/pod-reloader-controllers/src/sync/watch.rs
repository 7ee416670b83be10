//! Watches ClusterConfigSyncs, namespaces, and the objects that have the names of copies.

use std::sync::Arc;

use kube::Api;
use pod_reloader_api::ClusterConfigSync;
use pod_reloader_core::config_sync::{NamespaceLabels, NamespaceMetadata, Target, TargetMetadata};
use pod_reloader_core::name::Name;
use pod_reloader_core::slim::Slim;
use tokio::task::JoinSet;

use super::by_namespace::ByNamespace;
use super::state::Key;
use super::syncer::Syncer;
use crate::runtime::follower::Follower;
use crate::runtime::keyed::watch_each;
use crate::runtime::own::follow;
use crate::runtime::resources::{Resources, api};

/// Starts all watches. They end when the set is dropped.
pub(super) fn spawn(syncer: &Arc<Syncer>) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    let syncs = Api::<Slim<ClusterConfigSync>>::all(syncer.kit.clients.watch.clone());
    let (kit, kind) = (syncer.kit.clone(), "ClusterConfigSync");
    watches.spawn(follow(kit, syncer.clone(), kind, syncs, None));
    watches.spawn(watch_namespaces(syncer.clone()));
    watches.spawn(watch_all_targets(syncer.clone()));
    watches
}

async fn watch_namespaces(syncer: Arc<Syncer>) {
    let kit = &syncer.kit;
    let namespaces = Api::<NamespaceMetadata>::all(kit.clients.watch.clone());
    let namespaces = Resources::new(namespaces, "Namespace", &kit.budget);
    let watches = kit.watches.clone();
    namespaces.follow(watches, NamespaceFollower(syncer)).await;
}

struct NamespaceFollower(Arc<Syncer>);

impl Follower<NamespaceMetadata> for NamespaceFollower {
    type Noted = (Name, NamespaceLabels);
    type List = ByNamespace<NamespaceLabels>;

    fn listed(&mut self, object: NamespaceMetadata) -> Option<(Name, NamespaceLabels)> {
        Some((object.name()?, object.labels()))
    }

    fn all_listed(&mut self, list: ByNamespace<NamespaceLabels>) {
        self.0.namespaces_listed(list);
    }

    fn seen(&mut self, object: NamespaceMetadata) {
        if let Some((name, labels)) = self.listed(object) {
            self.0.namespace_seen(&name, Some(labels));
        }
    }

    fn gone(&mut self, object: NamespaceMetadata) {
        if let Some(name) = object.name() {
            self.0.namespace_seen(&name, None);
        }
    }
}

/// Watches the objects of each kind and name that a source has.
async fn watch_all_targets(syncer: Arc<Syncer>) {
    let begin = |key| watch_targets(syncer.clone(), key);
    let ended = |key: &Key| syncer.state.lock().targets_gone(key);
    watch_each(syncer.keys.subscribe(), begin, ended).await;
}

/// Watches the metadata of all objects of a kind with one name: the source, its copies, and what others have.
async fn watch_targets(syncer: Arc<Syncer>, key: Key) {
    let kit = &syncer.kit;
    let (kind, name) = key.clone();
    let targets = api::<TargetMetadata>(&kit.clients.watch, None, kind);
    let targets = Resources::new(targets, kind.as_str(), &kit.budget);
    let targets = targets.with_fields(Some(&format!("metadata.name={name}")));
    let watches = kit.watches.clone();
    targets
        .follow(watches, TargetFollower { syncer, key })
        .await;
}

struct TargetFollower {
    syncer: Arc<Syncer>,
    key: Key,
}

impl Follower<TargetMetadata> for TargetFollower {
    type Noted = (Name, Target);
    type List = ByNamespace<Target>;

    fn listed(&mut self, object: TargetMetadata) -> Option<(Name, Target)> {
        Some((object.namespace()?, object.into()))
    }

    fn all_listed(&mut self, list: ByNamespace<Target>) {
        self.syncer.targets_listed(&self.key, list);
    }

    fn seen(&mut self, object: TargetMetadata) {
        if let Some((namespace, target)) = self.listed(object) {
            let (key, target) = (&self.key, Some(target));
            self.syncer.target_seen(key, &namespace, target);
        }
    }

    fn gone(&mut self, object: TargetMetadata) {
        if let Some(namespace) = object.namespace() {
            self.syncer.target_seen(&self.key, &namespace, None);
        }
    }
}
