//! Whoever stops between copy and rollout loses nothing, does nothing twice and leaves nothing behind.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use pod_reloader_e2e::proxy::{Fault, Requests, Rule};
use pod_reloader_e2e::workload::config_map;
use pod_reloader_e2e::{Options, PATIENCE, Scene, done_if, wait_for};
use serde_json::json;

use super::copies::{are, collecting};
use super::{app_copy, app_pins, has_pins, pinned_web, pinning, pods_use};

#[tokio::test]
async fn an_operator_that_is_killed_after_a_copy_goes_on_or_collects_it() -> Result<()> {
    let options = Options {
        proxied: true,
        ..collecting()
    };
    Scene::play(options, async |scene| {
        let web = pinned_web(scene).await?;
        scene.quiet().await?;
        let before = scene.snapshot(&web).await?;
        let proxy = scene.proxy.as_ref().context("the scene is proxied")?;
        // The second time, the ConfigMap changes again while nobody is there.
        for (copied, rolled_out) in [("2", "2"), ("3", "4")] {
            let held = proxy.add(Rule::new(patches(), Fault::Hang));
            scene.apply(&[config_map("app", copied)]).await?;
            held.applied(1, PATIENCE).await?;
            scene.operator.process().kill().await;
            held.remove();
            scene
                .object(&format!("configmap/{}", app_copy(scene, copied)))
                .await?;
            scene.apply(&[config_map("app", rolled_out)]).await?;
            scene.operator.start_again().await?;
            has_pins(scene, &web, &app_pins(scene, rolled_out)).await?;
            pods_use(scene, &web, &app_copy(scene, rolled_out)).await?;
        }
        scene.quiet().await?;
        let after = scene.snapshot(&web).await?;
        ensure!(after.new_revisions(&before) == 2, "{before:?}, {after:?}");
        are(scene, &["1", "2", "4"]).await
    })
    .await
}

#[tokio::test]
async fn a_leader_that_was_frozen_after_a_copy_moves_nothing_back() -> Result<()> {
    let options = Options {
        proxied: true,
        replicas: 2,
        args: collecting().args,
        // Writes hang this long while the frozen replica is called.
        ..pinning(&json!({"webhook": {"timeoutSeconds": 3}}))
    };
    Scene::play(options, async |scene| {
        let web = pinned_web(scene).await?;
        scene.quiet().await?;
        let before = scene.snapshot(&web).await?;
        let leader = scene.leader().await?;
        let late = Rule::new(patches(), Fault::Delay(Duration::from_secs(600)));
        let late = leader.proxy()?.add(late);
        scene.apply(&[config_map("app", "2")]).await?;
        late.applied(1, PATIENCE).await?;
        leader.operator.process().pause()?;
        scene.apply(&[config_map("app", "3")]).await?;
        let next = scene.leader().await?;
        ensure!(next.port != leader.port, "it leads again");
        has_pins(scene, &web, &app_pins(scene, "3")).await?;
        late.remove();
        leader.operator.process().resume()?;
        wait_for("it to step down", PATIENCE, async || {
            done_if(!leader.operator.is_leading().await, "it leads")
        })
        .await?;
        scene.quiet().await?;
        pods_use(scene, &web, &app_copy(scene, "3")).await?;
        has_pins(scene, &web, &app_pins(scene, "3")).await?;
        let after = scene.snapshot(&web).await?;
        ensure!(after.new_revisions(&before) == 1, "{before:?}, {after:?}");
        are(scene, &["1", "3"]).await
    })
    .await
}

fn patches() -> Requests {
    Requests::containing("/deployments/web").method(Method::PATCH)
}
