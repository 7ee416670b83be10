//! Pods of earlier revisions have the content of earlier revisions.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::RealScene;
use serde_json::json;

use crate::contents::{at_rest, reads_variable};

#[tokio::test]
async fn a_pod_of_an_old_revision_and_an_undo_have_the_old_content() -> Result<()> {
    let values = json!({"pin": {"enabled": true}, "webhook": {"restrictedOtherwise": true}});
    RealScene::play("undo", values, async |scene| {
        scene.pins_are_in_force().await?;
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

fn hold(value: &str) -> String {
    format!("pod-reloader.cs.sap.com/hold{value}")
}

/// Annotation of a workload with the ConfigMaps to pin.
const PIN: &str = "pod-reloader.cs.sap.com/pin";
