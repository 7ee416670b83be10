//! Pods that cannot start, because their ConfigMap is bad.

use anyhow::Result;
use pod_reloader_e2e::{PATIENCE, Scene, done_if, wait_for};
use serde_json::{Value, json};

/// Makes the apiserver refuse pods while ConfigMap `app` is bad, which stands for pods that cannot start with
/// it.
pub(crate) async fn refuses_bad_pods(scene: &Scene) -> Result<()> {
    let kind = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let app =
        json!({"name": "app", "namespace": scene.namespace, "parameterNotFoundAction": "Allow"});
    refuses_pods(scene, &format!("params.data.key != '{BAD}'"), kind, app).await
}

/// Makes the apiserver refuse all pods but those for which an expression holds, given the parameters of a policy.
pub(crate) async fn refuses_pods(
    scene: &Scene,
    unless: &str,
    param_kind: Value,
    param_ref: Value,
) -> Result<()> {
    let name = format!("{}-bad", scene.namespace);
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "paramKind": param_kind,
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            }]},
            "validations": [{
                "expression": format!("{unless} && object.metadata.?name.orValue('') != 'probe'"),
            }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "paramRef": param_ref,
            "matchResources": {"namespaceSelector": {"matchLabels": {
                "kubernetes.io/metadata.name": scene.namespace,
            }}},
        },
    });
    for object in [policy, binding] {
        scene.server_side_apply(None, "user", &object).await?;
    }
    probe(scene, true).await
}

/// Takes back what [`refuses_pods`] has done. A ReplicaSet waits twice as long after each pod that it cannot create: it
/// is touched, so that it tries again at once.
pub(crate) async fn allows_pods(scene: &Scene) -> Result<()> {
    let name = format!("{}-bad", scene.namespace);
    for kind in ["binding", ""] {
        let policy = format!("validatingadmissionpolicy{kind}/{name}");
        scene.delete(&policy).await?;
    }
    probe(scene, false).await?;
    for set in scene.objects("apps/v1", "ReplicaSet").await? {
        let name = set["metadata"]["name"].as_str().unwrap_or_default();
        let set = format!("replicaset/{name}");
        scene.annotate(&set, "touched=x").await?;
    }
    Ok(())
}

/// Waits until a pod that the policy refuses in any case is refused, or is not any more.
async fn probe(scene: &Scene, is_refused: bool) -> Result<()> {
    let name = format!("{}-bad", scene.namespace);
    let probe = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    });
    wait_for("the policy", PATIENCE, async || {
        let refusal = scene.try_create(&scene.namespace, &probe).await.err();
        let said = refusal.map_or_else(String::new, |error| format!("{error:#}"));
        done_if(said.contains(&name) == is_refused, said)
    })
    .await
}

/// The value of ConfigMap `app` with which no pod can start.
pub(crate) const BAD: &str = "bad";
