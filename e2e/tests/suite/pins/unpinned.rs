//! Pods that are created while nobody is there to pin them, on a cluster without the policy.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Kind, config_map};
use pod_reloader_e2e::{Options, Scene};

use super::copies::collecting;
use super::pods::{by_webhook, pins_are_in_force};
use super::{app_copy, pinned, pinning, pods_use};

#[tokio::test]
async fn pods_of_an_outage_use_the_config_map_itself_and_users_are_told() -> Result<()> {
    let options = Options {
        args: collecting().args,
        ..pinning(&by_webhook())
    };
    Scene::play(options, async |scene| {
        pins_are_in_force(scene).await?;
        let web = pinned(Kind::Deployment, "web");
        scene.apply(&[config_map("app", "1")]).await?;
        let before = scene.create(&web).await?;
        pods_use(scene, &web, &app_copy(scene, "1")).await?;
        let delete = ["delete", "pods", "--selector=app=web", "--wait=false"];

        scene.operator.stop().await;
        scene.kubectl(&delete).await?;
        pods_use(scene, &web, "app").await?;
        scene.operator.start_again().await?;
        let note = scene.event(&web, "PodsNotPinned").await?;
        ensure!(note.contains('1'), "{note}");
        let metric = "pod_reloader_unpinned_pods";
        scene.shows(metric, "1").await?;
        scene.rolls_not(&web, &before).await?;

        scene.kubectl(&delete).await?;
        pods_use(scene, &web, &app_copy(scene, "1")).await?;
        scene.shows(metric, "0").await
    })
    .await
}
