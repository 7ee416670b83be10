//! Watches workloads and config objects, and passes what it sees to the reconciler.

pub(super) mod custom;
mod picked;

use std::collections::HashSet;
use std::sync::Arc;

use kube::{Api, Client};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::{Object, Served, WorkloadObject};
use pod_reloader_core::reference::{ConfigKind, ConfigMetadata, NamespaceMetadata, Reference};
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::WorkloadId;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::custom::watch_kinds;
use self::picked::list_picked;
use crate::live::source::listed;
use crate::restart::namespaces::SelectedNamespaces;
use crate::restart::reconcile::Reconciler;
use crate::restart::releases;
use crate::restart::rotations::watch::watch_statuses;
use crate::runtime::budget::Budget;
use crate::runtime::follower::Follower;
use crate::runtime::resources::{Resources, api};

#[cfg(test)]
mod tests;

/// Starts every watch that `scope` needs. The watches end when the set is dropped.
///
/// Long objects that they read take turns, granted by `budget`.
pub(crate) fn spawn(
    client: &Client,
    scope: &Scope,
    reconciler: &Arc<Reconciler>,
    budget: &Budget,
) -> JoinSet<()> {
    let ages = &reconciler.metrics.watches;
    let mut watches = JoinSet::new();
    let namespaces = scope.watched();
    if !scope.custom_kinds.is_empty() {
        watches.spawn(watch_kinds(
            client.clone(),
            scope.custom_kinds.clone(),
            namespaces.clone(),
            reconciler.clone(),
            budget.clone(),
        ));
    }
    if let Some(rotated) = &reconciler.rotated {
        watches.spawn(watch_statuses(
            client.clone(),
            namespaces.clone(),
            (rotated.clone(), ages.clone()),
            budget.clone(),
        ));
    }
    for namespace in namespaces {
        for kind in WorkloadKind::BUILT_IN {
            let workloads = api(client, namespace.as_ref(), Served::built_in(kind));
            let workloads = Resources::new(workloads, kind.as_str(), budget);
            let namespace = namespace.clone();
            watches.spawn(watch_workloads::<WorkloadObject>(
                workloads,
                kind,
                namespace,
                reconciler.clone(),
            ));
        }
        // A kind that is never tracked is not watched, because we may have no right to list it.
        for kind in ConfigKind::ALL
            .into_iter()
            .filter(|kind| scope.tracks(*kind))
        {
            let config = listed(client, namespace.as_ref(), kind, scope, budget);
            let follower = ConfigFollower {
                reconciler: reconciler.clone(),
                kind,
                namespace: namespace.clone(),
            };
            watches.spawn(config.follow(ages.clone(), follower));
        }
    }
    let releases = (&reconciler.restraints.releases, ages);
    releases::watch::spawn(&mut watches, client, &scope.releases, releases, budget);
    if let Some(namespaces) = reconciler.namespaces() {
        spawn_namespaces(&mut watches, client, scope, reconciler, namespaces, budget);
    }
    watches
}

/// Adds the watch of the namespaces, and the lists of those that come to match the selector.
fn spawn_namespaces(
    watches: &mut JoinSet<()>,
    client: &Client,
    scope: &Scope,
    reconciler: &Arc<Reconciler>,
    selected: &Arc<SelectedNamespaces>,
    budget: &Budget,
) {
    let (picked, to_list) = mpsc::unbounded_channel();
    let namespaces = Api::<NamespaceMetadata>::all(client.clone());
    let mut namespaces = Resources::new(namespaces, "Namespace", budget);
    if let Some(selector) = scope.namespace_selector() {
        namespaces = namespaces.with_labels(selector.to_string());
    }
    let follower = NamespaceFollower {
        reconciler: reconciler.clone(),
        namespaces: selected.clone(),
        picked,
    };
    let ages = reconciler.metrics.watches.clone();
    watches.spawn(namespaces.follow(ages, follower));
    watches.spawn(list_picked(
        client.clone(),
        reconciler.clone(),
        selected.clone(),
        budget.clone(),
        to_list,
    ));
}

/// Takes in the namespaces that match the selector.
struct NamespaceFollower {
    reconciler: Arc<Reconciler>,
    namespaces: Arc<SelectedNamespaces>,
    /// Those that need lists of their own are sent here, because the lists of all workloads had begun before they
    /// matched or got other annotations.
    picked: mpsc::UnboundedSender<Name>,
}

impl Follower<NamespaceMetadata> for NamespaceFollower {
    type Noted = Name;
    type List = HashSet<Name>;

