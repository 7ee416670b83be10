//! Syncs of workloads whose restarts are held up: they move nothing, and a release goes through at once.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::config_map;
use pod_reloader_e2e::{Scene, full};

use super::{Sync, deployed_by, each_has_no_drift, each_rolled};
use crate::held_up::HeldUp;

#[tokio::test]
async fn a_halt_shows_in_no_sync_and_holds_back_no_release() -> Result<()> {
    shows_in_no_sync(HeldUp::ByHalt).await
}

#[tokio::test]
async fn a_closed_window_shows_in_no_sync_and_holds_back_no_release() -> Result<()> {
    shows_in_no_sync(HeldUp::ByWindow).await
}

async fn shows_in_no_sync(held_up: HeldUp) -> Result<()> {
    Scene::play(held_up.options(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let among = |web| held_up.among(web);
        let mut apps = deployed_by(scene, Sync::by_all(), among).await?;
        let all: Vec<_> = apps.iter().map(|app| app.web.clone()).collect();
        held_up.begins(scene, &all).await?;

        let rounds = if full() { 2 } else { 1 };
        for app in &apps {
            for _ in 0..rounds {
                let warnings = app.sync().await?;
                ensure!(warnings.is_empty(), "{}: {warnings}", app.name);
            }
        }
        scene.quiet().await?;
        for (app, after) in apps.iter().zip(scene.snapshots(&all).await?) {
            ensure!(
                after == app.before,
                "{}: {:?}, {after:?}",
                app.name,
                app.before
            );
        }
        each_has_no_drift(scene, &apps).await?;

        for app in &mut apps {
            app.config = config_map(app.name, "2");
            app.web = app.web.clone().image("app:2");
            app.sync().await?;
            let key = scene.key(&app.web).await?;
            let expected = scene.expected_key(&app.web).await?;
            ensure!(key == Some(expected), "{}: {key:?}", app.name);
        }
        each_rolled(scene, &mut apps, 1).await
    })
    .await
}
