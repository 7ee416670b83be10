//! Replicas of the operator that die while configurations change.

use std::{fs, process::Stdio};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use pod_reloader_e2e::{
    MachineProcess, RealScene, done_if,
    real_scene::{LONG, restarts},
    wait_for,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{process::Command, time::timeout};

use crate::contents::reads_variable;

#[tokio::test]
async fn a_replica_that_is_killed_and_one_without_memory_lose_no_change() -> Result<()> {
    RealScene::play("replicas", Value::Null, async |scene| {
        scene.set("app", "0").await?;
        scene.create(&reads_variable(scene, "web", "app")).await?;

        // Whichever of them leads: each of the two dies once.
        for (round, operator) in scene.operator_processes()?.iter().enumerate() {
            changes_while(scene, &format!("killed-{round}"), async || {
                operator.signal(Signal::KILL)
            })
            .await?;
        }
        restarted(scene, 2).await?;

        let operators = scene.operator_processes()?;
        let operator = operators.first().context("no operator runs")?;
        changes_while(scene, "without-memory", async || {
            fill_memory(operator).await?;
            restarted(scene, 3).await
        })
        .await?;
        let killed = scene.operators().await?;
        ensure!(killed.iter().any(was_out_of_memory), "{killed:?}");
        Ok(())
    })
    .await
}

/// Changes the ConfigMap, does something to the operator, and checks that it made one rollout with the new content.
async fn changes_while(
    scene: &RealScene,
    content: &str,
    mut deed: impl AsyncFnMut() -> Result<()>,
) -> Result<()> {
    let before = scene.revisions("web").await?;
    scene.set("app", content).await?;
    deed().await?;
    scene.rolls_once("web", &before).await?;
    scene.all_answer("web", "/env/ALL_key", content).await
}

/// Waits until the containers of the operator have been started again so often, and all are ready.
async fn restarted(scene: &RealScene, times: i32) -> Result<()> {
    wait_for("the operator to be restarted", LONG, async || {
        let operators = scene.operators().await?;
        let restarts: i32 = operators.iter().map(restarts).sum();
        ensure!(restarts <= times, "{restarts} restarts, not {times}");
        let ready = operators.iter().filter(|pod| is_ready(pod)).count();
        done_if(
            restarts == times && ready == 2,
            format!("{restarts} restarts, {ready} are ready"),
        )
    })
    .await
}

fn is_ready(pod: &Pod) -> bool {
    let pod = json!(pod);
    let conditions = pod["status"]["conditions"].as_array();
    let is_ready =
        |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    conditions.is_some_and(|conditions| conditions.iter().any(is_ready))
}

fn was_out_of_memory(pod: &Pod) -> bool {
    let pod = json!(pod);
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["reason"] == "OOMKilled"
}

/// Fills a file in memory on account of a container, so that the kernel kills the container's process, which it prefers,
/// and what fills. Then removes the file: it counts as memory of the pod, whose next container is to have room.
async fn fill_memory(of: &MachineProcess) -> Result<()> {
    const FILL: &str = "echo $$ >\"$1/cgroup.procs\" && exec head -c 1G /dev/zero >\"$2\"";
    const FILE: &str = "/run/filling";
    let mut filling = Command::new("sh")
        .args(["-c", FILL, "sh"])
        .arg(of.memory_cgroup()?)
        .arg(FILE)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("running sh")?;
    let ended = timeout(LONG, filling.wait()).await;
    fs::remove_file(FILE).context("no memory was filled")?;
    ended.context("what fills the memory does not end")??;
    Ok(())
}
