//! No Secret is copied, and the content of a ConfigMap is in its copies and nowhere else.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::ListParams;
use pod_reloader_e2e::workload::{Kind, config_map, secret};
use pod_reloader_e2e::{Mark, PATIENCE, Scene, done_if, wait_for};

use super::copies::collecting;
use super::pods::pins_are_in_force;
use super::{COPY, app_copy, app_pins, has_pins, pinned, pods_use};
use crate::plugin::text;
use crate::secrecy::{random_value, said, traces};

#[tokio::test]
async fn no_secret_is_copied_and_no_config_leaves_its_copies() -> Result<()> {
    Scene::play(collecting(), async |scene| {
        pins_are_in_force(scene).await?;
        let mark = scene.mark().await?;
        let secrets = [random_value()?, random_value()?];
        let configs = [random_value()?, random_value()?];
        scene
            .apply(&[config_map("app", &configs[0]), secret("app", &secrets[0])])
            .await?;
        let web = pinned(Kind::Deployment, "web").lists_secrets("app");
        scene.create(&web).await?;
        pods_use(scene, &web, &app_copy(scene, &configs[0])).await?;
        scene.apply(&[config_map("app", &configs[1])]).await?;
        pods_use(scene, &web, &app_copy(scene, &configs[1])).await?;
        let undo = ["rollout", "undo", "deployment/web"];
        scene.kubectl(&undo).await?;
        scene.event(&web, "ConfigUndone").await?;
        let history = text(scene, &["history", "deployment/web", "--diff"]).await?;
        for (form, trace) in configs.iter().flat_map(|value| traces(value)) {
            ensure!(
                !history.contains(&trace),
                "{form} of a value is in\n{history}"
            );
        }
        let before = scene.key(&web).await?;
        scene.apply(&[secret("app", &secrets[1])]).await?;
        wait_for("another hash", PATIENCE, async || {
            done_if(scene.key(&web).await? != before, "the same")
        })
        .await?;
        has_pins(scene, &web, &app_pins(scene, &configs[0])).await?;
        only_configs_are_copied(scene, &configs, &secrets).await?;
        let delete = ["delete", "configmap", &app_copy(scene, &configs[0])];
        scene.kubectl(&delete).await?;
        scene.event(&web, "CopyLost").await?;
        only_configs_are_copied(scene, &configs, &secrets).await?;
        nothing_is_said(scene, mark, &configs, &secrets).await
    })
    .await
}

async fn only_configs_are_copied(
    scene: &Scene,
    configs: &[String],
    secrets: &[String],
) -> Result<()> {
    let copies = ListParams::default().labels(COPY);
    for namespace in [&scene.namespace, &scene.installation.namespace] {
        let all: Api<Secret> = Api::namespaced(scene.client.clone(), namespace);
        ensure!(all.list(&copies).await?.items.is_empty(), "a Secret");
        let all: Api<ConfigMap> = Api::namespaced(scene.client.clone(), namespace);
        for object in all.list(&ListParams::default()).await? {
            let text = serde_json::to_string(&object)?;
            for (form, trace) in secrets.iter().flat_map(|value| traces(value)) {
                ensure!(!text.contains(&trace), "{form} of a Secret is in {text}");
            }
        }
        for copy in all.list(&copies).await? {
            let value = copy.data.unwrap_or_default().remove("key");
            ensure!(value.is_some_and(|value| configs.contains(&value)));
        }
    }
    Ok(())
}

async fn nothing_is_said(
    scene: &Scene,
    mark: Mark,
    configs: &[String],
    secrets: &[String],
) -> Result<()> {
    let mut copied = scene.requests(mark).await?;
    copied.retain(|it| it.verb == "create" && it.resource == "configmaps");
    ensure!(
        configs.iter().any(|it| format!("{copied:?}").contains(it)),
        "looked for the wrong thing"
    );
    for (place, text) in said(scene, mark).await? {
        let configs = match place {
            "the requests" => &[],
            _ => configs,
        };
        for value in configs.iter().chain(secrets) {
            for (form, trace) in traces(value) {
                ensure!(!text.contains(&trace), "{form} of a value is in {place}");
            }
        }
    }
    let mut others = scene.requests(mark).await?;
    others.retain(|it| it.verb != "create" || it.resource != "configmaps");
    let others = format!("{others:?}");
    for (form, trace) in configs.iter().flat_map(|value| traces(value)) {
        ensure!(
            !others.contains(&trace),
            "{form} of a value is in a request"
        );
    }
    Ok(())
}
