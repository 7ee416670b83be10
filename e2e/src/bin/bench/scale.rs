//! Measures how a start, the memory and a fan-out to all grow with the number of workloads.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use pod_reloader_e2e::{Mark, Scene, crowd, workload::config_map};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    clear,
    figures::Figures,
    memory::{Memory, create_secrets},
    observer::Observer,
    scene_with, without_controllers,
};

/// Number of Secrets for each workload. Each workload lists one of them, and one ConfigMap that all list.
const SECRETS_EACH: usize = 10;
/// Number of parallel GETs, the same as for the operator.
const GETS_AT_ONCE: usize = 12;
/// Size of a page: a larger one would take too much memory if the objects are large.
const PAGE: usize = 100;
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) async fn measure(figures: &mut Figures, quick: bool) -> Result<()> {
    let sizes: &[usize] = if quick {
        &[300, 1_000]
    } else {
        &[1_000, 3_000, 10_000]
    };
    // All of them are in one namespace, whose share by default has room for 8,000.
    let scene = scene_with("0s", json!({"namespaceMemory": "64Mi"})).await?;
    without_controllers(&scene).await?;
    let observer = Observer::begin(&scene.client, &scene.namespace);
    scene.put_all(&[config_map("shared", "0")]).await?;
    let mut before = 0;
    for &size in sizes {
        create_secrets(&scene, before * SECRETS_EACH, size * SECRETS_EACH).await?;
        let workloads: Vec<_> = crowd("web", size)
            .into_iter()
            .enumerate()
            .skip(before)
            .map(|(number, workload)| {
                workload
                    .lists("shared")
                    .lists_secrets(&format!("secret-{number}"))
            })
            .collect();
        scene.create_all(&workloads).await?;
        before = size;
        let name = format!(
            "{size} workloads, {} references, {} Secrets",
            2 * size,
            size * SECRETS_EACH
        );
        step(figures, &scene, &observer, &name, size).await?;
    }
    list_or_get(figures, &scene, before).await?;
    compression(figures, &scene).await?;
    clear(scene).await;
    Ok(())
}

