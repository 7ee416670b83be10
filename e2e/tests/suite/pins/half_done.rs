//! In the middle of a rollout, each pod has the content of its own revision.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use pod_reloader_e2e::workload::{Kind, config_map, secret};
use pod_reloader_e2e::{Attempt, PATIENCE, Scene, wait_for};
use serde_json::json;

use super::pods::{expected, names, pins_are_in_force, spec};
use super::reverted::refuse_pods_with;
use super::{app_copy, app_pins, has_pins, pinned, pinning};
use crate::staged::bad_pods::allows_pods;

#[tokio::test]
async fn a_pod_that_comes_back_has_the_copy_of_its_own_revision() -> Result<()> {
    Scene::play(pinning(&json!({})), async |scene| {
        pins_are_in_force(scene).await?;
        let objects = [config_map("app", "1"), config_map("other", "1")];
        scene.apply(&objects).await?;
        scene.apply(&[secret("app", "1")]).await?;
        let web = pinned(Kind::Deployment, "web")
            .with(&["spec", "replicas"], json!(2))
            .with(&["spec", "template", "spec"], spec());
        scene.create(&web).await?;
        let first = all_use(scene, &app_copy(scene, "1"), &BTreeSet::new()).await?;

        refuse_pods_with(scene, &["2"]).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        has_pins(scene, &web, &app_pins(scene, "2")).await?;
        let sets = scene.snapshot(&web).await?.revisions;
        ensure!(sets.len() == 2, "{sets:?}");
        let delete = ["delete", "pods", "--selector=app=web", "--wait=false"];
        scene.kubectl(&delete).await?;
        let second = all_use(scene, &app_copy(scene, "1"), &first).await?;

        allows_pods(scene).await?;
        all_use(scene, &app_copy(scene, "2"), &second).await?;
        Ok(())
    })
    .await
}

/// Waits until there are two pods that were not there `before`, both of which use this copy in every place that
/// names `app`. Returns their UIDs.
async fn all_use(scene: &Scene, copy: &str, before: &BTreeSet<String>) -> Result<BTreeSet<String>> {
    let expected = expected(&spec(), &[("app", copy)]);
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let own = ListParams::default().labels("app=web");
    wait_for(&format!("two pods to use {copy}"), PATIENCE, async || {
        let mut found = Vec::new();
        for pod in pods.list(&own).await? {
            let names = names(&serde_json::to_value(pod.spec)?);
            found.push((pod.metadata.uid.unwrap_or_default(), names));
        }
        let is_right =
            |(uid, names): &(String, Vec<String>)| !before.contains(uid) && *names == expected;
        Ok(match found.len() == 2 && found.iter().all(is_right) {
            true => Attempt::Done(found.into_iter().map(|(uid, _)| uid).collect()),
            false => Attempt::NotYet(format!("{found:?}")),
        })
    })
    .await
}
