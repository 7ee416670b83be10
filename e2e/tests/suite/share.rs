//! A namespace whose workloads take too much memory gets its share, and no other namespace suffers.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{Attempt, Options, PATIENCE, Scene, done_if, full, oracle, wait_for};
use serde_json::json;

/// Number of names that each of the large Deployments lists: the maximum.
const NAMES: usize = 256;

#[tokio::test]
async fn a_namespace_beyond_its_share_of_memory_is_reported_and_holds_up_no_other() -> Result<()> {
    let (size, share) = if full() { (1000, "32Mi") } else { (4, "256Ki") };
    let label = std::process::id().to_string();
    let options = Options {
        everywhere: true,
        namespace_labels: vec![format!("share={label}")],
        values: json!({"watch": {"namespaceSelector": {"matchLabels": {"share": label}}}}),
        args: vec![format!("--namespace-memory={share}")],
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let test = async |other: &str| overfull(scene, other, size).await;
        scene.with_namespace("large", test).await
    })
    .await
}

async fn overfull(scene: &Scene, other: &str, size: usize) -> Result<()> {
    scene.put_all(&[config_map("app", "1")]).await?;
    let web = Workload::podless("web").lists("app");
    scene.create(&web).await?;
    scene.right(&web).await?;
    let before = scene.snapshot(&web).await?;

    let large: Vec<_> = (0..size).map(large).collect();
    scene.create_all_in(other, &large).await?;
    // Only the full size makes the claims about memory and load. At the smaller one, exactly one of them fits.
    let is_expected = |left_out: usize| match full() {
        true => left_out >= size / 4,
        false => left_out == size - 1,
    };
    left_out(scene, is_expected).await?;
    let told = told(scene, other).await?;
    // Alongside all the reads for the others.
    scene.put_all(&[config_map("app", "2")]).await?;
    scene.rolls_once(&web, &before).await?;
    let peak = scene.operator.process().peak_memory()?;
    println!("{} MiB at most with {size} large Deployments", peak >> 20);
    ensure!(peak < 256 << 20, "{peak} bytes");

    for deployment in scene.objects_in(other, "apps/v1", "Deployment").await? {
        let name = deployment["metadata"]["name"].as_str();
        let name = name.context("it has a name")?;
        if name != told {
            let deployment = format!("deployment/{name}");
            scene.delete_in(other, &deployment).await?;
        }
    }
    left_out(scene, |left_out| left_out == 0).await?;
    let number = told.trim_start_matches("large-");
    let now_there = config_map(&format!("config-{number}-000"), "1");
    scene.put_all_in(other, &[now_there]).await?;
    let object = scene
        .object_in(other, &format!("deployment/{told}"))
        .await?;
    let expected = oracle::config_hash(&scene.client, &object, &scene.installation).await?;
    let what = format!("Deployment {told} to be restarted once there is room for it");
    wait_for(&what, PATIENCE, async || {
        done_if(scene.carrying(other, &expected).await? == 1, "it is not")
    })
    .await
}

/// Returns a Deployment that lists as many ConfigMaps as allowed. None of them exists, or is listed by
/// another one.
fn large(number: usize) -> Workload {
    let name = |name| format!("config-{number:04}-{name:03}");
    let names: Vec<_> = (0..NAMES).map(name).collect();
    Workload::deployment(&format!("large-{number:04}"))
        .lists(&names.join(","))
        .with(&["spec", "replicas"], json!(0))
}

/// Waits until the number of workloads left out satisfies `is_it`.
async fn left_out(scene: &Scene, is_it: impl Fn(usize) -> bool) -> Result<()> {
    wait_for(
        "workloads to be left out, or none",
        4 * PATIENCE,
        async || {
            let metrics = scene.operator.metrics().await?;
            let shown = metrics
                .lines()
                .find_map(|line| line.strip_prefix("pod_reloader_left_out_workloads "));
            let shown: usize = shown.context("the metric is there")?.parse()?;
            done_if(is_it(shown), format!("{shown} are left out"))
        },
    )
    .await
}

/// Returns the name of a Deployment about which an Event says that there is no room for it.
async fn told(scene: &Scene, namespace: &str) -> Result<String> {
    wait_for("an Event NamespaceTooLarge", PATIENCE, async || {
        let events = scene.events_in(namespace).await?;
        let mut told = events
            .iter()
            .filter(|event| event["reason"] == "NamespaceTooLarge");
        let name = told.next().and_then(|it| it["regarding"]["name"].as_str());
        Ok(match name {
            Some(name) => Attempt::Done(name.to_owned()),
            None => Attempt::NotYet("there is none".to_owned()),
        })
    })
    .await
}
