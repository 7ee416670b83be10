//! The node itself fails: its kubelet stops, or all of it starts again.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use pod_reloader_e2e::{
    Attempt, RealNode, RealScene,
    real_scene::{LONG, restarts},
    wait_for,
};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::contents::reads_variable;

#[tokio::test]
async fn a_change_while_the_kubelet_stops_is_one_rollout_once_it_goes_on() -> Result<()> {
    RealScene::play("kubelet", Value::Null, async |scene| {
        scene.set("app", "1").await?;
        scene.create(&reads_variable(scene, "web", "app")).await?;
        let before = scene.revisions("web").await?;

        let kubelet = scene.node_process("kubelet")?;
        kubelet.signal(Signal::STOP)?;
        let lost = async {
            scene.set("app", "2").await?;
            // After about a minute, the control plane notices.
            node_is(scene, "Unknown").await
        }
        .await;
        kubelet.signal(Signal::CONT)?;
        lost?;

        node_is(scene, "True").await?;
        scene.rolls_once("web", &before).await?;
        scene.all_answer("web", "/env/ALL_key", "2").await?;
        let rollouts = scene.new_revisions("web", &before).await?;
        ensure!(rollouts == 1, "{rollouts} rollouts for one change");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_node_that_starts_again_rolls_nothing_and_gets_the_next_change() -> Result<()> {
    RealScene::play("node-restart", Value::Null, async |scene| {
        scene.set("app", "1").await?;
        scene.create(&reads_variable(scene, "web", "app")).await?;
        let before = scene.revisions("web").await?;

        let killed = [
            ("kubelet", scene.node_process("kubelet")?),
            ("containerd", scene.node_process("containerd")?),
        ];
        for (_, process) in &killed {
            process.signal(Signal::KILL)?;
        }
        for (program, process) in &killed {
            runs_again(scene, program, process.pid).await?;
        }
        node_is(scene, "True").await?;
        scene.rolled_out("web").await?;
        scene.all_answer("web", "/env/ALL_key", "1").await?;
        let rollouts = scene.new_revisions("web", &before).await?;
        ensure!(rollouts == 0, "{rollouts} rollouts without a change");
        for pod in scene.pods("web").await? {
            ensure!(restarts(&pod) == 0, "{:?}", pod.status);
        }

        scene.set("app", "2").await?;
        scene.rolls_once("web", &before).await?;
        scene.all_answer("web", "/env/ALL_key", "2").await
    })
    .await
}

/// Waits until the condition `Ready` of the node is this.
async fn node_is(scene: &RealScene, status: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(scene.client.clone());
    wait_for(
        &format!("the node's Ready to be {status}"),
        LONG,
        async || {
            let node = json!(nodes.get(RealNode::NAME).await?);
            let conditions = node["status"]["conditions"].as_array().cloned();
            let mut conditions = conditions.unwrap_or_default().into_iter();
            let ready = conditions.find(|condition| condition["type"] == "Ready");
            Ok(match ready {
                Some(ready) if ready["status"] == status => Attempt::Done(()),
                ready => Attempt::NotYet(format!("{ready:?}")),
            })
        },
    )
    .await
}

/// Waits until a program of the node runs as another process.
async fn runs_again(scene: &RealScene, program: &str, before: Pid) -> Result<()> {
    wait_for(&format!("{program} to run again"), LONG, async || {
        Ok(match scene.node_process(program) {
            Ok(process) if process.pid != before => Attempt::Done(()),
            Ok(_) => Attempt::NotYet("it has not ended".to_owned()),
            Err(error) => Attempt::NotYet(format!("{error:#}")),
        })
    })
    .await
}