    fn listed(&mut self, object: NamespaceMetadata) -> Option<Name> {
        let name = object.name()?;
        let is_news = self
            .reconciler
            .namespace_selected(&name, object.inherited());
        // The lists of all workloads begin once the namespaces have been listed.
        if is_news && self.namespaces.are_listed() {
            let _ = self.picked.send(name.clone());
        }
        Some(name)
    }

    fn all_listed(&mut self, list: HashSet<Name>) {
        for name in self.namespaces.picked(|name| !list.contains(name)) {
            self.reconciler.namespace_left(&name);
        }
        self.namespaces.list_is_whole();
    }

    fn gone(&mut self, object: NamespaceMetadata) {
        if let Some(name) = object.name() {
            self.reconciler.namespace_left(&name);
        }
    }
}

pub(crate) async fn watch_workloads<O: Object>(
    resources: Resources<O>,
    kind: WorkloadKind,
    namespace: Option<Name>,
    reconciler: Arc<Reconciler>,
) {
    if let Some(namespaces) = reconciler.namespaces() {
        namespaces.listed().await;
    }
    let watches = reconciler.metrics.watches.clone();
    let follower = WorkloadFollower {
        reconciler,
        kind,
        namespace,
        began: Instant::now(),
    };
    resources.follow(watches, follower).await;
}

struct WorkloadFollower {
    reconciler: Arc<Reconciler>,
    kind: WorkloadKind,
    namespace: Option<Name>,
    /// The time at which the last list began.
    began: Instant,
}

impl<O: Object> Follower<O> for WorkloadFollower {
    type Noted = WorkloadId;
    type List = HashSet<WorkloadId>;

    fn listing(&mut self) {
        self.began = Instant::now();
    }

    fn listed(&mut self, object: O) -> Option<WorkloadId> {
        self.reconciler.workload_listed(self.kind, object)
    }

    // Only a complete list shows what is gone, and only for namespaces that were selected when it began.
    fn all_listed(&mut self, list: HashSet<WorkloadId>) {
        let reconciler = &self.reconciler;
        let namespaces = reconciler.namespaces();
        let in_list = |id: &WorkloadId| {
            id.kind == self.kind
                && namespaces.is_none_or(|it| it.contain_since(self.began, &id.namespace))
                && is_in(self.namespace.as_ref(), &id.namespace)
        };
        let workloads = &reconciler.workloads;
        for id in workloads.ids(|id| in_list(id) && !list.contains(id)) {
            reconciler.workload_gone(&id);
        }
        // Only the lists of built-in kinds are waited for: the other kinds come and go.
        if self.kind.is_built_in() {
            reconciler.lists.is_whole(self.kind, self.namespace.clone());
        }
    }

    fn seen(&mut self, object: O) {
        self.reconciler.workload_seen(self.kind, object);
    }

    fn gone(&mut self, object: O) {
        self.reconciler.workload_deleted(self.kind, object);
    }
}

struct ConfigFollower {
    reconciler: Arc<Reconciler>,
    kind: ConfigKind,
    namespace: Option<Name>,
}

impl ConfigFollower {
    /// Returns an object by its name. `None` if no workload references it: nothing is stored about it.
    fn referenced(&self, object: &ConfigMetadata) -> Option<Reference> {
        let reference = object.reference(self.kind);
        reference.filter(|reference| self.reconciler.is_referenced(reference))
    }
}

impl Follower<ConfigMetadata> for ConfigFollower {
    type Noted = Reference;
    type List = HashSet<Reference>;

    fn listed(&mut self, object: ConfigMetadata) -> Option<Reference> {
        let reference = self.referenced(&object)?;
        let version = object.resource_version();
        self.reconciler.config_listed(&reference, version);
        Some(reference)
    }

    fn all_listed(&mut self, list: HashSet<Reference>) {
        let in_list = |reference: &Reference| {
            reference.kind == self.kind && is_in(self.namespace.as_ref(), &reference.namespace)
        };
        for reference in self.reconciler.present_config() {
            if in_list(&reference) && !list.contains(&reference) {
                self.reconciler.config_listed(&reference, None);
            }
        }
    }

    fn seen(&mut self, object: ConfigMetadata) {
        if let Some(reference) = self.referenced(&object) {
            let version = object.resource_version();
            self.reconciler.config_seen(&reference, version);
        }
    }

    fn gone(&mut self, object: ConfigMetadata) {
        if let Some(reference) = self.referenced(&object) {
            self.reconciler.config_seen(&reference, None);
        }
    }
}

/// Returns true if a namespace is among those of a watch. `None` stands for all namespaces.
fn is_in(watched: Option<&Name>, namespace: &Name) -> bool {
    watched.is_none_or(|watched| watched == namespace)
}
