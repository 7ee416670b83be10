//! Watches workloads and config objects, and tells the reconciler what it sees.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use kube::api::ListParams;
use kube::core::DynamicResourceScope;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, ConfigMetadata, NamespaceMetadata, Reference};
use pod_reloader_core::scope::Scope;

use pod_reloader_core::object::{CustomObject, Object, Served, WorkloadObject};
use pod_reloader_core::workload::WorkloadId;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::client::{DEADLINE, WATCH_CALL, within};
use crate::custom::watch_kinds;
use crate::error::{CallError, chain};
use crate::reconcile::Reconciler;

/// The fields by which objects are left out of watches and lists. Helm keeps its releases in Secrets:
/// large, often written, and never read by pods.
pub(crate) fn config_fields(kind: ConfigKind) -> Option<&'static str> {
    (kind == ConfigKind::Secret).then_some("type!=helm.sh/release.v1")
}

/// How many workloads one call lists, as those of the watches do.
const PAGE: u32 = 500;
/// How long to wait before a list that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How often a watch may be listed again without a pause before.
const RELIST_INTERVAL: Duration = Duration::from_secs(30);

/// Starts every watch that `scope` needs. They end with the set.
pub(crate) fn spawn(client: &Client, scope: &Scope, reconciler: &Arc<Reconciler>) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    let namespaces: Vec<Option<Name>> = match scope.namespaces() {
        Some(namespaces) => namespaces.cloned().map(Some).collect(),
        None => vec![None],
    };
    if !scope.custom_kinds().is_empty() {
        watches.spawn(watch_kinds(
            client.clone(),
            scope.custom_kinds().to_vec(),
            namespaces.clone(),
            reconciler.clone(),
        ));
    }
    for namespace in namespaces {
        for kind in WorkloadKind::BUILT_IN {
            let workloads = api(client, namespace.as_ref(), Served::built_in(kind));
            let namespace = namespace.clone();
            watches.spawn(watch_workloads::<WorkloadObject>(
                workloads,
                kind,
                namespace,
                reconciler.clone(),
            ));
        }
        for kind in ConfigKind::ALL {
            let config = api(client, namespace.as_ref(), kind);
            let namespace = namespace.clone();
            watches.spawn(watch_config(config, kind, namespace, reconciler.clone()));
        }
    }
    if let Some(selector) = scope.namespace_selector() {
        let (picked, to_list) = mpsc::unbounded_channel();
        watches.spawn(watch_namespaces(
            Api::all(client.clone()),
            config().labels_from(selector),
            reconciler.clone(),
            picked,
        ));
        watches.spawn(list_picked(client.clone(), reconciler.clone(), to_list));
    }
    watches
}

/// Sends to `picked` the namespaces whose workloads no list will show that begins from here on.
async fn watch_namespaces(
    api: Api<NamespaceMetadata>,
    config: watcher::Config,
    reconciler: Arc<Reconciler>,
    picked: mpsc::UnboundedSender<Name>,
) {
    let selected = |name: &Name| {
        // The lists of all workloads begin when the namespaces have been listed.
        if reconciler.namespace_selected(name) && reconciler.namespaces().are_listed() {
            let _ = picked.send(name.clone());
        }
    };
    let watches = &reconciler.metrics().watches;
    let _watching = watches.begin(api.resource_url(), "Namespace");
    let mut events = std::pin::pin!(healed(watch(api, config), "Namespace"));
    let mut listed: HashSet<Name> = HashSet::new();
    while let Some(event) = events.next().await {
        let name = NamespaceMetadata::name;
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                if let Some(name) = name(&object) {
                    selected(&name);
                    listed.insert(name);
                }
            }
            Event::Apply(object) => {
                name(&object).iter().for_each(selected);
            }
            Event::Delete(object) => {
                name(&object)
                    .iter()
                    .for_each(|name| reconciler.namespace_left(name));
            }
            Event::InitDone => {
                let namespaces = reconciler.namespaces();
                for name in namespaces.picked(|name| !listed.contains(name)) {
                    reconciler.namespace_left(&name);
                }
                namespaces.list_is_whole();
                listed = HashSet::new();
            }
        }
    }
}

