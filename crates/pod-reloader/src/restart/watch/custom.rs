//! Finds out which of the configured kinds the cluster serves, and watches them.

use std::collections::HashMap;
use std::sync::Arc;

use kube::{Api, Client};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::{CustomObject, Served};
use tokio::task::JoinSet;
use tracing::info;

use crate::restart::api_groups::{INTERVAL, groups};
use crate::restart::reconcile::Reconciler;
use crate::restart::watch::watch_workloads;
use crate::runtime::budget::Budget;
use crate::runtime::client::{DEADLINE, within};
use crate::runtime::complaint::Complaint;
use crate::runtime::resources::{Resources, api};
use pod_reloader_core::api_discovery::State;

/// Watches each of `kinds` in `namespaces` for as long as the cluster serves it. `None` stands for all
/// namespaces at once.
pub(crate) async fn watch_kinds(
    client: Client,
    kinds: Vec<WorkloadKind>,
    namespaces: Vec<Option<Name>>,
    reconciler: Arc<Reconciler>,
    budget: Budget,
) {
    let mut watched: HashMap<WorkloadKind, (Arc<str>, JoinSet<()>)> = HashMap::new();
    let mut complaint = Complaint::default();
    let names: Vec<_> = kinds.iter().map(|kind| kind.shape().group).collect();
    loop {
        match within(DEADLINE, groups(&client, &budget, &names)).await {
            Err(error) => complaint.warn(
                &error,
                "cannot find out which kinds are served, trying again",
            ),
            Ok(groups) => {
                complaint.settled();
                for kind in &kinds {
                    let version = match groups.state(kind.shape().group, kind.shape().plural) {
                        State::Served(version) => Some(Arc::from(version)),
                        State::Missing => None,
                        State::Unknown => continue,
                    };
                    let known = watched.get(kind).map(|(version, _)| version);
                    if known == version.as_ref() && reconciler.kinds.has(*kind) == version.is_some()
                    {
                        continue;
                    }
                    // A resync begins unchanged watches anew, which is not worth a line in the log.
                    if reconciler.kinds.has(*kind) != version.is_some() {
                        let group = kind.shape().group;
                        match &version {
                            Some(version) => {
                                info!(%kind, group, %version, "the cluster serves a kind")
                            }
                            None => info!(%kind, group, "the cluster no longer serves a kind"),
                        }
                    }
                    watched.remove(kind);
                    let Some(version) = version else {
                        reconciler.kind_served(*kind, None);
                        continue;
                    };
                    let apis = apis(&client, *kind, &version, &namespaces);
                    let begun = apis.iter().map(|(_, api)| {
                        let watches = &reconciler.metrics.watches;
                        watches.begin(api.resource_url(), kind.as_str())
                    });
                    reconciler.kind_served(*kind, Some((version.clone(), begun.collect())));
                    watched.insert(*kind, (version, watches(apis, *kind, &reconciler, &budget)));
                }
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

type Apis = Vec<(Option<Name>, Api<CustomObject>)>;

fn apis(
    client: &Client,
    kind: WorkloadKind,
    version: &Arc<str>,
    namespaces: &[Option<Name>],
) -> Apis {
    let api = |namespace: &Option<Name>| {
        let version = version.clone();
        let served = Served { kind, version };
        let api = api(client, namespace.as_ref(), served);
        (namespace.clone(), api)
    };
    namespaces.iter().map(api).collect()
}

fn watches(
    apis: Apis,
    kind: WorkloadKind,
    reconciler: &Arc<Reconciler>,
    budget: &Budget,
) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    for (namespace, api) in apis {
        let workloads = Resources::new(api, kind.as_str(), budget);
        let reconciler = reconciler.clone();
        watches.spawn(watch_workloads(workloads, kind, namespace, reconciler));
    }
    watches
}
