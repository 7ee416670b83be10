//! A real apiserver takes what the chart renders for platforms, and gives users the rights that it has for them.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{Attempt, Options, PATIENCE, Scene, THIS_NAMESPACE, wait_for};
use serde_json::{Value, json};

use crate::bind::binding_fields;

#[tokio::test]
async fn the_apiserver_takes_what_platforms_set() -> Result<()> {
    let values = json!({
        "commonLabels": {"team": "platform"},
        "deploymentAnnotations": {"example.com/note": "a"},
        "revisionHistoryLimit": 3,
        "strategy": {"type": "Recreate"},
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["10.0.0.10"]},
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["chat.example.com"]}],
        "runtimeClassName": "gvisor",
        "terminationGracePeriodSeconds": 60,
        "ports": {"metrics": 9090, "probes": 9091},
        "livenessProbe": {"timeoutSeconds": 5},
        "extraEnvFrom": [{"configMapRef": {"name": "proxy", "optional": true}}],
        "extraVolumes": [{"name": "cache", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "cache", "mountPath": "/cache"}],
        "extraContainers": [{"name": "proxy", "image": "registry.example.com/proxy:1"}],
    });
    Scene::play(binding_fields(values.clone()), async |scene| {
        let get = ["get", "deployments", "--output=json"];
        let list: Value = serde_json::from_str(&scene.operators_kubectl(&get).await?)?;
        let deployments = list["items"].as_array().context("a list")?;
        ensure!(deployments.len() == 2, "operator and writer: {list}");
        for deployment in deployments {
            for (path, expected) in [
                ("/metadata/labels/team", json!("platform")),
                ("/metadata/annotations/example.com~1note", json!("a")),
                ("/spec/revisionHistoryLimit", json!(3)),
                ("/spec/strategy", values["strategy"].clone()),
                ("/spec/template/metadata/labels/team", json!("platform")),
            ] {
                let found = deployment.pointer(path);
                ensure!(found == Some(&expected), "{path}: {deployment}");
            }
            let pod = &deployment["spec"]["template"]["spec"];
            for field in [
                "dnsPolicy",
                "dnsConfig",
                "hostAliases",
                "runtimeClassName",
                "terminationGracePeriodSeconds",
            ] {
                ensure!(pod[field] == values[field], "{field}: {pod}");
            }
            let container = &pod["containers"][0];
            for (path, expected) in [
                ("/livenessProbe/timeoutSeconds", json!(5)),
                ("/envFrom", values["extraEnvFrom"].clone()),
            ] {
                let found = container.pointer(path);
                ensure!(found == Some(&expected), "{path}: {container}");
            }
            ensure!(pod["containers"][1]["name"] == "proxy", "{pod}");
        }
        Ok(())
    })
    .await
}

/// The apiserver sets `rollingUpdate` by default. Helm only removes it if it has set it itself.
#[tokio::test]
async fn a_release_that_sets_the_default_strategy_can_change_to_recreate() -> Result<()> {
    Scene::play(Options::released(), async |scene| {
        let mut installation = scene.installation.clone();
        for strategy in [
            json!({"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}),
            json!({"type": "Recreate"}),
        ] {
            let options = Options {
                values: json!({"strategy": strategy}),
                ..Options::released()
            };
            let values = options.values(&scene.namespace);
            installation.upgrade(&values).await?;
        }
        let get = ["get", "deployments", "--output=json"];
        let list: Value = serde_json::from_str(&scene.operators_kubectl(&get).await?)?;
        let found = &list["items"][0]["spec"]["strategy"];
        ensure!(*found == json!({"type": "Recreate"}), "{found}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn view_and_edit_have_field_bindings() -> Result<()> {
    // With `watch.namespaces`, there are no ClusterRoles for users.
    let options = Options {
        everywhere: true,
        // Otherwise it would also bind the fields of other tests.
        running: false,
        namespace_labels: vec![format!("roles-test={THIS_NAMESPACE}")],
        failure_policy: "Ignore",
        ..binding_fields(json!({
            "watch": {"namespaceSelector": {"matchLabels": {"roles-test": THIS_NAMESPACE}}},
        }))
    };
    Scene::play(options, async |scene| {
        let user = |role: &str| format!("{}-{role}", scene.namespace);
        for role in ["view", "edit"] {
            let of_role = format!("clusterrole/{role}");
            scene.bind(&scene.namespace, &user(role), &of_role).await?;
        }
        let can = async |role: &str, verb: &str| {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": user(role),
                    "groups": ["system:authenticated"],
                    "resourceAttributes": {
                        "namespace": scene.namespace,
                        "verb": verb,
                        "group": "pod-reloader.github.io",
                        "resource": "fieldbindings",
                    },
                },
            });
            let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let ask = http::Request::post(reviews).body(review.to_string().into_bytes())?;
            let answer: Value = scene.client.request(ask).await?;
            anyhow::Ok(answer["status"]["allowed"] == true)
        };
        for (role, verb) in [("view", "list"), ("edit", "get"), ("edit", "patch")] {
            wait_for("the role to have the right", PATIENCE, async || {
                Ok(match can(role, verb).await {
                    Ok(true) => Attempt::Done(()),
                    answer => Attempt::NotYet(format!("{role}, {verb}: {answer:?}")),
                })
            })
            .await?;
        }
        ensure!(!can("view", "patch").await?, "who views writes nothing");
        Ok(())
    })
    .await
}
