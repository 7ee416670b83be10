//! Measures what copies in many namespaces cost: memory, requests, and the time that restarts of pods take meanwhile.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use pod_reloader_e2e::{Attempt, Operator, Scene, Tested, wait_for};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::changes::{Bench, PATIENCE, at_rest, told};
use crate::figures::{Figures, Spread};
use crate::memory::{Memory, create_secrets};
use crate::subject::Subject;
use crate::{clear, scene_of, without_controllers};

/// The name of the source and of its copies.
const SHARED: &str = "shared";
/// The pause between two changes that restart pods.
const PAUSE: Duration = Duration::from_millis(50);
const ROUNDS: u32 = 5;
const AT_ONCE: usize = 16;

/// Measures without a settle period.
pub(crate) async fn measure(figures: &mut Figures, quick: bool) -> Result<()> {
    let (count, secrets) = if quick { (100, 2_000) } else { (1_000, 20_000) };
    let values = json!({"sync": {"enabled": true}});
    let scene = scene_of(Tested::Writer, "0s", values).await?;
    without_controllers(&scene).await?;
    let copies = Copies::begin(&scene, count).await?;
    let what = format!("requests for {count} copies that come");
    let created = copies.requests(async || copies.create().await).await?;
    figures.say(&what, None, created, "1 create each");
    let what = format!("requests for a change of {count} copies");
    let changed = copies.requests(async || copies.change(0).await).await?;
    figures.say(&what, None, changed, "1 get and 1 update each");

    delays(figures, &scene, &copies).await?;

    create_secrets(&scene, 0, secrets).await?;
    let mut without = Vec::new();
    let mut with = Vec::new();
    scene.operator.stop().await;
    let off = scene.installation.without("--sync");
    for _ in 0..3 {
        let operator = scene
            .start_replica(&off, &scene.directory().join("off"), &[])
            .await?;
        without.push(Memory::of(operator.process()).await?);
        operator.stop().await;
        scene.operator.start_again().await?;
        copies.are_exact(&scene.operator).await?;
        with.push(Memory::of(scene.operator.process()).await?);
        scene.operator.stop().await;
    }
    let [without, with] = [without, with].map(Memory::median);
    figures.say(
        &format!("memory with {secrets} other Secrets and {count} copies; floor: copies off"),
        Some(&without.to_string()),
        format!(
            "{with}; ratio {:.2}",
            with.resident as f64 / without.resident as f64
        ),
        "1.1 x floor",
    );
    clear(scene).await;
    Ok(())
}

/// Measures the time from a change to the pod template at rest, and while all copies are written.
async fn delays(figures: &mut Figures, scene: &Scene, copies: &Copies<'_>) -> Result<()> {
    let bench = Bench::begin(scene).await?;
    bench.create(Subject::BOTH, "one", 1).await?;
    bench.warm_up(Subject::Operator).await?;
    let mut at_rest = Vec::new();
    let mut meanwhile = Vec::new();
    let mut passes = Vec::new();
    for round in 1..=ROUNDS {
        at_rest.extend(bench.changes(Subject::Operator, "one", 20, PAUSE).await?);
        let written = copies.written().await? + copies.count;
        let began = Instant::now();
        copies.patch_source(round).await?;
        loop {
            let delay = bench.changes(Subject::Operator, "one", 1, PAUSE).await?;
            if copies.written().await? >= written {
                break;
            }
            meanwhile.extend(delay);
        }
        passes.push(began.elapsed());
        copies.are_exact(&scene.operator).await?;
    }
    let count = copies.count;
    figures.compare(
        &format!("change to pod template while {count} copies are written; floor: while none is"),
        Spread::of(at_rest),
        Spread::of(meanwhile),
        "2 x floor",
    );
    let passes = Spread::of(passes).to_string();
    figures.say(&format!("all {count} copies changed"), None, passes, "-");
    Ok(())
}

/// The copies of one Secret in many namespaces.
struct Copies<'a> {
    scene: &'a Scene,
    count: usize,
}

impl<'a> Copies<'a> {
    /// Creates the namespaces and the source.
    async fn begin(scene: &'a Scene, count: usize) -> Result<Self> {
        let namespaces: Api<Namespace> = Api::all(scene.client.clone());
        let all = (0..count).map(async |number| {
            let name = format!("team-{number}");
            let namespace = json!({"metadata": {"name": name, "labels": {"team": "x"}}});
            let namespace = serde_json::from_value(namespace)?;
            namespaces
                .create(&PostParams::default(), &namespace)
                .await?;
            anyhow::Ok(())
        });
        stream::iter(all)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        let copies = Self { scene, count };
        let source = json!({"metadata": {"name": SHARED}, "data": {"key": value(0)}});
        let source = serde_json::from_value(source)?;
        copies
            .source()
            .create(&PostParams::default(), &source)
            .await?;
        Ok(copies)
    }

    fn source(&self) -> Api<Secret> {
        Api::namespaced(self.scene.client.clone(), &self.scene.namespace)
    }

    /// Has all copies created.
    async fn create(&self) -> Result<()> {
        let sync: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "pod-reloader.github.io/v1alpha1",
            "kind": "ClusterConfigSync",
            "metadata": {"name": SHARED},
            "spec": {
                "source": {"kind": "Secret", "namespace": self.scene.namespace, "name": SHARED},
                "namespaceSelector": {"matchLabels": {"team": "x"}},
            },
        }))?;
        let syncs = syncs(&self.scene.client);
        syncs.create(&PostParams::default(), &sync).await?;
        self.are_exact(&self.scene.operator).await
    }

    /// Has all copies changed.
    async fn change(&self, round: u32) -> Result<()> {
        let written = self.written().await? + self.count;
        self.patch_source(round).await?;
        wait_for("all copies to be written", PATIENCE, async || {
            Ok(match self.written().await? {
                now if now >= written => Attempt::Done(()),
                now => Attempt::NotYet(now.to_string()),
            })
        })
        .await?;
        self.are_exact(&self.scene.operator).await
    }

    async fn patch_source(&self, round: u32) -> Result<()> {
        let patch = json!({"data": {"key": value(round + 1)}});
        let patch = Patch::Merge(&patch);
        self.source()
            .patch(SHARED, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Waits until the operator says that all copies are exact.
    async fn are_exact(&self, operator: &Operator) -> Result<()> {
        let count = self.count.to_string();
        operator.shows("pod_reloader_synced_copies", &count).await
    }

    /// Returns how many copies the operator has changed since it was started.
    async fn written(&self) -> Result<usize> {
        let metrics = self.scene.operator.metrics().await?;
        let name = "pod_reloader_sync_writes_total{verb=\"update\"} ";
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        Ok(value.context("the metric is there")?.trim().parse()?)
    }

    /// Returns the requests of the operator while something is done, in words.
    async fn requests(&self, act: impl AsyncFnOnce() -> Result<()>) -> Result<String> {
        let mark = self.scene.mark().await?;
        act().await?;
        Ok(told(&at_rest(self.scene, mark).await?))
    }
}

fn syncs(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("pod-reloader.github.io", "v1alpha1", "ClusterConfigSync");
    let kind = ApiResource::from_gvk(&kind);
    Api::all_with(client.clone(), &kind)
}

/// Returns a value of 4 KiB.
fn value(round: u32) -> Value {
    json!(ByteString(vec![round as u8; 4096]))
}
