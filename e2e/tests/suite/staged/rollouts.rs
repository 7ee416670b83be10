//! Stages with a Rollout of Argo among them. The test writes its status, as Argo's controller would.

use anyhow::{Result, ensure};
use pod_reloader_e2e::crds::crd;
use pod_reloader_e2e::workload::{CONFIG_MAPS, Kind, Workload, config_map};
use pod_reloader_e2e::{Attempt, ControlPlane, PATIENCE, Scene, wait_for};
use serde_json::json;

use super::{STAGE, all_right, patched, settled, staged};
use crate::custom::managed::{Managed, install_to_stay};

#[tokio::test]
async fn a_rollout_of_argo_holds_back_later_stages_until_its_phase_is_healthy() -> Result<()> {
    let control_plane = ControlPlane::connect()?;
    install_to_stay(&control_plane, &crd("rollouts")).await?;
    let mut options = staged("configmaps");
    // Longer than the soak.
    options.settle_period = "1200ms";
    options.values["customResources"] = json!(["argo-rollouts"]);
    Scene::play_on(control_plane, options, async |scene| {
        let stage = |kind, name: &str, stage: &str| {
            let workload = Workload::new(kind, name).lists("app");
            workload.annotated(STAGE, stage)
        };
        let earlier = [
            stage(Kind::StatefulSet, "database", "-1"),
            stage(Kind::DaemonSet, "agent", "0"),
        ];
        let later = stage(Kind::Deployment, "web", "2");
        let rollout = Managed::rollout("canary").annotated(CONFIG_MAPS, "app");
        scene.apply(std::slice::from_ref(&rollout.manifest)).await?;
        let all = [earlier.to_vec(), vec![later.clone()]].concat();
        let before = settled(scene, &all).await?;
        let first = rollout.state(scene).await?;
        is_in_phase(scene, first.generation, "Healthy").await?;
        scene.quiet().await?;

        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let state = wait_for("the Rollout to be restarted", PATIENCE, async || {
            let state = rollout.state(scene).await?;
            Ok(match state.value == first.value {
                true => Attempt::NotYet(format!("{state:?}")),
                false => Attempt::Done(state),
            })
        })
        .await?;
        all_right(scene, &earlier).await?;
        for phase in ["Progressing", "Paused"] {
            is_in_phase(scene, state.generation, phase).await?;
            // That takes longer than the soak, too.
            scene.quiet().await?;
            let after = scene.snapshot(&later).await?;
            ensure!(after == before[2], "{phase}: {before:?}, {after:?}");
        }
        let events = scene.events(&later).await?;
        let mut notes = events.iter().map(|(_, note)| note);
        let is_named = notes.any(|note| note.contains("waiting for Rollout canary"));
        ensure!(is_named, "{events:?}");
        is_in_phase(scene, state.generation, "Healthy").await?;
        scene.rolls_once(&later, &before[2]).await?;
        let order = patched(scene, mark).await?;
        ensure!(order == ["database", "agent", "canary", "web"], "{order:?}");
        Ok(())
    })
    .await
}

/// Writes the status of the Rollout. Argo writes the observed generation as a string.
async fn is_in_phase(scene: &Scene, generation: i64, phase: &str) -> Result<()> {
    let generation = generation.to_string();
    let status = json!({"status": {"observedGeneration": generation, "phase": phase}});
    let patch = format!("--patch={status}");
    let rollout = "rollouts.argoproj.io/canary";
    let args = [
        "patch",
        rollout,
        "--subresource=status",
        "--type=merge",
        &patch,
    ];
    scene.kubectl(&args).await.map(drop)
}
