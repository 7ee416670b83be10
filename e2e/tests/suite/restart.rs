//! A restart of the operator writes nothing if nothing has changed.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{Api, api::PostParams};
use pod_reloader_e2e::workload::{CONFIG_HASH, Workload, config_map};
use pod_reloader_e2e::{AuditEvent, Options, Scene, full};
use serde_json::json;
use tokio::time::Instant;

const CONFIG_OBJECTS: usize = 40;

#[tokio::test]
async fn a_restart_over_unchanged_workloads_writes_nothing() -> Result<()> {
    Scene::play(Options::ignoring(), async |scene| {
        restart(scene, async || scene.operator.stop().await).await
    })
    .await
}

#[tokio::test]
async fn a_restart_after_sigkill_over_unchanged_workloads_writes_nothing() -> Result<()> {
    Scene::play(Options::ignoring(), async |scene| {
        restart(scene, async || scene.operator.process().kill().await).await
    })
    .await
}

fn workloads_in_all() -> usize {
    if full() { 5000 } else { 40 }
}

async fn restart(scene: &Scene, end: impl AsyncFnOnce()) -> Result<()> {
    create_workloads(scene).await?;
    scene.quiet().await?;
    let before = generations(scene).await?;
    end().await;
    let mark = scene.mark().await?;
    let start = Instant::now();
    scene.operator.start_again().await?;
    scene.quiet().await?;
    scene.quiet().await?;
    let took = start.elapsed();
    let requests = scene.requests(mark).await?;

    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    for event in requests.iter().filter(|event| is_first_stage(event)) {
        let what = (event.verb.as_str(), event.resource.as_str());
        *counts.entry(what).or_default() += 1;
    }
    println!(
        "{} workloads, done after {took:?}: {counts:?}",
        workloads_in_all()
    );
    let read: HashSet<_> = requests
        .iter()
        .filter(|event| event.verb == "get" && event.name.starts_with("app-"))
        .map(|event| &event.name)
        .collect();
    ensure!(read.len() == CONFIG_OBJECTS, "only {read:?} were read");
    let writes: Vec<_> = requests.iter().filter(|event| is_write(event)).collect();
    ensure!(writes.is_empty(), "{writes:?}");
    ensure!(
        generations(scene).await? == before,
        "some workloads have moved"
    );
    Ok(())
}

/// Creates many workloads without pods, which share ConfigMaps, each with its hash.
async fn create_workloads(scene: &Scene) -> Result<()> {
    let config_maps: Api<ConfigMap> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let workloads: Api<Deployment> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let params = PostParams::default();
    for number in 0..CONFIG_OBJECTS {
        let object = config_map(&format!("app-{number}"), &number.to_string());
        let object = serde_json::from_value(object)?;
        config_maps.create(&params, &object).await?;
    }
    let created: Vec<Deployment> = stream::iter(0..workloads_in_all())
        .map(async |number| {
            let one = number % CONFIG_OBJECTS;
            let other = (number * 7 + 1) % CONFIG_OBJECTS;
            let workload = Workload::deployment(&format!("web-{number}"))
                .lists(&format!("app-{one},app-{other}"))
                .with(&["spec", "replicas"], json!(0));
            let workload = serde_json::from_value(workload.manifest())?;
            anyhow::Ok(workloads.create(&params, &workload).await?)
        })
        .buffer_unordered(8)
        .try_collect()
        .await?;
    for workload in created {
        let template = workload.spec.map(|spec| spec.template).unwrap_or_default();
        let annotations = template.metadata.unwrap_or_default().annotations;
        ensure!(
            annotations.is_some_and(|map| map.contains_key(CONFIG_HASH)),
            "the webhook was not called"
        );
    }
    Ok(())
}

/// Returns the generation of each workload, with its hash.
async fn generations(scene: &Scene) -> Result<BTreeMap<String, Option<i64>>> {
    let workloads: Api<Deployment> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let list = workloads.list(&Default::default()).await?;
    let names = list.items.into_iter().map(|workload| {
        let name = workload.metadata.name.unwrap_or_default();
        (name, workload.metadata.generation)
    });
    Ok(names.filter(|(name, _)| name != "sentinel").collect())
}

/// Returns true for the first stage of a request: a watch is in the log twice.
fn is_first_stage(event: &AuditEvent) -> bool {
    event.verb != "watch" || event.stage == "ResponseStarted"
}

/// Returns true for changes of the cluster, except the restart of the sentinel and the question who we are.
fn is_write(event: &AuditEvent) -> bool {
    let regarding = event
        .request_object
        .as_ref()
        .map(|object| &object["regarding"]["name"]);
    let of_sentinel =
        event.name == "sentinel" || regarding.is_some_and(|name| *name == json!("sentinel"));
    !["get", "list", "watch"].contains(&event.verb.as_str())
        && event.resource != "selfsubjectreviews"
        && !of_sentinel
}
