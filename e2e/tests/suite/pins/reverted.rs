//! A configuration with which pods do not become healthy is put back, once.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Kind, Workload, config_map};
use pod_reloader_e2e::{Options, PATIENCE, Scene, done_if, mentions, wait_for};
use serde_json::{Value, json};

use super::pods::pins_are_in_force;
use super::{PINS, UNDONE, annotation, app_copy, app_pins, has_pins, pinned, pinning, pods_use};
use crate::staged::bad_pods::refuses_pods;

/// Annotation that says what happens if a workload does not become healthy.
const ON_FAILURE: &str = "pod-reloader.cs.sap.com/on-failure";

/// Returns a Deployment that has its earlier configuration put back soon.
fn reverting(name: &str) -> Workload {
    let web = pinned(Kind::Deployment, name).annotated(ON_FAILURE, "revert");
    web.annotated("pod-reloader.cs.sap.com/deadline", "3s")
}

/// Makes the apiserver refuse pods that use the copies of these values, which stands for pods that cannot start
/// with them.
pub(super) async fn refuse_pods_with(scene: &Scene, values: &[&str]) -> Result<()> {
    let bad: Vec<_> = values
        .iter()
        .map(|value| format!("'{}'", app_pins(scene, value)))
        .collect();
    let pins = format!("object.metadata.?annotations[?'{PINS}'].orValue('')");
    let unless = format!("!({pins} in [{}])", bad.join(", "));
    refuses_pods(scene, &unless, json!(null), json!(null)).await
}

async fn is_healthy(scene: &Scene, workload: &Workload) -> Result<()> {
    scene.rolled_out(workload).await
}

/// Waits until the change from `good` to `bad` has been put back.
async fn is_put_back(scene: &Scene, web: &Workload, good: &str, bad: &str) -> Result<()> {
    let undone = app_pins(scene, bad);
    wait_for("the earlier configuration", PATIENCE, async || {
        let own = annotation(scene, web, UNDONE).await?;
        done_if(own.as_deref() == Some(&undone), format!("{own:?}"))
    })
    .await?;
    has_pins(scene, web, &app_pins(scene, good)).await?;
    is_healthy(scene, web).await?;
    pods_use(scene, web, &app_copy(scene, good)).await
}

#[tokio::test]
async fn a_bad_configuration_is_put_back_once_for_each_content() -> Result<()> {
    let options = Options {
        args: vec!["--max-restarts=5".to_owned()],
        ..pinning(&json!({}))
    };
    Scene::play(options, async |scene| {
        pins_are_in_force(scene).await?;
        let web = reverting("web");
        scene.apply(&[config_map("app", "good")]).await?;
        scene.create(&web).await?;
        is_healthy(scene, &web).await?;
        let before = scene.snapshot(&web).await?;
        refuse_pods_with(scene, &["bad", "worse", "worst"]).await?;
        for bad in ["bad", "worse"] {
            scene.apply(&[config_map("app", bad)]).await?;
            is_put_back(scene, &web, "good", bad).await?;
        }
        scene.event(&web, "ConfigReverted").await?;
        scene.quiet().await?;
        let after = scene.snapshot(&web).await?;
        ensure!(after.key == before.key, "{before:?} {after:?}");
        ensure!(after.new_revisions(&before) == 2, "{before:?} {after:?}");
        // Five restarts are the limit: the third bad content, and then the next one waits.
        scene.apply(&[config_map("app", "worst")]).await?;
        has_pins(scene, &web, &app_pins(scene, "worst")).await?;
        scene.event(&web, "RestartedTooOften").await?;
        let metrics = scene.operator.metrics().await?;
        mentions(&metrics, "pod_reloader_reverts_total 2")?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn nothing_is_put_back_that_was_unhealthy_or_more_than_config() -> Result<()> {
    Scene::play(pinning(&json!({})), async |scene| {
        pins_are_in_force(scene).await?;
        let (sick, released) = (reverting("sick"), reverting("released"));
        refuse_pods_with(scene, &["sick", "bad"]).await?;
        scene.apply(&[config_map("app", "sick")]).await?;
        scene.create(&sick).await?;
        scene.apply(&[config_map("app", "bad")]).await?;
        has_pins(scene, &sick, &app_pins(scene, "bad")).await?;
        let note = scene.event(&sick, "ConfigNotReverted").await?;
        mentions(&note, "not healthy before")?;

        scene.apply(&[config_map("app", "good")]).await?;
        scene.create(&released).await?;
        is_healthy(scene, &released).await?;
        // A release brings another image together with the bad content.
        let with_image = released.clone().image("app:2");
        scene
            .apply(&[config_map("app", "bad"), with_image.manifest()])
            .await?;
        has_pins(scene, &released, &app_pins(scene, "bad")).await?;
        scene.quiet().await?;
        let object: Value = scene.object(&released.reference()).await?;
        let image = &object["spec"]["template"]["spec"]["containers"][0]["image"];
        ensure!(image == "app:2", "{object}");
        ensure!(annotation(scene, &released, UNDONE).await?.is_none());
        Ok(())
    })
    .await
}
