//! Measures how much memory the operator takes, by the number of objects that do not concern it.

use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, api::PostParams};
use pod_reloader_e2e::{Process, Scene, crowd};
use serde_json::json;
use tokio::time::sleep;

use crate::{clear, figures::Figures, scene, without_controllers};

const FEW: usize = 2_000;
const MANY: usize = 20_000;

pub(crate) async fn measure(figures: &mut Figures, quick: bool) -> Result<()> {
    let scene = scene("5s").await?;
    without_controllers(&scene).await?;
    let idle = start_again(&scene).await?;
    figures.say("memory, nothing to do", None, idle.to_string(), "12 MiB");

    if !quick {
        growth(figures, &scene).await?;
    }
    clear(scene).await;
    Ok(())
}

async fn growth(figures: &mut Figures, scene: &Scene) -> Result<()> {
    create_secrets(scene, 0, FEW).await?;
    create_deployments(scene, 0, FEW).await?;
    let few = start_again(scene).await?;
    create_secrets(scene, FEW, MANY).await?;
    let live = Memory::now(scene).await?;
    let secrets = start_again(scene).await?;
    say(
        figures,
        "Secret of 4 KiB that nobody lists",
        few,
        live,
        secrets,
    );
    create_deployments(scene, FEW, MANY).await?;
    let live = Memory::now(scene).await?;
    let deployments = start_again(scene).await?;
    say(
        figures,
        "Deployment that lists nothing",
        secrets,
        live,
        deployments,
    );
    Ok(())
}

fn say(figures: &mut Figures, what: &str, few: Memory, live: Memory, listed: Memory) {
    let each =
        |now: Memory| (now.resident as f64 - few.resident as f64) / 1024.0 / (MANY - FEW) as f64;
    figures.say(
        &format!("memory for each {what}, {FEW} to {MANY}"),
        None,
        format!(
            "{:.2} KiB (made beside it), {:.2} KiB (listed at start)",
            each(live),
            each(listed)
        ),
        "0",
    );
    let peak = mib(listed.peak.saturating_sub(listed.resident));
    figures.say(
        &format!("peak of the start above steady, {MANY}"),
        None,
        format!("{peak:.1} MiB; {listed}"),
        "4 MiB",
    );
}

/// The operator's memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) resident: usize,
    pub(crate) anonymous: usize,
    pub(crate) peak: usize,
}

impl Memory {
    /// Returns the median of some samples, once the operator is at rest.
    pub(crate) async fn now(scene: &Scene) -> Result<Self> {
        Self::of(scene.operator.process()).await
    }

    /// The same for one replica of the operator.
    pub(crate) async fn of(process: &Process) -> Result<Self> {
        sleep(Duration::from_secs(3)).await;
        let mut resident = Vec::new();
        for _ in 0..5 {
            resident.push(process.resident_memory()?);
            sleep(Duration::from_millis(400)).await;
        }
        resident.sort_unstable();
        Ok(Self {
            resident: resident[resident.len() / 2],
            anonymous: process.anonymous_memory()?,
            peak: process.peak_memory()?,
        })
    }

    /// Returns the one with the median of what is resident.
    pub(crate) fn median(mut all: Vec<Self>) -> Self {
        all.sort_unstable_by_key(|it| it.resident);
        all[all.len() / 2]
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [resident, anonymous, peak] = [self.resident, self.anonymous, self.peak].map(mib);
        write!(
            f,
            "RSS {resident:.1} MiB, anonymous {anonymous:.1}, peak {peak:.1}"
        )
    }
}

pub(crate) fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

async fn start_again(scene: &Scene) -> Result<Memory> {
    scene.operator.restart().await?;
    sleep(Duration::from_secs(5)).await;
    Memory::now(scene).await
}

async fn create_deployments(scene: &Scene, from: usize, to: usize) -> Result<()> {
    let deployments = crowd("nobodys", to);
    scene.create_all(&deployments[from..]).await
}

/// Creates Secrets of 4 KiB, numbered from `from` to `to`.
pub(crate) async fn create_secrets(scene: &Scene, from: usize, to: usize) -> Result<()> {
    let api: Api<Secret> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let creates = (from..to).map(|number| {
        let (api, name) = (api.clone(), format!("secret-{number}"));
        async move {
            let content = ByteString(vec![number as u8; 4096]);
            let secret: Secret = serde_json::from_value(
                json!({"metadata": {"name": name}, "data": {"key": content}}),
            )?;
            api.create(&PostParams::default(), &secret).await?;
            anyhow::Ok(())
        }
    });
    stream::iter(creates)
        .buffer_unordered(16)
        .try_collect()
        .await
}
