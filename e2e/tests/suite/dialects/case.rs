//! Assertions about workloads for which certain objects are tracked, whatever annotation asks for that.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::oracle::{self, Truth};
use pod_reloader_e2e::workload::{BASELINE, CONFIG_MAPS, SECRETS, Workload};
use pod_reloader_e2e::{PATIENCE, Scene, Snapshot, done_if, wait_for};
use serde_json::{Value, json};

/// A workload without pods, and the names of the objects that are tracked for it, comma-separated, each as a whole.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) workload: Workload,
    pub(super) config_maps: String,
    pub(super) secrets: String,
}

impl Case {
    pub(super) fn of(workload: Workload, config_maps: &str, secrets: &str) -> Self {
        Self {
            workload: workload.without_pods(),
            config_maps: config_maps.to_owned(),
            secrets: secrets.to_owned(),
        }
    }

    /// Returns the same workload with these tracked ConfigMaps.
    pub(super) fn counting(&self, config_maps: &str) -> Self {
        Self::of(self.workload.clone(), config_maps, &self.secrets)
    }

    pub(super) fn has_config_map(&self, name: &str) -> bool {
        self.config_maps.split(',').any(|own| own == name)
    }

    pub(super) fn has_secret(&self, name: &str) -> bool {
        self.secrets.split(',').any(|own| own == name)
    }

    pub(super) fn has_anything(&self) -> bool {
        !self.config_maps.is_empty() || !self.secrets.is_empty()
    }

    /// Returns the expected config hash: as if our own annotations listed the tracked objects.
    pub(super) async fn hash(&self, scene: &Scene) -> Result<String> {
        oracle::config_hash(&scene.client, &self.listing(scene), &scene.installation).await
    }

    fn listing(&self, scene: &Scene) -> Value {
        json!({
            "metadata": {
                "namespace": scene.namespace,
                "annotations": {CONFIG_MAPS: self.config_maps, SECRETS: self.secrets},
            },
        })
    }

    /// Waits until the workload carries the expected hash.
    pub(super) async fn right(&self, scene: &Scene) -> Result<()> {
        let name = self.workload.reference();
        wait_for(&format!("the hash of {name}"), PATIENCE, async || {
            let (key, hash) = (scene.key(&self.workload).await?, self.hash(scene).await?);
            done_if(
                key.as_deref() == Some(&hash),
                format!("{key:?}, expected {hash}"),
            )
        })
        .await
    }

    /// Waits until the workload has the baseline by which `of` stands for the current state.
    pub(super) async fn has_baseline(&self, scene: &Scene, of: &str) -> Result<()> {
        let expected = format!("{of}={}", self.hash(scene).await?);
        scene.has_baseline(&self.workload, Some(&expected)).await
    }

    pub(super) async fn rolls_once(&self, scene: &Scene, before: &Snapshot) -> Result<Snapshot> {
        let (cases, before) = (std::slice::from_ref(self), std::slice::from_ref(before));
        let mut after = each_rolls_where(scene, cases, before, |_| true).await?;
        after.pop().context("one case has one snapshot")
    }

    pub(super) async fn rolls_not(&self, scene: &Scene, before: &Snapshot) -> Result<()> {
        scene.rolls_not(&self.workload, before).await
    }
}

/// Creates workloads, and returns a snapshot of each.
pub(super) async fn created(scene: &Scene, cases: &[Case]) -> Result<Vec<Snapshot>> {
    let manifests: Vec<_> = cases.iter().map(|case| case.workload.manifest()).collect();
    scene.apply(&manifests).await?;
    snapshots(scene, cases).await
}

pub(super) async fn snapshots(scene: &Scene, cases: &[Case]) -> Result<Vec<Snapshot>> {
    let workloads: Vec<_> = cases.iter().map(|case| &case.workload).collect();
    scene.snapshots(&workloads).await
}

/// Asserts that workloads that were created before the operator started get a baseline and nothing else.
/// Workloads without tracked objects do not even get that.
pub(super) async fn taken_over(scene: &Scene, cases: &[Case]) -> Result<Vec<Snapshot>> {
    let before = created(scene, cases).await?;
    scene.operator.start_again().await?;
    for (case, before) in cases.iter().zip(&before) {
        let of = before.key.as_deref().unwrap_or_default();
        if case.has_anything() {
            case.has_baseline(scene, of).await?;
        }
    }
    scene.quiet().await?;
    for case in cases.iter().filter(|case| !case.has_anything()) {
        let object = scene.object(&case.workload.reference()).await?;
        ensure!(
            object["metadata"]["annotations"][BASELINE].is_null(),
            "{object}"
        );
    }
    ensure!(
        snapshots(scene, cases).await? == before,
        "before: {before:?}"
    );
    Ok(before)
}

/// Asserts that the workloads for which `rolls` holds are restarted once after `before`, with the right hash,
/// and that the others are not restarted.
pub(super) async fn each_rolls_where(
    scene: &Scene,
    cases: &[Case],
    before: &[Snapshot],
    rolls: impl Fn(&Case) -> bool,
) -> Result<Vec<Snapshot>> {
    for case in cases.iter().filter(|case| rolls(case)) {
        case.right(scene).await?;
    }
    scene.quiet().await?;
    let after = snapshots(scene, cases).await?;
    let mut truth = Truth::read(&scene.client, &scene.installation).await?;
    for ((case, before), after) in cases.iter().zip(before).zip(&after) {
        let name = case.workload.reference();
        if rolls(case) {
            let new = after.new_revisions(before);
            ensure!(new == 1, "{name} rolled {new} times: {before:?}, {after:?}");
            let expected = truth.config_hash(&case.listing(scene)).await?;
            ensure!(after.key == Some(expected), "{name}: {after:?}");
        } else {
            ensure!(after == before, "{name} moved: {before:?}, {after:?}");
        }
    }
    Ok(after)
}
