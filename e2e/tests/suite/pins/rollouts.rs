//! A Rollout of Argo is pinned and undone as a Deployment is. Its controller does not run here.

use std::slice;

use anyhow::{Result, ensure};
use pod_reloader_e2e::crds::crd;
use pod_reloader_e2e::workload::{CONFIG_MAPS, config_map};
use pod_reloader_e2e::{ControlPlane, PATIENCE, Scene, done_with, wait_for};
use serde_json::{Value, json};

use super::pods::pins_are_in_force;
use super::{PIN, PINS, UNDONE, app_copy, app_pins, copies, pinning};
use crate::custom::managed::{Managed, install_to_stay};

#[tokio::test]
async fn the_template_of_an_earlier_revision_of_a_rollout_is_an_undo() -> Result<()> {
    let control_plane = ControlPlane::connect()?;
    install_to_stay(&control_plane, &crd("rollouts")).await?;
    let options = pinning(&json!({"customResources": ["argo-rollouts"]}));
    Scene::play_on(control_plane, options, async |scene| {
        pins_are_in_force(scene).await?;
        scene.apply(&[config_map("app", "1")]).await?;
        let rollout = Managed::rollout("canary").annotated(CONFIG_MAPS, "app");
        let rollout = rollout.annotated(PIN, "configmaps").manifest;
        scene.apply(slice::from_ref(&rollout)).await?;
        let first = has(scene, "1", None).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let second = has(scene, "2", None).await?;

        // `kubectl argo rollouts undo` brings back the pod template of a ReplicaSet.
        let patch = json!({"spec": {"template": first["spec"]["template"]}});
        let patch = format!("--patch={patch}");
        let undo = ["patch", ROLLOUT, "--type=merge", &patch];
        scene.kubectl(&undo).await?;
        let undone = has(scene, "1", Some("2")).await?;
        // That ReplicaSet is used again.
        ensure!(undone["spec"] == first["spec"], "{first}\n{undone}");
        for args in [&["apply", "--filename=-"], &["replace", "--filename=-"]] {
            scene.kubectl_with_input(args, &rollout.to_string()).await?;
        }
        scene.quiet().await?;
        let after = has(scene, "1", Some("2")).await?;
        ensure!(after["spec"] == undone["spec"], "{undone}\n{after}");
        ensure!(generation(&after) >= generation(&undone));

        scene.apply(&[config_map("app", "3")]).await?;
        let third = has(scene, "3", None).await?;
        scene.quiet().await?;
        let after = has(scene, "3", None).await?;
        ensure!(generation(&after) == generation(&third), "{third}\n{after}");
        ensure!(generation(&second) == generation(&first) + 1, "{second}");
        let mut names: Vec<_> = copies(scene).await?.into_iter().map(|it| it.0).collect();
        names.sort();
        let mut expected = ["1", "2", "3"].map(|value| app_copy(scene, value));
        expected.sort();
        ensure!(names == expected, "{names:?}");
        Ok(())
    })
    .await
}

/// Waits until the Rollout has the pins for this value, and asserts that `undone` is undone.
async fn has(scene: &Scene, value: &str, undone: Option<&str>) -> Result<Value> {
    let pins = app_pins(scene, value);
    let object = wait_for("the pins of the Rollout", PATIENCE, async || {
        let object = scene.object(ROLLOUT).await?;
        let own = &object["spec"]["template"]["metadata"]["annotations"][PINS];
        done_with(own.as_str() == Some(&pins), own.to_string(), object)
    })
    .await?;
    let own = object["metadata"]["annotations"][UNDONE].as_str();
    ensure!(
        own == undone.map(|value| app_pins(scene, value)).as_deref(),
        "{own:?}"
    );
    Ok(object)
}

fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"]
        .as_i64()
        .unwrap_or_default()
}

const ROLLOUT: &str = "rollouts.argoproj.io/canary";
