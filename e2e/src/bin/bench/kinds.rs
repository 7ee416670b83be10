//! Measures the cost of three additional kinds: memory, requests, and work for a change.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use pod_reloader_e2e::{
    Attempt, ControlPlane, ControlPlaneOptions, Scene,
    crds::crd,
    done_if, wait_for,
    workload::{CONFIG_HASH, CONFIG_MAPS, config_map},
};
use serde_json::{Value, json};

use crate::{clear, figures::Figures, memory::Memory, options, without_controllers};

/// Number of workloads of each kind.
const EACH: usize = 500;
const KINDS: [&str; 3] = ["rollouts", "services", "kafkaconnects"];

pub(crate) async fn measure(figures: &mut Figures, quick: bool) -> Result<()> {
    let each = if quick { EACH / 5 } else { EACH };
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let kubectl = control_plane.kubectl();
    for name in KINDS {
        let definition = crd(name).to_string();
        kubectl
            .run_with_input(&["apply", "--filename=-"], &definition)
            .await?;
    }
    let values = json!({"customResources": ["argo-rollouts", "knative", "kafkaconnect"]});
    let scene = Scene::set(control_plane, "bench", options("1s", values)).await?;
    without_controllers(&scene).await?;
    scene.apply(&[config_map("app", "0")]).await?;

    let mut last = restarted(&scene).await?;
    say(
        figures,
        "at rest, three kinds more and no object",
        &last,
        None,
    );
    for kind in ["deployments", KINDS[0], KINDS[1], KINDS[2]] {
        let workloads: Vec<_> = (0..each).map(|number| workload(kind, number)).collect();
        scene.apply(&workloads).await?;
        carried(&scene, kind, each).await?;
        let now = restarted(&scene).await?;
        say(
            figures,
            &format!("with {each} {kind} more"),
            &now,
            Some((&last, each)),
        );
        last = now;
    }
    changed(figures, &scene, each).await?;
    clear(scene).await;
    Ok(())
}

/// The operator at rest, after a start of its own.
struct Rest {
    memory: Memory,
    /// Requests that the start took, by verb.
    requests: BTreeMap<String, usize>,
}

async fn restarted(scene: &Scene) -> Result<Rest> {
    scene.operator.stop().await;
    let mark = scene.mark().await?;
    scene.operator.start_again().await?;
    // Longer than the first look at the kinds that are served.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let memory = Memory::now(scene).await?;
    let mut requests = BTreeMap::new();
    for request in scene.requests(mark).await? {
        if request.stage == "ResponseComplete" || request.verb == "watch" {
            *requests.entry(request.verb).or_insert(0) += 1;
        }
    }
    Ok(Rest { memory, requests })
}

fn say(figures: &mut Figures, what: &str, now: &Rest, before: Option<(&Rest, usize)>) {
    let each = before.map_or_else(String::new, |(before, count)| {
        let more = now.memory.resident as f64 - before.memory.resident as f64;
        format!("; {:.2} KiB for each", more / 1024.0 / count as f64)
    });
    let requests = &now.requests;
    figures.say(
        what,
        None,
        format!("{}{each}; start {requests:?}", now.memory),
        "in proportion",
    );
}

/// Measures one change that concerns all workloads.
async fn changed(figures: &mut Figures, scene: &Scene, each: usize) -> Result<()> {
    let before = scene.operator.process().cpu_time()?;
    let mark = scene.mark().await?;
    scene.apply(&[config_map("app", "1")]).await?;
    let all = 4 * each;
    let done = wait_for("a patch for each", Duration::from_secs(300), async || {
        let patches = patches(scene, mark).await?;
        let count: usize = patches.values().sum();
        Ok(match count >= all {
            true => Attempt::Done(patches),
            false => Attempt::NotYet(format!("{count} of {all}")),
        })
    })
    .await?;
    let cpu = scene.operator.process().cpu_time()? - before;
    let cpu = cpu.as_secs_f64() * 1000.0 / all as f64;
    figures.say(
        &format!("a change that concerns {each} of each of four kinds"),
        None,
        format!("{cpu:.2} ms of CPU for each; patches {done:?}"),
        "in proportion",
    );
    Ok(())
}

async fn patches(scene: &Scene, mark: pod_reloader_e2e::Mark) -> Result<BTreeMap<String, usize>> {
    let mut patches = BTreeMap::new();
    for request in scene.requests(mark).await? {
        if request.verb == "patch"
            && request.stage == "ResponseComplete"
            && request.resource != "events"
        {
            *patches.entry(request.resource).or_insert(0) += 1;
        }
    }
    Ok(patches)
}

/// Waits until this many objects of a kind carry the config hash.
async fn carried(scene: &Scene, kind: &str, count: usize) -> Result<()> {
    let what = format!("{count} {kind} to carry the hash");
    let resource = match kind {
        "services" => "services.serving.knative.dev",
        other => other,
    };
    wait_for(&what, Duration::from_secs(300), async || {
        let output = scene.kubectl(&["get", resource, "--output=json"]).await?;
        let carrying = output.matches(&format!("\"{CONFIG_HASH}\":")).count();
        done_if(carrying >= count, format!("{carrying} of {count}"))
    })
    .await
}

fn workload(kind: &str, number: usize) -> Value {
    let pod = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    });
    let (api_version, name, spec) = match kind {
        "deployments" => (
            "apps/v1",
            "Deployment",
            json!({"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": pod}),
        ),
        "rollouts" => (
            "argoproj.io/v1alpha1",
            "Rollout",
            json!({"replicas": 1, "template": pod}),
        ),
        "services" => (
            "serving.knative.dev/v1",
            "Service",
            json!({"template": pod}),
        ),
        _ => (
            "kafka.strimzi.io/v1beta2",
            "KafkaConnect",
            json!({"replicas": 1}),
        ),
    };
    json!({
        "apiVersion": api_version,
        "kind": name,
        "metadata": {"name": format!("web-{number}"), "annotations": {CONFIG_MAPS: "app"}},
        "spec": spec,
    })
}
