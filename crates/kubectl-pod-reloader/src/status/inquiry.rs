//! Asks the webhook of an operator something, to see that it answers.

use std::collections::BTreeMap;

use pod_reloader_core::annotations::{CONFIG_MAPS, INQUIRER};
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::workloads::Kept;
use crate::cluster::{Cluster, Place, Unseen};
use crate::operators::{self, Operator};
use crate::workloads::Inquiry;

/// Number of workloads to try in order to reach the webhook.
const TRIES: usize = 3;

/// Asks the webhook through a managed workload, or else through one that is never created.
pub(super) async fn reach(cluster: &Cluster, operator: &Operator, kept: &[&Kept<'_>]) -> Inquiry {
    let last = match by_some(cluster, kept).await {
        Ok(told) => return told,
        Err(last) => last,
    };
    let namespace = &cluster.namespace;
    let selector = operator.scope.namespace_selector();
    let labels = match selector {
        Some(_) => operators::labels(cluster, namespace.as_str()).await,
        None => Ok(BTreeMap::new()),
    };
    let probe = probe(namespace).to_string();
    let read = RawValue::from_string(probe.clone())
        .ok()
        .and_then(|probe| operators::read(&operator.scope, WorkloadKind::DEPLOYMENT, &probe));
    let obstacle =
        read.and_then(|probe| operators::obstacle(&operator.scope, &probe, labels.as_ref().ok()));
    if let Some(obstacle) = obstacle {
        return Inquiry::Impossible(last.unwrap_or_else(|| Unseen::Refused {
            what: "ask".to_owned(),
            message: format!("it keeps no workload yet, and a new one would not be kept: {obstacle}; another --namespace may do"),
        }));
    }
    let place = Place::new("apps/v1", "deployments", Some(namespace.as_str()));
    match cluster.dry_run(place, "", INQUIRER, Some(probe)).await {
        Err(error) => Inquiry::Impossible(error),
        Ok(answer) => match (Inquiry::of(&answer), labels) {
            (Inquiry::Unanswered, Err(error)) => Inquiry::Impossible(Unseen::Refused {
                what: format!("tell whether it is called for namespace {namespace}"),
                message: error.to_string(),
            }),
            (told, _) => told,
        },
    }
}

/// Asks the webhook through a workload that certainly is managed: it has a hash of ours.
pub(super) async fn by_hashes(cluster: &Cluster, kept: &[&Kept<'_>]) -> Inquiry {
    let is_ours = |kept: &&&Kept<'_>| {
        let hash = kept.seen.workload.config_hash();
        hash.and_then(ConfigHash::parse).is_some()
    };
    let with_hash: Vec<_> = kept.iter().filter(is_ours).copied().collect();
    let told = by_some(cluster, &with_hash).await;
    told.unwrap_or_else(|last| {
        Inquiry::Impossible(last.unwrap_or_else(|| Unseen::Refused {
            what: "ask".to_owned(),
            message: "no workload was found that it keeps for sure".to_owned(),
        }))
    })
}

/// Asks through the first workload that the user has the rights for.
///
/// # Errors
/// When no workload will do. Holds the error of the last one tried, if any was.
async fn by_some(cluster: &Cluster, kept: &[&Kept<'_>]) -> Result<Inquiry, Option<Unseen>> {
    let mut last = None;
    for kept in kept.iter().take(TRIES) {
        match kept.seen.inquire(cluster).await {
            Inquiry::Impossible(error) if error.is_forbidden() || error.is_absent() => {
                last = Some(error);
            }
            told => return Ok(told),
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
