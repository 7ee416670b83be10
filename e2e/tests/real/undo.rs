//! Pods of earlier revisions have the content of earlier revisions.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use pod_reloader_e2e::{Attempt, PATIENCE, RealScene, wait_for};
use serde_json::json;

use crate::contents::{at_rest, reads_variable};

#[tokio::test]
async fn a_pod_of_an_old_revision_and_an_undo_have_the_old_content() -> Result<()> {
    let values = json!({"pin": {"enabled": true}, "webhook": {"restrictedOtherwise": true}});
    RealScene::play("undo", values, async |scene| {
        pins_are_in_force(scene).await?;
        scene.set("app", "1").await?;
        let web = reads_variable(scene, "web", "app").annotated(PIN, "configmaps");
        scene.create(&web).await?;
        let pins = "--for=jsonpath={.spec.template.metadata.annotations.pod-reloader\\.cs\\.sap\\.com/pins}";
        scene
            .kubectl(&["wait", "deployment", "web", pins, "--timeout=60s"])
            .await?;
        scene.rolled_out("web").await?;
        let before = scene.revisions("web").await?;

        // Restarts are held, so the new pod is of the old revision.
        scene
            .kubectl(&["annotate", "deployment", "web", &hold("=true")])
            .await?;
        scene.set("app", "2").await?;
        let pods = scene.pods("web").await?;
        let killed = pods.first().and_then(|pod| pod.metadata.name.as_deref());
        let killed = killed.context("no pod runs")?;
        scene.kubectl(&["delete", "pod", killed]).await?;
        scene.rolled_out("web").await?;
        scene.all_answer("web", "/env/ALL_key", "1").await?;

        scene
            .kubectl(&["annotate", "deployment", "web", &hold("-")])
            .await?;
        scene.rolls_once("web", &before).await?;
        scene.all_answer("web", "/env/ALL_key", "2").await?;

        let before = scene.revisions("web").await?;
        scene
            .kubectl(&["rollout", "undo", "deployment", "web"])
            .await?;
        scene.all_answer("web", "/env/ALL_key", "1").await?;
        scene.rolled_out("web").await?;

        // It stays so while another change arrives.
        at_rest(scene, "other").await?;
        scene.all_answer("web", "/env/ALL_key", "1").await?;
        let rollouts = scene.new_revisions("web", &before).await?;
        ensure!(rollouts == 0, "{rollouts} rollouts after an undo");
        Ok(())
    })
    .await
}

/// Waits until the policy puts copies into new pods, without storing one.
async fn pins_are_in_force(scene: &RealScene) -> Result<()> {
    const COPY: &str = "app-0123456789";
    let pod = json!({
        "metadata": {"name": "trial", "annotations": {PINS: format!("app={COPY}")}},
        "spec": {
            "containers": [{"name": "main", "image": "app", "envFrom": [{"configMapRef": {"name": "app"}}]}],
        },
    });
    let pod: Pod = serde_json::from_value(pod)?;
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    wait_for("a pod to be pinned", PATIENCE, async || {
        // The default service account may not be there yet.
        Ok(match pods.create(&dry_run, &pod).await {
            Ok(pod) if json!(pod)["spec"].to_string().contains(COPY) => Attempt::Done(()),
            Ok(_) => Attempt::NotYet("its ConfigMap is not a copy".to_owned()),
            Err(error) => Attempt::NotYet(error.to_string()),
        })
    })
    .await
}

fn hold(value: &str) -> String {
    format!("pod-reloader.cs.sap.com/hold{value}")
}

/// Annotation of a workload with the ConfigMaps to pin.
const PIN: &str = "pod-reloader.cs.sap.com/pin";
/// Annotation of a pod template with the copies that its pods use.
const PINS: &str = "pod-reloader.cs.sap.com/pins";
