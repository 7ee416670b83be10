//! Flux, with each of its ways to apply.

use anyhow::Result;
use pod_reloader_e2e::{RealScene, Repository, flux::Flux};
use serde_json::{Value, json};

use crate::claims::{
    App, GitOps, a_change_is_one_rollout, a_pruned_config_map_is_one_rollout,
    a_release_is_one_rollout, an_undo_stays_until_the_next_commit, each_heals, every_feature,
    install, nothing_drifts,
};

/// Names of Kustomizations. [`fields`] has what they set.
const WAYS: [&str; 3] = ["plain", "wait", "force"];

#[tokio::test]
async fn a_kustomization_finds_no_drift_in_each_way() -> Result<()> {
    play("flux-drift", async |scene, flux, apps| {
        nothing_drifts(scene, flux, apps).await?;
        each_heals(scene, flux, apps).await?;
        nothing_drifts(scene, flux, apps).await
    })
    .await
}

#[tokio::test]
async fn a_change_in_git_is_one_rollout_in_each_way() -> Result<()> {
    play("flux-change", async |scene, flux, apps| {
        a_release_is_one_rollout(scene, flux, apps).await?;
        a_change_is_one_rollout(scene, flux, apps, "3").await
    })
    .await
}

#[tokio::test]
async fn an_undo_stays_although_drift_is_corrected_and_the_next_commit_goes_on() -> Result<()> {
    play("flux-undo", async |scene, flux, apps| {
        an_undo_stays_until_the_next_commit(scene, flux, apps).await
    })
    .await
}

#[tokio::test]
async fn a_config_map_that_is_pruned_is_one_rollout_in_each_way() -> Result<()> {
    play("flux-prune", async |scene, flux, apps| {
        a_pruned_config_map_is_one_rollout(scene, flux, apps).await
    })
    .await
}

/// Plays a test with an application for each way.
async fn play(
    name: &str,
    test: impl AsyncFnOnce(&RealScene, &Flux, &mut [App]) -> Result<()>,
) -> Result<()> {
    RealScene::play(name, every_feature()?, async |scene| {
        let flux = Flux::start(scene).await?;
        let mut apps = install(scene, &flux, &WAYS).await?;
        test(scene, &flux, apps.as_mut_slice()).await
    })
    .await
}

/// Returns what the Kustomization of this name sets.
fn fields(name: &str) -> Value {
    match name {
        "wait" => json!({"wait": true}),
        "force" => json!({"force": true}),
        _ => json!({}),
    }
}

impl GitOps for Flux {
    fn repository(&self) -> &Repository {
        &self.repository
    }

    async fn create(&self, app: &str) -> Result<()> {
        self.create(app, &fields(app)).await
    }

    async fn synced(&self, app: &str, commit: &str) -> Result<()> {
        self.synced(app, commit).await
    }

    async fn heal(&self, app: &str) -> Result<()> {
        self.reconcile(app).await
    }

    async fn no_drift(&self, app: &str) -> Result<()> {
        // What it writes shows in the objects.
        self.reconcile(app).await
    }
}
