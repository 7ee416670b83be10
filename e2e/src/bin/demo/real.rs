//! Shows the main job of pod-reloader on a real node: pods answer with what they have read, before and after each change.

use std::{cell::Cell, collections::BTreeSet};

use anyhow::{Result, ensure};
use pod_reloader_e2e::{
    PATIENCE, RealScene, done_if,
    real_scene::RELEASE,
    wait_for,
    workload::{Workload, config_map},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{command, seconds, step};

/// Shows all steps. With `keep`, everything runs until Ctrl-C.
pub(crate) async fn show(keep: bool) -> Result<()> {
    println!("helm install charts/pod-reloader, with an image, for two pods of the operator ...");
    let started = Instant::now();
    let is_seen = Cell::new(false);
    RealScene::play("shop", Value::Null, async |scene| {
        let took = seconds(started.elapsed());
        println!("  ready after {took}, and the apiserver calls its webhook\n");
        let shown = steps(scene).await;
        match &shown {
            Ok(()) => {
                is_seen.set(true);
                println!("\nEvery step was seen.");
            }
            Err(error) => eprintln!("\nNot what should be seen: {error:#}"),
        }
        if keep {
            until_interrupted(scene).await?;
        }
        shown
    })
    .await?;
    // Without a real node, a scene is not played.
    ensure!(
        is_seen.get(),
        "there is no real node here: run `make demo REAL=1`"
    );
    Ok(())
}

async fn steps(scene: &RealScene) -> Result<()> {
    step(
        1,
        "Three pods read a ConfigMap, as a variable and as a file",
    );
    command("kubectl apply -f web-config.yaml -f web.yaml   # color=blue");
    scene.apply(&[content("blue")]).await?;
    let web = web(scene);
    scene.create(&web).await?;
    all_answer(scene, "blue").await?;

    step(2, "The ConfigMap changes");
    command("kubectl apply -f web-config.yaml   # color=green");
    let before = scene.revisions("web").await?;
    scene.apply(&[content("green")]).await?;
    rolls_once(scene, &before, "green").await?;

    step(
        3,
        "One release changes the ConfigMap and the pod template together",
    );
    command("kubectl apply -f release-2/   # color=red");
    let before = scene.revisions("web").await?;
    let label = ["spec", "template", "metadata", "labels", "release"];
    let release = web.with(&label, json!("2"));
    scene.apply(&[content("red"), release.manifest()]).await?;
    rolls_once(scene, &before, "red").await?;

    step(4, "The ConfigMap changes while the operator is down");
    let before = scene.revisions("web").await?;
    scale_operator(scene, 0).await?;
    command("kubectl apply -f web-config.yaml   # color=black, and nobody is there to see it");
    scene.apply(&[content("black")]).await?;
    let meanwhile = scene.new_revisions("web", &before).await?;
    ensure!(meanwhile == 0, "something moved without the operator");
    scale_operator(scene, 2).await?;
    rolls_once(scene, &before, "black").await
}

/// Returns the ConfigMap with a colour.
fn content(color: &str) -> Value {
    config_map("web-config", color)
}

fn web(scene: &RealScene) -> Workload {
    let container = json!({
        "env": [{"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "web-config", "key": "key"}}}],
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    });
    let volume = json!({"volumes": [{"name": "config", "configMap": {"name": "web-config"}}]});
    scene.answering("web", 3, &container, &volume)
}

/// Waits until all pods are replaced once, and shows what they answer.
async fn rolls_once(scene: &RealScene, before: &BTreeSet<String>, color: &str) -> Result<()> {
    let started = Instant::now();
    scene.rolls_once("web", before).await?;
    let took = seconds(started.elapsed());
    println!("   after {took}, all pods are replaced, by exactly one rollout");
    all_answer(scene, color).await
}

/// Waits until all pods have read this colour, and shows their answers.
async fn all_answer(scene: &RealScene, color: &str) -> Result<()> {
    for (what, path) in [
        ("variable COLOR", "/env/COLOR"),
        ("file /config/key", "/file/config/key"),
    ] {
        scene.all_answer("web", path, color).await?;
        let answers = scene.answers("web", path).await?;
        let answers: Vec<_> = answers.into_iter().flatten().collect();
        println!("   the pods answer, {what}: {}", answers.join(", "));
    }
    Ok(())
}

/// Stops or starts the operator, and waits until so many pods of it run.
async fn scale_operator(scene: &RealScene, replicas: usize) -> Result<()> {
    let count = format!("--replicas={replicas}");
    let scale = ["scale", "deployment", RELEASE, &count];
    command(&format!("kubectl {}", scale.join(" ")));
    let kubectl = scene.control_plane.kubectl();
    let in_its_namespace = ["--namespace", RELEASE];
    kubectl
        .run(&[&scale[..], &in_its_namespace].concat())
        .await?;
    wait_for(
        &format!("{replicas} pods of the operator"),
        PATIENCE,
        async || {
            let running = scene.operator_processes()?.len();
            done_if(running == replicas, format!("{running} run"))
        },
    )
    .await
}

async fn until_interrupted(scene: &RealScene) -> Result<()> {
    let kubeconfig = scene.control_plane.kubeconfig_path().display();
    let kubectl = scene.control_plane.bin("kubectl");
    println!(
        "\nIt goes on until Ctrl-C. In another shell, enter the node as the log says, and then:"
    );
    println!("  export KUBECONFIG={kubeconfig}");
    println!(
        "  {} --namespace {} edit configmap web-config",
        kubectl.display(),
        scene.namespace
    );
    tokio::signal::ctrl_c().await?;
    Ok(())
}
