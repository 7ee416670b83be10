//! An undo brings back the content of a ConfigMap, and stays until the ConfigMap changes again.

use anyhow::{Result, ensure};
use pod_reloader_e2e::Scene;
use pod_reloader_e2e::workload::{Kind, Workload, config_map, secret};
use serde_json::json;

use super::pods::pins_are_in_force;
use super::{
    PIN, PINS, UNDONE, annotation, app_copy, app_pins, copies, has_pins, pinned, pinning, pods_use,
    template_annotation,
};

#[tokio::test]
async fn an_undo_brings_the_first_content_back_and_stays_until_the_next_change() -> Result<()> {
    Scene::play(pinning(&json!({})), async |scene| {
        pins_are_in_force(scene).await?;
        let names = ["web", "db", "agent"];
        let all = Kind::ALL.into_iter().zip(names);
        let all: Vec<_> = all
            .map(|(kind, name)| pinned(kind, name).lists_secrets("creds"))
            .collect();
        scene
            .apply(&[config_map("app", "1"), secret("creds", "1")])
            .await?;
        for workload in &all {
            scene.create(workload).await?;
            has_pins(scene, workload, &app_pins(scene, "1")).await?;
        }
        for value in ["2", "bad"] {
            scene.apply(&[config_map("app", value)]).await?;
            for workload in &all {
                has_pins(scene, workload, &app_pins(scene, value)).await?;
                pods_use(scene, workload, &app_copy(scene, value)).await?;
            }
        }
        for workload in &all {
            let undo = ["rollout", "undo", &workload.reference(), "--to-revision=1"];
            scene.kubectl(&undo).await?;
            pods_use(scene, workload, &app_copy(scene, "1")).await?;
            scene.event(workload, "ConfigUndone").await?;
        }
        are_undone(scene, &all).await?;
        let mut copies = copies(scene).await?;
        copies.sort();
        let mut expected = ["1", "2", "bad"].map(|it| (app_copy(scene, it), Some(it.to_owned())));
        expected.sort();
        ensure!(copies == expected, "{copies:?}");

        // A new operator knows nothing but what it reads.
        let mut before = Vec::new();
        for workload in &all {
            before.push(scene.snapshot(workload).await?);
        }
        scene.operator.process().kill().await;
        scene.operator.start_again().await?;
        scene.quiet().await?;
        scene.each_rolls_not(&all, &before).await?;
        // Another change rolls the pods, with what they have.
        scene.apply(&[secret("creds", "2")]).await?;
        for (workload, before) in all.iter().zip(&before) {
            rolls_with(scene, workload, before.key.as_deref()).await?;
        }
        are_undone(scene, &all).await?;
        scene.apply(&[config_map("app", "good")]).await?;
        for workload in &all {
            has_pins(scene, workload, &app_pins(scene, "good")).await?;
            pods_use(scene, workload, &app_copy(scene, "good")).await?;
            let undone = annotation(scene, workload, UNDONE).await?;
            ensure!(undone.is_none(), "{undone:?}");
            scene.right(workload).await?;
        }
        Ok(())
    })
    .await
}

/// Asserts that the change from "1" to "bad" is undone for all of these.
async fn are_undone(scene: &Scene, all: &[Workload]) -> Result<()> {
    for workload in all {
        pods_use(scene, workload, &app_copy(scene, "1")).await?;
        let undone = annotation(scene, workload, UNDONE).await?;
        ensure!(undone == Some(app_pins(scene, "bad")), "{undone:?}");
        let pins = template_annotation(scene, workload, PINS).await?;
        ensure!(pins == Some(app_pins(scene, "1")), "{pins:?}");
    }
    Ok(())
}

/// Waits until a workload has another hash than this one.
async fn rolls_with(scene: &Scene, workload: &Workload, before: Option<&str>) -> Result<()> {
    use pod_reloader_e2e::{PATIENCE, done_if, wait_for};
    wait_for("another hash", PATIENCE, async || {
        let key = scene.key(workload).await?;
        done_if(key.as_deref() != before, "the same")
    })
    .await
}

#[tokio::test]
async fn whoever_asks_for_pins_gets_them_in_one_rollout() -> Result<()> {
    Scene::play(pinning(&json!({})), async |scene| {
        pins_are_in_force(scene).await?;
        let (web, before) = scene
            .create_listing(Workload::deployment("web").requires("app"))
            .await?;
        pods_use(scene, &web, "app").await?;
        let pin = format!("{PIN}=configmaps");
        scene.annotate("deployment/web", &pin).await?;
        has_pins(scene, &web, &app_pins(scene, "1")).await?;
        pods_use(scene, &web, &app_copy(scene, "1")).await?;
        scene.quiet().await?;
        let after = scene.snapshot(&web).await?;
        ensure!(after.new_revisions(&before) == 1, "{before:?} {after:?}");
        // Without it, the next restart takes the pins away, and nothing does before.
        let unpin = format!("{PIN}-");
        scene.annotate("deployment/web", &unpin).await?;
        scene.rolls_not(&web, &after).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.rolls_once(&web, &after).await?;
        ensure!(template_annotation(scene, &web, PINS).await?.is_none());
        pods_use(scene, &web, "app").await
    })
    .await
}
