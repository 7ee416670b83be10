//! Measures how long the answer takes whether a protected Secret is in use, in a namespace with many pods.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use pod_reloader_e2e::{PATIENCE, Scene, wait_for};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::figures::{Figures, Spread};
use crate::{clear, scene_with, without_controllers};

const ROUNDS: usize = 20;
const AT_ONCE: usize = 16;

pub(crate) async fn measure(figures: &mut Figures, quick: bool) -> Result<()> {
    let count = if quick { 500 } else { 5_000 };
    let scene = scene_with("0s", json!({"protect": {"enabled": true}})).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(scene.client.clone(), &scene.namespace);
    wait_for("the service account of pods", PATIENCE, async || {
        Ok(accounts.get("default").await.into())
    })
    .await?;
    // The garbage collector would delete pods of a node that does not exist.
    without_controllers(&scene).await?;
    create_pods(&scene, count).await?;
    let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), &scene.namespace);
    for (name, protect) in [("free", "no"), ("unused", "in-use"), ("used", "in-use")] {
        let labels = json!({"pod-reloader.cs.sap.com/protect": protect});
        let secret = json!({"metadata": {"name": name, "labels": labels}});
        let secret = serde_json::from_value(secret)?;
        secrets.create(&PostParams::default(), &secret).await?;
    }
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(deletion(&secrets, "free", None).await?);
        times[1].push(deletion(&secrets, "unused", None).await?);
        times[2].push(deletion(&secrets, "used", Some("Pod")).await?);
    }
    let [free, unused, used] = times.map(Spread::of);
    let other = free.to_string();
    for (what, answered) in [("no pod uses", unused), ("pods use", used)] {
        let what = format!(
            "deletion of a protected Secret that {what}, {count} pods; floor: of one that is not protected"
        );
        figures.say(&what, Some(&other), answered.to_string(), "1 s");
    }
    clear(scene).await;
    Ok(())
}

/// Asks whether a Secret may be deleted. Returns how long the answer took.
async fn deletion(secrets: &Api<Secret>, name: &str, user: Option<&str>) -> Result<Duration> {
    let params = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    let began = Instant::now();
    let answer = secrets.delete(name, &params).await;
    let took = began.elapsed();
    match (answer, user) {
        (Ok(_), None) => {}
        (Err(kube::Error::Api(status)), Some(user)) if status.message.contains(user) => {}
        (answer, _) => {
            let answer = answer.map(drop);
            ensure!(answer.is_ok(), "deleting {name}: {answer:?}");
            anyhow::bail!("{name} may be deleted");
        }
    }
    Ok(took)
}

/// Creates pods on a node that does not exist. Every hundredth uses Secret `used`.
async fn create_pods(scene: &Scene, count: usize) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let all = (0..count).map(async |number| {
        let secret = if number % 100 == 0 { "used" } else { "another" };
        let pod: Pod = serde_json::from_value(pod(&format!("web-{number}"), secret))?;
        let created = pods.create(&PostParams::default(), &pod).await;
        created.map(drop).with_context(|| pod.name_any())
    });
    stream::iter(all)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

fn pod(name: &str, secret: &str) -> Value {
    let container = |name: &str| {
        let variable =
            json!({"name": "V", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "key"}}});
        json!({
            "name": name,
            "image": "app:1",
            "env": [variable],
            "envFrom": [{"secretRef": {"name": secret}}],
        })
    };
    json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "nodeName": "none",
            "automountServiceAccountToken": false,
            "volumes": [{"name": "app", "configMap": {"name": "app"}}],
            "containers": [container("main"), container("sidecar")],
        },
    })
}