/// Lists the workloads of namespaces that have come to be picked: what the watches have shown of them
/// before was dropped.
async fn list_picked(
    client: Client,
    reconciler: Arc<Reconciler>,
    mut picked: mpsc::UnboundedReceiver<Name>,
) {
    while let Some(namespace) = picked.recv().await {
        for served in reconciler.kinds_served() {
            while reconciler.namespaces().contain(&namespace)
                && let Err(error) = list_workloads(&client, &namespace, &served, &reconciler).await
            {
                let (kind, error) = (served.kind.as_str(), chain(&error));
                warn!(kind, %namespace, error, "listing failed, trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn list_workloads(
    client: &Client,
    namespace: &Name,
    served: &Served,
    reconciler: &Reconciler,
) -> Result<(), CallError> {
    if served.kind.is_built_in() {
        let api: Api<WorkloadObject> = api(client, Some(namespace), served.clone());
        list_all(&api, served.kind, reconciler).await
    } else {
        let api: Api<CustomObject> = api(client, Some(namespace), served.clone());
        list_all(&api, served.kind, reconciler).await
    }
}

async fn list_all<O: Object>(
    api: &Api<O>,
    kind: WorkloadKind,
    reconciler: &Reconciler,
) -> Result<(), CallError> {
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = within(DEADLINE, api.list(&page)).await?;
        for object in list.items {
            reconciler.workload_seen(kind, object);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}

pub(crate) fn api<K>(client: &Client, namespace: Option<&Name>, kind: K::DynamicType) -> Api<K>
where
    K: Resource<Scope = DynamicResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace.as_str(), &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

/// Lists are consistent reads in pages: the watcher's default, never resourceVersion 0.
fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_CALL.as_secs() as u32)
}

pub(crate) async fn watch_workloads<O: Object>(
    api: Api<O>,
    kind: WorkloadKind,
    namespace: Option<Name>,
    reconciler: Arc<Reconciler>,
) {
    let namespaces = reconciler.namespaces();
    namespaces.listed().await;
    let watches = &reconciler.metrics().watches;
    let _watching = watches.begin(api.resource_url(), kind.as_str());
    let mut events = std::pin::pin!(healed(watch(api, config()), kind.as_str()));
    let mut listed: HashSet<WorkloadId> = HashSet::new();
    let mut began = Instant::now();
    while let Some(event) = events.next().await {
        match event {
            Event::Init => {
                listed.clear();
                began = Instant::now();
            }
            Event::InitApply(object) => listed.extend(reconciler.workload_listed(kind, object)),
            Event::Apply(object) => reconciler.workload_seen(kind, object),
            Event::Delete(object) => reconciler.workload_deleted(kind, object),
            // Only a list that is whole says what is gone, and only of namespaces that it began with.
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
                // The other kinds come and go.
                if kind.is_built_in() {
                    reconciler.list_is_whole();
                }
                listed = HashSet::new();
            }
        }
    }
}

async fn watch_config(
    api: Api<ConfigMetadata>,
    kind: ConfigKind,
    namespace: Option<Name>,
    reconciler: Arc<Reconciler>,
) {
    let config = match config_fields(kind) {
        None => config(),
        Some(fields) => config().fields(fields),
    };
    let watches = &reconciler.metrics().watches;
    let _watching = watches.begin(api.resource_url(), kind.as_str());
    let mut events = std::pin::pin!(healed(watch(api, config), kind.as_str()));
    let mut listed: HashSet<Reference> = HashSet::new();
    // Of what no workload references, nothing is kept.
    let referenced = |object: &ConfigMetadata| {
        let reference = object.reference(kind);
        reference.filter(|reference| reconciler.is_referenced(reference))
    };
    while let Some(event) = events.next().await {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                if let Some(reference) = referenced(&object) {
                    reconciler.config_seen(&reference, object.resource_version());
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
                        reconciler.config_seen(&reference, None);
                    }
                }
                listed = HashSet::new();
            }
        }
    }
}

/// A watch that is taken up again after an error, a little later each time. One that is merely too old
/// is listed again at once, unless it was so a moment ago: what an outage has hidden is not to wait for
/// the pauses that the outage has made long.
fn healed<T: Send>(
    events: impl Stream<Item = watcher::Result<Event<T>>>,
    kind: &'static str,
) -> impl Stream<Item = Event<T>> {
    let mut listed_at: Option<Instant> = None;
    events
        .inspect_err(move |error| report(kind, error))
        .filter(move |event| {
            let at_once = event.as_ref().is_err_and(is_too_old)
                && listed_at.is_none_or(|at| at.elapsed() >= RELIST_INTERVAL);
            if at_once {
                listed_at = Some(Instant::now());
            }
            std::future::ready(!at_once)
        })
        .default_backoff()
        .filter_map(|event| std::future::ready(event.ok()))
}

fn is_too_old(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchError(status) if status.code == 410)
}

fn report(kind: &'static str, error: &watcher::Error) {
    use watcher::Error as Watch;
    let cause = if matches!(error, Watch::InitialListFailed(_)) {
        "listing"
    } else {
        "watching"
    };
    // A watch that the apiserver ends, and a list that has become too old, are the usual turn of things.
    if is_too_old(error) {
        debug!(kind, "watch is too old, listing again");
    } else {
        warn!(
            kind,
            error = describe(error),
            "{cause} failed, trying again"
        );
    }
}

/// The cause, without what was received.
fn describe(error: &watcher::Error) -> String {
    use watcher::Error as Watch;
    match error {
        Watch::WatchError(status) => {
            format!("the apiserver says {}: {}", status.code, status.message)
        }
        Watch::InitialListFailed(kube::Error::SerdeError(_))
        | Watch::WatchStartFailed(kube::Error::SerdeError(_))
        | Watch::WatchFailed(kube::Error::SerdeError(_)) => CallError::Unreadable.to_string(),
        other => chain(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use kube::core::Status;

    fn too_old() -> watcher::Result<Event<()>> {
        let status = Status::failure("too old", "Expired").with_code(410);
        Err(watcher::Error::WatchError(status.boxed()))
    }

    async fn time_to_heal(errors: Vec<watcher::Result<Event<()>>>) -> Duration {
        let began = Instant::now();
        let events = errors.into_iter().chain([Ok(Event::Init)]);
        let mut events = std::pin::pin!(healed(stream::iter(events), "ConfigMap"));
        assert!(events.next().await.is_some());
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_too_old_is_listed_again_at_once() {
        assert_eq!(time_to_heal(vec![too_old()]).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_always_too_old_is_listed_with_pauses() {
        let time = time_to_heal((0..5).map(|_| too_old()).collect()).await;
        assert!(time >= Duration::from_secs(5), "{time:?}");
    }
}
