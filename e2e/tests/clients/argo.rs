//! Argo CD, with each of its ways to compare and to sync.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{
    RealScene, Repository,
    argo::{Application, ArgoCd},
    workload::config_map,
};
use serde_json::json;

use crate::claims::{
    App, GitOps, VARIABLE, a_change_is_one_rollout, a_pruned_config_map_is_one_rollout,
    a_release_is_one_rollout, an_undo_stays_until_the_next_commit, deployed, each_heals,
    every_feature, install, nothing_drifts, released,
};

const WAYS: [Application; 5] = [
    Application {
        name: "client-side",
        compare_options: "",
        sync_options: &[],
    },
    Application {
        name: "server-side",
        compare_options: "",
        sync_options: &["ServerSideApply=true"],
    },
    Application {
        name: "server-side-diff",
        compare_options: "ServerSideDiff=true",
        sync_options: &["ServerSideApply=true"],
    },
    Application {
        name: "diff-with-webhooks",
        compare_options: "ServerSideDiff=true,IncludeMutationWebhook=true",
        sync_options: &["ServerSideApply=true"],
    },
    Application {
        name: "replace",
        compare_options: "",
        sync_options: &["Replace=true"],
    },
];

#[tokio::test]
async fn an_application_is_synced_and_stays_so_in_each_way() -> Result<()> {
    play("argo-drift", async |scene, argo, apps| {
        nothing_drifts(scene, argo, apps).await?;
        each_heals(scene, argo, apps).await?;
        nothing_drifts(scene, argo, apps).await
    })
    .await
}

#[tokio::test]
async fn a_change_in_git_is_one_rollout_in_each_way() -> Result<()> {
    play("argo-change", async |scene, argo, apps| {
        a_release_is_one_rollout(scene, argo, apps).await?;
        a_change_is_one_rollout(scene, argo, apps, "3").await
    })
    .await
}

#[tokio::test]
async fn an_undo_stays_although_self_heal_is_on_and_the_next_commit_goes_on() -> Result<()> {
    play("argo-undo", async |scene, argo, apps| {
        an_undo_stays_until_the_next_commit(scene, argo, apps).await
    })
    .await
}

#[tokio::test]
async fn a_config_map_that_is_pruned_is_one_rollout_in_each_way() -> Result<()> {
    play("argo-prune", async |scene, argo, apps| {
        a_pruned_config_map_is_one_rollout(scene, argo, apps).await
    })
    .await
}

#[tokio::test]
async fn a_sync_with_waves_that_takes_longer_than_the_settle_period_is_one_rollout() -> Result<()> {
    RealScene::play("argo-waves", every_feature()?, async |scene| {
        let argo = ArgoCd::start(scene).await?;
        scene.pins_are_in_force().await?;
        let first = release_in_waves(scene, &argo, "1").await?;
        argo.create(&WAVES).await?;
        argo.synced(WAVES.name, &first).await?;
        let before = deployed(scene, WAVES.name, "1").await?;

        let second = release_in_waves(scene, &argo, "2").await?;
        argo.synced(WAVES.name, &second).await?;
        scene.rolls_once(WAVES.name, &before).await?;
        scene.all_answer(WAVES.name, VARIABLE, "2").await?;
        scene.all_answer(WAVES.name, "/env/RELEASE", "2").await?;
        argo.no_drift(WAVES.name).await?;
        let rollouts = scene.new_revisions(WAVES.name, &before).await?;
        ensure!(rollouts == 1, "{rollouts} rollouts");
        Ok(())
    })
    .await
}

/// Plays a test with an application for each way.
async fn play(
    name: &str,
    test: impl AsyncFnOnce(&RealScene, &ArgoCd, &mut [App]) -> Result<()>,
) -> Result<()> {
    RealScene::play(name, every_feature()?, async |scene| {
        let argo = ArgoCd::start(scene).await?;
        let names = WAYS.map(|way| way.name);
        let mut apps = install(scene, &argo, &names).await?;
        test(scene, &argo, apps.as_mut_slice()).await
    })
    .await
}

/// Commits a ConfigMap in the first wave, a Deployment that takes ten seconds to be healthy in the second one, and one that
/// uses the ConfigMap in the third one. Returns the commit.
async fn release_in_waves(scene: &RealScene, argo: &ArgoCd, release: &str) -> Result<String> {
    let app = App::new(scene, WAVES.name);
    let mut config = config_map(WAVES.name, release);
    config["metadata"]["annotations"] = json!({WAVE: "0"});
    let slow = scene.answering("slow", 1, &json!({}), &json!({}));
    let slow = slow.with(&["spec", "minReadySeconds"], json!(10));
    let slow = released(&slow, release).annotated(WAVE, "1");
    let web = released(&app.web, release).annotated(WAVE, "2");
    let manifests = [config, slow.manifest(), web.manifest()];
    argo.repository.write(WAVES.name, &manifests)?;
    argo.repository.commit().await
}

impl GitOps for ArgoCd {
    fn repository(&self) -> &Repository {
        &self.repository
    }

    async fn create(&self, app: &str) -> Result<()> {
        let way = WAYS.iter().find(|way| way.name == app);
        self.create(way.context("no way of this name")?).await
    }

    async fn synced(&self, app: &str, commit: &str) -> Result<()> {
        self.synced(app, commit).await
    }

    async fn heal(&self, _app: &str) -> Result<()> {
        // It watches what it has deployed.
        Ok(())
    }

    async fn no_drift(&self, app: &str) -> Result<()> {
        self.no_drift(app).await
    }
}

const WAVES: Application = Application {
    name: "waves",
    compare_options: "",
    sync_options: &[],
};
const WAVE: &str = "argocd.argoproj.io/sync-wave";
