//! Restarts for rotated secrets are not part of the stages, because they bring no changed config.

use pod_reloader_core::annotations::SECRET_PROVIDER_CLASSES;
use pod_reloader_core::secret_provider_class::PodStatus;

use super::stages::{come_to_rest, edits, patched, tracks};
use super::*;

/// Starts a loop that tracks mounted secrets, with these Deployments, which are healthy and at rest, and ConfigMaps `x`
/// and `y`.
async fn at_rest(deployments: impl IntoIterator<Item = Value>) -> Operator {
    let dialects = Dialects {
        classes: true,
        ..Dialects::default()
    };
    let operator = Operator::start_as(Apiserver::default(), settings(), dialects);
    come_to_rest(&operator, deployments).await;
    operator
}

/// Returns a Deployment whose restarts are staged, and whose pods mount the class `db`.
fn mounting(name: &str, config_maps: &str) -> Value {
    let mut object = tracks(name, config_maps);
    object["metadata"]["annotations"][SECRET_PROVIDER_CLASSES] = json!("db");
    object["spec"]["selector"] = json!({"matchLabels": {"app": name}});
    let attributes = json!({"secretProviderClass": "db"});
    let csi = json!({"driver": "secrets-store.csi.k8s.io", "volumeAttributes": attributes});
    object["spec"]["template"]["spec"]["volumes"] = json!([{"name": "db", "csi": csi}]);
    object
}

/// Returns the pod of a Deployment.
fn pod(workload: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("{workload}-5d4-1"),
            "namespace": "ns",
            "uid": format!("pod-{workload}"),
            "creationTimestamp": "2026-11-23T10:00:00Z",
            "labels": {"app": workload, "pod-template-hash": "5d4"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{workload}-5d4"),
                "uid": format!("set-{workload}"), "controller": true,
            }],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Returns the status of that pod, which has got other versions of the class `db` than it started with.
fn rotated(workload: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("{workload}-5d4-1-ns-db"),
            "namespace": "ns",
            "generation": 2,
            "creationTimestamp": "2026-11-23T10:00:05Z",
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": format!("{workload}-5d4-1"),
                "uid": format!("pod-{workload}"),
            }],
        },
        "status": {
            "secretProviderClassName": "db",
            "objects": [{"id": "password", "version": "2"}],
        },
    })
}

/// Lets the driver rotate the secrets of the pods of these Deployments, and time pass in which that settles.
async fn rotates(operator: &Operator, workloads: &[&str]) {
    operator.apiserver.now(|state| {
        for workload in workloads {
            let pod = pod(workload);
            state.pods.insert(apiserver::name_of(&pod), pod);
            state.statuses.push(rotated(workload));
        }
    });
    for workload in workloads {
        let status: PodStatus = serde_json::from_value(rotated(workload)).unwrap();
        operator.reconciler.rotated.as_ref().unwrap().seen(&status);
    }
    pass(Duration::from_secs(5)).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_for_rotated_secrets_is_not_a_trial_of_changed_config() {
    let operator = at_rest([mounting("a", "x[b]"), tracks("b", "x[a]")]).await;
    rotates(&operator, &["a"]).await;
    assert_eq!(patched(&operator), ["a"]);
    // Its rollout is not over when an entry changes that it does not track.
    edits(&operator, "x", json!({"a": "2", "b": "1"})).await;
    assert_eq!(patched(&operator), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn workloads_whose_secrets_were_rotated_do_not_wait_for_each_other() {
    let operator = at_rest(["a", "b"].map(|name| mounting(name, "x"))).await;
    rotates(&operator, &["a", "b"]).await;
    let mut restarted = patched(&operator);
    restarted.sort();
    assert_eq!(restarted, ["a", "b"]);
}
