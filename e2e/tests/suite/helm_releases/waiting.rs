//! Releases of workloads whose restarts are held up: they move nothing, or go through at once.

use anyhow::{Result, ensure};
use pod_reloader_e2e::Scene;
use pod_reloader_e2e::workload::config_map;

use super::{App, CONFIG, Flavour, deployment};
use crate::held_up::HeldUp;

#[tokio::test]
async fn a_halt_shows_in_no_release_and_holds_back_none() -> Result<()> {
    holds_back_no_release(HeldUp::ByHalt).await
}

#[tokio::test]
async fn a_closed_window_shows_in_no_release_and_holds_back_none() -> Result<()> {
    holds_back_no_release(HeldUp::ByWindow).await
}

async fn holds_back_no_release(held_up: HeldUp) -> Result<()> {
    Scene::play(held_up.options(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let mut apps = Vec::new();
        for flavour in Flavour::ALL {
            let name = flavour.name();
            let web = held_up.among(deployment(name)).manifest();
            let app = App::of(scene, flavour, name, [config_map(name, CONFIG), web])?;
            app.install().await?;
            apps.push(app);
        }
        let all: Vec<_> = apps.iter().map(App::workload).collect();
        scene.quiet().await?;
        let before = scene.snapshots(&all).await?;
        held_up.begins(scene, &all).await?;

        for app in &apps {
            app.upgrade(&[]).await?;
        }
        scene.quiet().await?;
        let unchanged = scene.snapshots(&all).await?;
        ensure!(unchanged == before, "{before:?}, {unchanged:?}");

        for (app, web) in apps.iter().zip(&all) {
            app.upgrade(&["--set=config=2,image=2"]).await?;
            let key = scene.key(web).await?;
            let expected = scene.expected_key(web).await?;
            ensure!(key == Some(expected), "{}: {key:?}", app.name);
        }
        scene.quiet().await?;
        for (before, after) in before.iter().zip(scene.snapshots(&all).await?) {
            ensure!(after.new_revisions(before) == 1, "{before:?}, {after:?}");
        }
        Ok(())
    })
    .await
}
