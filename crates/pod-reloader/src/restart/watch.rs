//! Watches workloads and config objects, and passes what it sees to the reconciler.

pub(super) mod custom;
mod picked;
mod releases;
mod statuses;

use std::collections::HashSet;
use std::sync::Arc;

use kube::runtime::watcher::Event;
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
use self::statuses::watch_statuses;
use crate::config::source::listed;
use crate::restart::reconcile::Reconciler;
use crate::runtime::budget::Budget;
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
    let mut watches = JoinSet::new();
    let namespaces = scope.watched();
    if !scope.custom_kinds().is_empty() {
        watches.spawn(watch_kinds(
            client.clone(),
            scope.custom_kinds().to_vec(),
            namespaces.clone(),
            reconciler.clone(),
            budget.clone(),
        ));
    }
    if scope.tracks_classes() {
        watches.spawn(watch_statuses(
            client.clone(),
            namespaces.clone(),
            reconciler.clone(),
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
            let namespace = namespace.clone();
            watches.spawn(watch_config(config, kind, namespace, reconciler.clone()));
        }
    }
    releases::spawn(&mut watches, client, scope.releases(), reconciler, budget);
    if scope.reads_namespaces() {
        let (picked, to_list) = mpsc::unbounded_channel();
        let mut namespaces = Resources::new(Api::all(client.clone()), "Namespace", budget);
        if let Some(selector) = scope.namespace_selector() {
            namespaces = namespaces.with_labels(selector.to_string());
        }
        watches.spawn(watch_namespaces(namespaces, reconciler.clone(), picked));
        let listing = list_picked(client.clone(), reconciler.clone(), budget.clone(), to_list);
        watches.spawn(listing);
    }
    watches
}

/// Follows the namespaces that match the selector. Sends to `picked` those that need lists of their own,
/// because the lists of all workloads had begun before they matched or got other annotations.
async fn watch_namespaces(
    namespaces: Resources<NamespaceMetadata>,
    reconciler: Arc<Reconciler>,
    picked: mpsc::UnboundedSender<Name>,
) {
    let selected = |object: &NamespaceMetadata| {
        let name = object.name()?;
        let is_news = reconciler.namespace_selected(&name, object.inherited());
        // The lists of all workloads begin once the namespaces have been listed.
        if is_news && reconciler.namespaces().are_listed() {
            let _ = picked.send(name.clone());
        }
        Some(name)
    };
    let watches = &reconciler.metrics().watches;
    let _watching = watches.begin(&namespaces.watch_id(), "Namespace");
    let mut listed: HashSet<Name> = HashSet::new();
    let watching = namespaces.follow(|event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => listed.extend(selected(&object)),
        Event::Apply(object) => drop(selected(&object)),
        Event::Delete(object) => {
            let name = object.name();
            name.iter().for_each(|it| reconciler.namespace_left(it));
        }
        Event::InitDone => {
            let namespaces = reconciler.namespaces();
            for name in namespaces.picked(|name| !listed.contains(name)) {
                reconciler.namespace_left(&name);
            }
            namespaces.list_is_whole();
            listed = HashSet::new();
        }
    });
    watching.await;
}

pub(crate) async fn watch_workloads<O: Object>(
    resources: Resources<O>,
    kind: WorkloadKind,
    namespace: Option<Name>,
    reconciler: Arc<Reconciler>,
) {
    let namespaces = reconciler.namespaces();
    namespaces.listed().await;
    let watches = &reconciler.metrics().watches;
    let _watching = watches.begin(&resources.watch_id(), kind.as_str());
    let mut listed: HashSet<WorkloadId> = HashSet::new();
    let mut began = Instant::now();
    let watching = resources.follow(|event| match event {
        Event::Init => {
            listed.clear();
            began = Instant::now();
        }
        Event::InitApply(object) => listed.extend(reconciler.workload_listed(kind, object)),
        Event::Apply(object) => reconciler.workload_seen(kind, object),
        Event::Delete(object) => reconciler.workload_deleted(kind, object),
        // Only a complete list shows what is gone, and only for namespaces that were selected when it
        // began.
        Event::InitDone => {
            let in_list = |id: &WorkloadId| {
                id.kind == kind
                    && namespaces.contain_since(began, &id.namespace)
                    && namespace
                        .as_ref()
                        .is_none_or(|namespace| *namespace == id.namespace)
            };
            for id in reconciler
                .workloads()
                .ids(|id| in_list(id) && !listed.contains(id))
            {
                reconciler.workload_gone(&id);
            }
            // Only the lists of built-in kinds are waited for: the other kinds come and go.
            if kind.is_built_in() {
                reconciler.lists().is_whole(kind, namespace.clone());
            }
            listed = HashSet::new();
        }
    });
    watching.await;
}

async fn watch_config(
    resources: Resources<ConfigMetadata>,
    kind: ConfigKind,
    namespace: Option<Name>,
    reconciler: Arc<Reconciler>,
) {
    let watches = &reconciler.metrics().watches;
    let _watching = watches.begin(&resources.watch_id(), kind.as_str());
    let mut listed: HashSet<Reference> = HashSet::new();
    // Nothing is stored about an object that no workload references.
    let referenced = |object: &ConfigMetadata| {
        let reference = object.reference(kind);
        reference.filter(|reference| reconciler.is_referenced(reference))
    };
    let watching = resources.follow(|event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => {
            if let Some(reference) = referenced(&object) {
                reconciler.config_listed(&reference, object.resource_version());
                listed.insert(reference);
            }
        }
        Event::Apply(object) => {
            if let Some(reference) = referenced(&object) {
                reconciler.config_seen(&reference, object.resource_version());
            }
        }
        Event::Delete(object) => {
            if let Some(reference) = referenced(&object) {
                reconciler.config_seen(&reference, None);
            }
        }
        Event::InitDone => {
            let in_list = |reference: &Reference| {
                reference.kind == kind
                    && namespace
                        .as_ref()
                        .is_none_or(|namespace| *namespace == reference.namespace)
            };
            for reference in reconciler.present_config() {
                if in_list(&reference) && !listed.contains(&reference) {
                    reconciler.config_listed(&reference, None);
                }
            }
            listed = HashSet::new();
        }
    });
    watching.await;
}
