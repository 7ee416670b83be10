//! Upgrades of the release: from operator and chart of an earlier commit, with the features off, to those of these sources,
//! with the features on. `make test-upgrade` does that with many workloads and each feature, without pods that run.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use pod_reloader_e2e::{
    PATIENCE, PushedImage, RealScene, done_if,
    real_scene::restarts,
    wait_for,
    workload::{Kind, Workload},
};
use serde_json::{Value, json};

use crate::contents::{at_rest, reads_variable};

#[tokio::test]
async fn no_upgrade_restarts_a_pod_and_the_next_change_is_one_rollout() -> Result<()> {
    RealScene::play_earlier("upgrade", Value::Null, async |scene| {
        let current = &scene.node.operator;
        let earlier = scene.node.earlier.as_ref();
        all_run(scene, earlier.map_or(current, |earlier| &earlier.operator)).await?;
        scene.set("app", "1").await?;
        scene.create(&reads_variable(scene, "web", "app")).await?;
        scene.create(&database(scene)).await?;
        // The hash that the upgrade meets was written by a restart.
        changes(scene, "2").await?;

        restarts_nothing(scene, "features-on", &features()).await?;
        changes(scene, "3").await?;
        restarts_nothing(scene, "features-off", &json!({})).await?;
        changes(scene, "4").await
    })
    .await
}

/// Upgrades to chart and operator of these sources, and checks that all pods are the same once the operator has done what
/// it had to do. `name` names a Deployment that is made to see that.
async fn restarts_nothing(scene: &RealScene, name: &str, values: &Value) -> Result<()> {
    let before = pods(scene).await?;
    scene.upgrade(values).await?;
    all_run(scene, &scene.node.operator).await?;
    at_rest(scene, name).await?;
    let after = pods(scene).await?;
    ensure!(before == after, "{before:?} before, {after:?} after");
    Ok(())
}

/// Waits until all pods of the operator have this image.
async fn all_run(scene: &RealScene, image: &PushedImage) -> Result<()> {
    let expected = BTreeSet::from([image.reference()]);
    let what = format!("operators of {expected:?} alone");
    wait_for(&what, PATIENCE, async || {
        let pods = scene.operators().await?.into_iter();
        let containers = pods
            .filter_map(|pod| pod.spec)
            .flat_map(|spec| spec.containers);
        let images: BTreeSet<_> = containers.filter_map(|it| it.image).collect();
        done_if(images == expected, format!("{images:?}"))
    })
    .await
}

/// Changes the ConfigMap, and checks that all pods are replaced once.
async fn changes(scene: &RealScene, content: &str) -> Result<()> {
    let before = scene.revisions("web").await?;
    scene.set("app", content).await?;
    scene.rolls_once("web", &before).await?;
    for name in ["web", "db"] {
        scene.all_answer(name, "/env/ALL_key", content).await?;
    }
    // While one pod of it was replaced, the others were all that there were.
    scene.set_rolled_out(&database(scene)).await?;
    scene.all_answer("db", "/env/ALL_key", content).await
}

/// Returns a StatefulSet of two pods with the content of the ConfigMap in their variable `ALL_key`.
fn database(scene: &RealScene) -> Workload {
    let source = json!([{"prefix": "ALL_", "configMapRef": {"name": "app"}}]);
    let container = json!({"envFrom": source});
    scene.answering_as(Kind::StatefulSet, "db", 2, &container, &json!({}))
}

/// Returns the names and UIDs of all pods, and how often their containers have been started again.
async fn pods(scene: &RealScene) -> Result<Vec<(Option<String>, Option<String>, i32)>> {
    let mut found = Vec::new();
    for name in ["web", "db"] {
        for pod in scene.pods(name).await? {
            let restarts = restarts(&pod);
            found.push((pod.metadata.name, pod.metadata.uid, restarts));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns values that switch on what the chart can do beyond its defaults, and what has rights of its own.
fn features() -> Value {
    json!({
        "pin": {"enabled": true},
        "protect": {"enabled": true},
        "sync": {"enabled": true},
        "httpReload": {"enabled": true},
        "unstick": {"enabled": true},
        "fence": {"enabled": true},
        "namespaceAnnotations": {"enabled": true},
        "webhook": {"restrictedOtherwise": true},
    })
}