/// Measures how many objects in a list take as long as one that is read alone. This tells if a start would be
/// faster if it listed the objects that it now reads one by one.
async fn list_or_get(figures: &mut Figures, scene: &Scene, count: usize) -> Result<()> {
    let ask = async |path: String| -> Result<serde_json::Value> {
        let request = Request::get(path).body(Vec::new())?;
        Ok(serde_json::from_str(
            &scene.client.request_text(request).await?,
        )?)
    };
    let secrets = format!("/api/v1/namespaces/{}/secrets", scene.namespace);
    let began = Instant::now();
    let gets = (0..count).map(|number| ask(format!("{secrets}/secret-{number}")));
    stream::iter(gets)
        .buffer_unordered(GETS_AT_ONCE)
        .try_for_each(async |_| Ok(()))
        .await?;
    let get = began.elapsed() / count as u32;
    let began = Instant::now();
    let (mut listed, mut token) = (0, String::new());
    loop {
        let page = ask(format!("{secrets}?limit={PAGE}&continue={token}")).await?;
        listed += page["items"].as_array().map_or(0, Vec::len);
        token = page["metadata"]["continue"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if token.is_empty() {
            break;
        }
    }
    let list = began.elapsed() / listed as u32;
    figures.say(
        "objects in a list that take as long as one GET",
        None,
        format!(
            "{:.1} (a GET {get:?}, an object in a list of {listed} {list:?})",
            get.as_secs_f64() / list.as_secs_f64()
        ),
        "-",
    );
    Ok(())
}

/// Measures what compression would save for a page of the list that most of a start consists of.
async fn compression(figures: &mut Figures, scene: &Scene) -> Result<()> {
    let page = async |encoding: &str| -> Result<(usize, Duration)> {
        let request =
            Request::get("/apis/apps/v1/deployments?limit=500").header("Accept-Encoding", encoding);
        let began = Instant::now();
        let answer = scene.client.send(request.body(Vec::new().into())?).await?;
        let length = answer.into_body().collect().await?.to_bytes().len();
        Ok((length, began.elapsed()))
    };
    let (plain, gzip) = (page("identity").await?, page("gzip").await?);
    let told = |(length, took): (usize, Duration)| format!("{} KiB in {took:.0?}", length / 1024);
    figures.say(
        "a page of 500 Deployments, as it is and compressed by the apiserver",
        None,
        format!("{}, {}", told(plain), told(gzip)),
        "-",
    );
    Ok(())
}

async fn step(
    figures: &mut Figures,
    scene: &Scene,
    observer: &Observer,
    name: &str,
    size: usize,
) -> Result<()> {
    observer.quiet(Duration::from_secs(5)).await;
    start(figures, scene, name).await?;
    fan_out(figures, scene, observer, name, size).await
}

/// Starts the operator anew. Measures that, and how much work it has when nothing happens.
pub(crate) async fn start(figures: &mut Figures, scene: &Scene, name: &str) -> Result<()> {
    scene.operator.stop().await;
    let mark = scene.mark().await?;
    let began = Timestamp::now();
    scene.operator.start_again().await?;
    let process = scene.operator.process();
    let started = Started::wait(scene, mark, began).await?;
    let spent = process.cpu_time()?;
    let memory = Memory::now(scene).await?;
    figures.say(
        &format!("start, {name}"),
        None,
        format!(
            "{:.1} s, {:.1} s of CPU; {} GETs, {} LISTs, {} writes; {memory}",
            started.took.as_secs_f64(),
            spent.as_secs_f64(),
            started.gets,
            started.lists,
            started.writes
        ),
        "steady within 10 % of the peak",
    );
    let before = process.cpu_time()?;
    let period = Duration::from_secs(20);
    sleep(period).await;
    let share = (process.cpu_time()? - before).as_secs_f64() / period.as_secs_f64();
    figures.say(
        &format!("CPU at rest, {name}"),
        None,
        format!("{:.2} % of a core", share * 100.0),
        "-",
    );
    Ok(())
}

/// Changes the ConfigMap `shared`, which so many workloads list, and waits until all are patched.
pub(crate) async fn fan_out(
    figures: &mut Figures,
    scene: &Scene,
    observer: &Observer,
    name: &str,
    size: usize,
) -> Result<()> {
    let process = scene.operator.process();
    let config_maps: Api<ConfigMap> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let before = observer.now(|seen| seen.values);
    let cpu = process.cpu_time()?;
    let patch = json!({"data": {"key": before.to_string()}});
    config_maps
        .patch("shared", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    let written = Instant::now();
    let done = observer.until("the last pod template", PATIENCE, |seen| {
        (seen.values >= before + size).then(Instant::now)
    });
    let took = done.await?.saturating_duration_since(written);
    let spent = process.cpu_time()? - cpu;
    let memory = Memory::now(scene).await?;
    figures.say(
        &format!("fan-out to {size}, {name}"),
        None,
        format!(
            "{:.1} s, {:.2} ms of CPU each; {memory}",
            took.as_secs_f64(),
            spent.as_secs_f64() * 1e3 / size as f64
        ),
        "-",
    );
    Ok(())
}

/// The cost of a start, up to its last request.
struct Started {
    took: Duration,
    gets: usize,
    lists: usize,
    writes: usize,
}

impl Started {
    async fn wait(scene: &Scene, mark: Mark, began: Timestamp) -> Result<Self> {
        let mut before = 0;
        loop {
            sleep(Duration::from_secs(3)).await;
            let mut requests = scene.requests(mark).await?;
            requests.retain(|request| {
                request.stage == "ResponseComplete"
                    && request.verb != "watch"
                    && !request.resource.is_empty()
            });
            if requests.len() > before {
                before = requests.len();
                continue;
            }
            let last = requests
                .iter()
                .map(|request| request.time)
                .max()
                .context("no request")?;
            let count = |verbs: &[&str]| {
                requests
                    .iter()
                    .filter(|request| verbs.contains(&&*request.verb))
                    .count()
            };
            return Ok(Self {
                took: last.duration_since(began).unsigned_abs(),
                gets: count(&["get"]),
                lists: count(&["list"]),
                writes: count(&["patch", "update", "create", "delete"]),
            });
        }
    }
}
