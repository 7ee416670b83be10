//! Protected ConfigMaps, and pods that use them.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{
    PATIENCE, RealScene,
    answers::{ask, container},
    done_if,
    real_scene::{LONG, address},
    wait_for,
    workload::{Workload, config_map},
};
use serde_json::{Value, json};

use crate::contents::reads_variable;

#[tokio::test]
async fn what_a_running_pod_uses_is_not_deleted_until_the_pod_has_ended() -> Result<()> {
    RealScene::play("in-use", protecting(), async |scene| {
        let objects = ["env", "volume"].map(|name| protected(name, "1", "in-use"));
        scene.apply(&objects).await?;
        scene.create(&reads_variable(scene, "web", "env")).await?;
        scene.apply(&[once(scene)]).await?;
        scene.all_answer("once", "/file/whole/key", "1").await?;

        dry_run_tells(scene, "env", "is in use").await?;
        for (name, user) in [("env", "web-"), ("volume", "once")] {
            let refused = deletion_of(scene, name, &[]).await?;
            let used = format!("{}/{name} is in use by Pod {user}", scene.namespace);
            let label = format!("{PROTECT}=in-use");
            ensure!(
                refused.contains(&used) && refused.contains(&label),
                "{refused}"
            );
        }

        // The pod is still there, and does not run any more.
        end_once(scene).await?;
        scene.kubectl(&["delete", "configmap", "volume"]).await?;
        let with_pods = ["delete", "deployment", "web", "--cascade=foreground"];
        scene.kubectl(&with_pods).await?;
        let delete = ["delete", "configmap", "env"];
        scene.kubectl(&delete).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn old_pods_start_again_with_a_config_map_that_was_pruned_in_their_rollout() -> Result<()> {
    RealScene::play("keep", protecting(), async |scene| {
        scene.apply(&[protected("app-1", "good", "keep")]).await?;
        scene.create(&web(scene, "app-1")).await?;
        let old = names_of_pods(scene, "web").await?;
        dry_run_tells(scene, "app-1", "it comes back").await?;

        // The new pod is never ready, so the old ones stay.
        scene.apply(&[protected("app-2", "bad", "keep")]).await?;
        scene.apply(&[web(scene, "app-2").manifest()]).await?;
        answer(scene, ["bad", "good", "good"]).await?;

        scene.kubectl(&["delete", "configmap", "app-1"]).await?;
        let old: Vec<_> = old.iter().map(String::as_str).collect();
        scene
            .kubectl(&[&["delete", "pods"], &old[..]].concat())
            .await?;
        answer(scene, ["bad", "good", "good"]).await?;
        let kept = ["get", "configmap", "app-1", "--output=json"];
        let kept: Value = serde_json::from_str(&scene.kubectl(&kept).await?)?;
        ensure!(
            kept["metadata"]["labels"] == json!({"pod-reloader.cs.sap.com/kept": "true"}),
            "{kept}"
        );

        // Once the new content is corrected, the rollout goes on.
        scene.apply(&[protected("app-2", "better", "keep")]).await?;
        answer(scene, ["better", "better"]).await?;
        scene.rolled_out("web").await
    })
    .await
}

/// Returns values of the chart with which it protects.
fn protecting() -> Value {
    json!({"protect": {"enabled": true}, "webhook": {"restrictedOtherwise": true}})
}

/// Returns a ConfigMap with the label.
fn protected(name: &str, value: &str, protection: &str) -> Value {
    let mut object = config_map(name, value);
    object["metadata"]["labels"] = json!({PROTECT: protection});
    object
}

/// Returns a pod that reads the ConfigMap `volume` by a volume, and does not start again when it has ended.
fn once(scene: &RealScene) -> Value {
    let mounts = json!({"volumeMounts": [{"name": "whole", "mountPath": "/whole"}]});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "once", "labels": {"app": "once"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [container(&scene.node, &mounts)],
            "volumes": [{"name": "whole", "configMap": {"name": "volume"}}],
        },
    })
}

/// Returns a Deployment of two pods that read a ConfigMap by variable and volume, and are never ready with the content
/// `bad`. None of its pods ends before another one is ready.
fn web(scene: &RealScene, config_map: &str) -> Workload {
    let container = json!({
        "envFrom": [{"prefix": "ALL_", "configMapRef": {"name": config_map}}],
        "env": [{"name": "READY_FILE", "value": "/whole/key"}],
        "volumeMounts": [{"name": "whole", "mountPath": "/whole"}],
    });
    let volume = json!({"volumes": [{"name": "whole", "configMap": {"name": config_map}}]});
    let one_more = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    scene
        .answering("web", 2, &container, &volume)
        .with(&["spec", "strategy"], one_more)
}

/// Has the pod `once` end, and waits until its kubelet reports that.
async fn end_once(scene: &RealScene) -> Result<()> {
    let pods = scene.pods("once").await?;
    let address = pods.first().and_then(address);
    // It ends before it answers.
    let _ = ask(&address.context("the pod has an address")?, "/exit/0").await;
    let ended = "--for=jsonpath={.status.phase}=Succeeded";
    let wait = ["wait", "pod", "once", ended, "--timeout=60s"];
    scene.kubectl(&wait).await.map(drop)
}

/// Waits until the apiserver calls the webhook: a dry run of the deletion of a ConfigMap is answered with these words.
async fn dry_run_tells(scene: &RealScene, config_map: &str, words: &str) -> Result<()> {
    wait_for("the webhook to be called", PATIENCE, async || {
        let told = deletion_of(scene, config_map, &["--dry-run=server"]).await?;
        done_if(told.contains(words), told)
    })
    .await
}

/// Deletes a ConfigMap, and returns what kubectl says, whether or not it is refused.
async fn deletion_of(scene: &RealScene, config_map: &str, args: &[&str]) -> Result<String> {
    let delete = [&["delete", "configmap", config_map], args].concat();
    let output = scene.kubectl_output(&delete).await?;
    Ok(output.stderr + &output.stdout)
}

/// Waits until the pods of `web` have started with these contents, in this order of the alphabet.
async fn answer<const PODS: usize>(scene: &RealScene, expected: [&str; PODS]) -> Result<()> {
    let what = format!("pods to answer with {expected:?}");
    wait_for(&what, LONG, async || {
        let mut answers = scene.answers("web", "/env/ALL_key").await?;
        answers.sort();
        let contents = answers.iter().map(|answer| answer.as_deref());
        done_if(contents.eq(expected.map(Some)), format!("{answers:?}"))
    })
    .await
}

async fn names_of_pods(scene: &RealScene, app: &str) -> Result<Vec<String>> {
    let pods = scene.pods(app).await?.into_iter();
    Ok(pods.filter_map(|pod| pod.metadata.name).collect())
}

/// The label that protects an object.
const PROTECT: &str = "pod-reloader.cs.sap.com/protect";
