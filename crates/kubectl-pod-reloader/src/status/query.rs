//! Asks the webhook of an operator something, to see that it answers.

use pod_reloader_core::annotations::CONFIG_MAPS;
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::workloads::Managed;
use crate::cluster::{Cluster, Place, Unseen, query_status};
use crate::operators::{self, Namespace, Operator};
use crate::workloads::Reply;

/// Number of workloads to try in order to reach the webhook.
const TRIES: usize = 3;

/// Asks the webhook through a managed workload, or else through one that is never created.
pub(super) async fn reach(
    cluster: &Cluster,
    operator: &Operator,
    managed: &[&Managed<'_>],
) -> Reply {
    let last = match by_some(cluster, managed).await {
        Ok(replies) => return replies,
        Err(last) => last,
    };
    let namespace = &cluster.namespace;
    let selector = operator.scope.namespace_selector();
    let labels = match selector {
        Some(_) => operators::namespace(cluster, namespace.as_str()).await,
        None => Ok(Namespace::default()),
    };
    let labels = labels.map(|it| it.labels);
    let probe = probe(namespace).to_string();
    let read = RawValue::from_string(probe.clone())
        .ok()
        .and_then(|probe| operators::read(&operator.scope, WorkloadKind::DEPLOYMENT, &probe));
    let obstacle =
        read.and_then(|probe| operators::obstacle(&operator.scope, &probe, labels.as_ref().ok()));
    if let Some(obstacle) = obstacle {
        let message = format!(
            "it manages no workload yet, and a new one would not be managed: {obstacle}; another --namespace may do"
        );
        return Reply::Impossible(last.unwrap_or_else(|| Unseen::refused("ask", message)));
    }
    let place = Place::new("apps/v1", "deployments", Some(namespace.as_str()));
    match query_status(cluster, place, "", Some(probe)).await {
        Err(error) => Reply::Impossible(error),
        Ok(warnings) => match (Reply::of(&warnings), labels) {
            (Reply::Unanswered, Err(error)) => {
                let what = format!("tell whether it is called for namespace {namespace}");
                Reply::Impossible(Unseen::refused(what, error.to_string()))
            }
            (replies, _) => replies,
        },
    }
}

/// Asks the webhook through a workload that certainly is managed: it has a hash of ours.
pub(super) async fn by_hashes(cluster: &Cluster, managed: &[&Managed<'_>]) -> Reply {
    let is_ours = |managed: &&&Managed<'_>| {
        let hash = managed.seen.workload.config_hash();
        hash.and_then(ConfigHash::parse).is_some()
    };
    let with_hash: Vec<_> = managed.iter().filter(is_ours).copied().collect();
    let replies = by_some(cluster, &with_hash).await;
    replies.unwrap_or_else(|last| {
        let none = "no workload was found that it certainly manages";
        Reply::Impossible(last.unwrap_or_else(|| Unseen::refused("ask", none)))
    })
}

/// Asks through the first workload that the user has the rights for.
///
/// # Errors
/// When no workload will do. Holds the error of the last one tried, if any was.
async fn by_some(cluster: &Cluster, managed: &[&Managed<'_>]) -> Result<Reply, Option<Unseen>> {
    let mut last = None;
    for managed in managed.iter().take(TRIES) {
        match managed.seen.query_status(cluster).await {
            Reply::Impossible(error) if error.is_forbidden() || error.is_absent() => {
                last = Some(error);
            }
            replies => return Ok(replies),
        }
    }
    Err(last)
}

/// Returns a Deployment that opts in.
fn probe(namespace: &Name) -> Value {
    const NAME: &str = "pod-reloader-status";
    let labels = json!({"app": NAME});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": namespace.as_str(), "annotations": {CONFIG_MAPS: NAME}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "none", "image": "none"}]},
            },
        },
    })
}
