//! Measures one operator over a very large number of workloads, such as a hundred thousand.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use http_body_util::{BodyExt, Limited};
use k8s_openapi::ByteString;
use kube::Client;
use pod_reloader_e2e::{Scene, crowd, oracle::Truth, workload::config_map};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    changes::Bench,
    clear,
    figures::{Figures, Spread},
    scale::{fan_out, start},
    scene,
    subject::Subject,
    without_controllers,
};

/// Number of workloads in one namespace. Those of the first namespace get the fan-out.
const EACH: usize = 1_000;
/// Size of the content of a Secret, in bytes.
const CONTENT: usize = 1_024;
/// Number of parallel creates. More do not make two cores faster.
const AT_ONCE: usize = 32;
/// Maximum size of an answer to a create, in bytes.
const ANSWER: usize = 1 << 20;
/// Number of single changes, and the pause between two of them.
const CHANGES: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Measures with about this many Deployments, each with a Secret of its own, and with a ConfigMap for each namespace.
pub(crate) async fn measure(figures: &mut Figures, workloads: usize) -> Result<()> {
    let scene = scene("0s").await?;
    without_controllers(&scene).await?;
    let bench = Bench::begin(&scene).await?;
    bench.create(Subject::BOTH, "one", 1).await?;
    // From here on, nobody answers the webhook, and no watch has to follow.
    scene.operator.stop().await;
    let began = Instant::now();
    let namespaces = workloads.div_ceil(EACH);
    for number in 0..namespaces {
        let namespace = match number {
            0 => scene.namespace.clone(),
            _ => format!("{}-{number}", scene.namespace),
        };
        fill(&scene, &namespace).await?;
        println!("{} of {namespaces} namespaces are there", number + 1);
    }
    let all = namespaces * EACH;
    let took = began.elapsed();
    figures.say(
        &format!("{all} Deployments and {all} Secrets created"),
        None,
        format!("{:.0} s", took.as_secs_f64()),
        "-",
    );
    let name = format!("{all} workloads, {all} Secrets, {namespaces} namespaces");
    start(figures, &scene, &name).await?;

    bench.warm_up(Subject::Operator).await?;
    let changes = bench.changes(Subject::Operator, "one", CHANGES, PAUSE);
    figures.say(
        &format!("change to pod template, {name}"),
        None,
        Spread::of(changes.await?).to_string(),
        "-",
    );
    fan_out(figures, &scene, &bench.observer, &name, EACH).await?;
    clear(scene).await;
    Ok(())
}

/// Fills a namespace with Deployments that already carry their config hashes, as if each had been created by way of the
/// webhook.
async fn fill(scene: &Scene, namespace: &str) -> Result<()> {
    if *namespace != *scene.namespace {
        let object = json!({"metadata": {"name": namespace}});
        create(&scene.client, "/api/v1/namespaces", &object).await?;
    }
    let core = format!("/api/v1/namespaces/{namespace}");
    let mut truth = Truth::read(&scene.client, &scene.installation).await?;
    let shared = config_map("shared", "0");
    truth.take_in("ConfigMap", namespace, "shared", &shared);
    create(&scene.client, &format!("{core}/configmaps"), &shared).await?;
    let (mut secrets, mut deployments) = (Vec::new(), Vec::new());
    for (number, workload) in crowd("web", EACH).into_iter().enumerate() {
        let name = format!("secret-{number}");
        let content = ByteString(vec![number as u8; CONTENT]);
        let secret = json!({"metadata": {"name": name}, "data": {"key": content}});
        truth.take_in("Secret", namespace, &name, &secret);
        secrets.push(secret);
        let workload = workload.lists("shared").lists_secrets(&name);
        let mut manifest = workload.manifest();
        manifest["metadata"]["namespace"] = json!(namespace);
        let config_hash = truth.config_hash(&manifest).await?;
        deployments.push(workload.stamped(&config_hash).manifest());
    }
    create_all(&scene.client, &format!("{core}/secrets"), &secrets).await?;
    let apps = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    create_all(&scene.client, &apps, &deployments).await
}

async fn create_all(client: &Client, path: &str, objects: &[Value]) -> Result<()> {
    stream::iter(objects)
        .map(|object| create(client, path, object))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

/// Creates an object, and drops the answer unread: reading it would take time from the apiserver.
async fn create(client: &Client, path: &str, object: &Value) -> Result<()> {
    let request = Request::post(path).header("Content-Type", "application/json");
    let request = request.body(object.to_string().into_bytes().into())?;
    let answer = client.send(request).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER).collect().await;
    let body = body.map_err(anyhow::Error::from_boxed)?.to_bytes();
    status
        .is_success()
        .then_some(())
        .with_context(|| format!("{path}: {status}, {}", String::from_utf8_lossy(&body)))
}
