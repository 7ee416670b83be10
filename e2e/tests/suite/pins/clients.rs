//! However clients write, pins and an undo stay, and a release takes its own content along.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{Options, Scene};
use serde_json::json;

use super::pods::pins_are_in_force;
use super::{PIN, UNDONE, annotation, copy_of, has_pins, pinning, pods_use};
use crate::gitops::{self, Sync, deployed_by, each_has_no_drift, each_rolled};
use crate::helm_releases::{self, Flavour};

#[tokio::test]
async fn no_sync_shows_pins_or_takes_an_undo_back_and_a_release_is_one_rollout() -> Result<()> {
    let options = Options {
        // Longer than the time between the writes of a sync.
        settle_period: "1s",
        ..pinning(&json!({}))
    };
    Scene::play(options, async |scene| {
        pins_are_in_force(scene).await?;
        let mut apps = deployed_by(scene, Sync::by_all(), pins_its_own).await?;
        each_stays(scene, &apps, "1", None).await?;

        each_releases(&mut apps, "2", "app:1").await?;
        each_rolled(scene, &mut apps, 1).await?;
        for web in webs(&apps) {
            scene
                .kubectl(&["rollout", "undo", &web.reference()])
                .await?;
        }
        each_stays(scene, &apps, "1", Some("2")).await?;

        let before = scene.snapshots(&webs(&apps)).await?;
        each_releases(&mut apps, "2", "app:2").await?;
        scene.quiet().await?;
        let after = scene.snapshots(&webs(&apps)).await?;
        for ((app, before), after) in apps.iter_mut().zip(before).zip(after) {
            ensure!(after.new_revisions(&before) == 1, "{before:?}, {after:?}");
            app.before = after;
        }
        each_has(scene, &webs(&apps), "1", Some("2")).await?;

        each_releases(&mut apps, "3", "app:3").await?;
        each_rolled(scene, &mut apps, 1).await?;
        each_has(scene, &webs(&apps), "3", None).await
    })
    .await
}

#[tokio::test]
async fn no_release_of_helm_takes_an_undo_back_and_a_rollback_brings_the_first_pins() -> Result<()>
{
    Scene::play(pinning(&json!({})), async |scene| {
        pins_are_in_force(scene).await?;
        let mut apps = Vec::new();
        for flavour in Flavour::ALL {
            let app = helm_releases::App::with(scene, flavour, 0, pins_its_own)?;
            app.install().await?;
            apps.push(app);
        }
        let all: Vec<_> = apps.iter().map(helm_releases::App::workload).collect();
        each_has(scene, &all, "1", None).await?;
        let first = scene.snapshots(&all).await?;

        for (config, image) in [("2", "2"), ("3", "2")] {
            let before = scene.snapshots(&all).await?;
            let values = format!("--set=config={config},image={image}");
            for app in &apps {
                app.upgrade(&[&values]).await?;
            }
            each_has(scene, &all, config, None).await?;
            scene.quiet().await?;
            for (before, after) in before.iter().zip(scene.snapshots(&all).await?) {
                ensure!(after.new_revisions(before) == 1, "{before:?}, {after:?}");
            }
        }
        for web in &all {
            scene
                .kubectl(&["rollout", "undo", &web.reference()])
                .await?;
        }
        each_has(scene, &all, "2", Some("3")).await?;
        let undone = scene.snapshots(&all).await?;
        for app in &apps {
            for force in app.flavour.ways_to_force() {
                app.upgrade(&[&["--set=config=3,image=2"], force].concat())
                    .await?;
            }
        }
        scene.quiet().await?;
        let after = scene.snapshots(&all).await?;
        ensure!(after == undone, "{undone:?}, {after:?}");
        each_has(scene, &all, "2", Some("3")).await?;

        for app in &apps {
            app.rollback().await?;
        }
        each_has(scene, &all, "1", None).await?;
        scene.quiet().await?;
        for ((first, before), after) in first.iter().zip(&undone).zip(scene.snapshots(&all).await?)
        {
            // The first ReplicaSet is used again.
            ensure!(after.key == first.key, "{first:?}, {after:?}");
            ensure!(after.revisions == before.revisions, "{before:?}, {after:?}");
        }
        Ok(())
    })
    .await
}

/// Has a workload pin the ConfigMap of its own name, without which its pods cannot start.
fn pins_its_own(web: Workload) -> Workload {
    let name = web.name.clone();
    web.requires(&name).annotated(PIN, "configmaps")
}

fn webs(apps: &[gitops::App<'_>]) -> Vec<Workload> {
    apps.iter().map(|app| app.web.clone()).collect()
}

/// Syncs this content and this image.
async fn each_releases(apps: &mut [gitops::App<'_>], value: &str, image: &str) -> Result<()> {
    for app in apps {
        app.config = config_map(app.name, value);
        app.web = app.web.clone().image(image);
        app.sync().await?;
    }
    Ok(())
}

/// Asserts that syncs of what is in Git already move nothing, and that none is needed: the pods keep the content
/// `value`, and `undone` stays undone.
async fn each_stays(
    scene: &Scene,
    apps: &[gitops::App<'_>],
    value: &str,
    undone: Option<&str>,
) -> Result<()> {
    let all = webs(apps);
    each_has(scene, &all, value, undone).await?;
    let before = scene.snapshots(&all).await?;
    for app in apps {
        app.sync().await?;
    }
    each_has_no_drift(scene, apps).await?;
    scene.quiet().await?;
    let after = scene.snapshots(&all).await?;
    ensure!(after == before, "{before:?}, {after:?}");
    each_has(scene, &all, value, undone).await
}

/// Waits until the pods of each workload use the copy with the content `value`. Asserts that `undone` is undone.
async fn each_has(
    scene: &Scene,
    all: &[Workload],
    value: &str,
    undone: Option<&str>,
) -> Result<()> {
    for web in all {
        let copy = |value: &str| copy_of(scene, &web.name, value);
        let pins = |value: &str| format!("{}={}", web.name, copy(value));
        has_pins(scene, web, &pins(value)).await?;
        pods_use(scene, web, &copy(value)).await?;
        let own = annotation(scene, web, UNDONE).await?;
        ensure!(own == undone.map(pins), "{}: {own:?}", web.name);
    }
    Ok(())
}
