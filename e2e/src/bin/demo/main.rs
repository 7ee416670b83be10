//! Shows the main job of pod-reloader on a real control plane, step by step.

mod real;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use pod_reloader_e2e::workload::{CONFIG_HASH, CONFIG_MAPS, SECRETS, Workload, config_map, secret};
use pod_reloader_e2e::{ControlPlane, ControlPlaneOptions, Options, Scene, Snapshot};
use serde_json::json;
use tokio::time::Instant;

/// Shows the main job of pod-reloader on a real control plane, step by step. Ends with 0 only if every step was seen.
#[derive(Parser)]
struct Args {
    /// Leave everything running at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Show it on the real node that this runs on, where pods answer with what they have read.
    #[arg(long)]
    real: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    if args.real {
        return real::show(args.keep).await;
    }
    println!(
        "Starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok and cert-manager ..."
    );
    let started = Instant::now();
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    println!("  ready after {}", seconds(started.elapsed()));

    println!(
        "helm install charts/pod-reloader --set webhook.certManager.enabled=true, and an image; the operator is a \
         process with the service account, the arguments and the certificate of the chart's pod ..."
    );
    let started = Instant::now();
    // Same as the operator's own default.
    let options = Options {
        settle_period: "5s",
        everywhere: true,
        values: json!({"webhook": {"certManager": {"enabled": true}}}),
        released: true,
        ..Options::ignoring()
    };
    let scene = Scene::set(control_plane, "shop", options).await?;
    println!(
        "  ready after {}, and the apiserver calls its webhook\n",
        seconds(started.elapsed())
    );

    let shown = show(&scene).await;
    match &shown {
        Ok(()) => println!("\nEvery step was seen."),
        Err(error) => eprintln!(
            "\nNot what should be seen: {error:#}\n{}",
            scene.operator.log()?
        ),
    }
    if args.keep {
        let kubeconfig = scene.control_plane.kubeconfig_path().display();
        println!("\nIt goes on until Ctrl-C. In another shell:\n  export KUBECONFIG={kubeconfig}");
        println!("  kubectl --namespace shop edit configmap web-config");
        tokio::signal::ctrl_c().await?;
    }
    scene.operator.stop().await;
    scene.control_plane.stop().await;
    shown
}

async fn show(scene: &Scene) -> Result<()> {
    let web = Workload::deployment("web")
        .lists("web-config")
        .lists_secrets("web-password");

    step(
        1,
        "A Deployment lists a ConfigMap and a Secret in annotations",
    );
    scene
        .apply(&[
            config_map("web-config", "color=blue"),
            secret("web-password", "first"),
        ])
        .await?;
    let created = scene.create(&web).await?;
    ensure!(created.key.is_some(), "the webhook set no config hash");
    println!(
        "   metadata.annotations: {}",
        json!({CONFIG_MAPS: "web-config", SECRETS: "web-password"})
    );
    say(
        "as it was created, the webhook set the config hash of its pod template",
        &created,
    );

    step(2, "The ConfigMap changes");
    command("kubectl apply -f web-config.yaml   # color=green");
    scene
        .apply(&[config_map("web-config", "color=green")])
        .await?;
    let changed = rolls_once(scene, &web, &created).await?;

    step(3, "The Secret changes");
    command("kubectl apply -f web-password.yaml");
    scene.apply(&[secret("web-password", "second")]).await?;
    let changed = rolls_once(scene, &web, &changed).await?;
    for (reason, note) in scene.events(&web).await? {
        println!("   Event {reason}: {note}");
    }

    step(4, "kubectl replace with a manifest that has no config hash");
    command("kubectl replace -f web.yaml");
    let manifest = web.manifest().to_string();
    ensure!(
        !manifest.contains(CONFIG_HASH),
        "the manifest carries the hash"
    );
    scene
        .kubectl_with_input(&["replace", "--filename=-"], &manifest)
        .await?;
    rolls_not(scene, &web, &changed).await?;

    step(5, "A label on the ConfigMap");
    command("kubectl label configmap web-config team=shop");
    scene
        .kubectl(&["label", "configmap", "web-config", "team=shop"])
        .await?;
    rolls_not(scene, &web, &changed).await?;

    step(
        6,
        "One release changes the ConfigMap and the image together",
    );
    command("kubectl apply -f release-2/   # ConfigMap first, then the Deployment");
    let release = web.clone().image("app:2");
    scene
        .apply(&[config_map("web-config", "color=red"), release.manifest()])
        .await?;
    let released = rolls_once(scene, &release, &changed).await?;

    step(7, "The ConfigMap changes while the operator is down");
    scene.operator.stop().await;
    command("kubectl apply -f web-config.yaml   # color=black, and nobody is there to see it");
    scene
        .apply(&[config_map("web-config", "color=black")])
        .await?;
    let meanwhile = scene.snapshot(&web).await?;
    ensure!(
        meanwhile == released,
        "something moved without the operator: {meanwhile:?}"
    );
    println!("   nothing happens; now the operator starts again");
    scene.operator.start_again().await?;
    rolls_once(scene, &web, &released).await?;

    Ok(())
}

fn step(number: u32, title: &str) {
    println!("{number}. {title}");
}

fn command(line: &str) {
    println!("   $ {line}");
}

async fn rolls_once(scene: &Scene, workload: &Workload, before: &Snapshot) -> Result<Snapshot> {
    let started = Instant::now();
    scene.right(workload).await?;
    let took = seconds(started.elapsed());
    let after = scene.rolls_once(workload, before).await?;
    say(&format!("after {took}, exactly one new ReplicaSet"), &after);
    Ok(after)
}

async fn rolls_not(scene: &Scene, workload: &Workload, before: &Snapshot) -> Result<()> {
    scene.rolls_not(workload, before).await?;
    say(
        "still there, and no rollout (a later change elsewhere was waited for)",
        before,
    );
    Ok(())
}

fn say(what: &str, snapshot: &Snapshot) {
    let key = snapshot.key.as_deref().unwrap_or("none");
    let short: String = key.chars().take(24).collect();
    println!("   {what}");
    println!(
        "   {CONFIG_HASH}: {short}..., ReplicaSets: {}",
        snapshot.revisions.len()
    );
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
