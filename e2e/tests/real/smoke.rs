//! The life of a release whose pods run, in short. `make test` runs it, too, with a debug build of the operator.

use anyhow::{Result, ensure};
use pod_reloader_e2e::{
    PATIENCE, RealScene, done_if, real_scene::RELEASE, wait_for, workload::Workload,
};
use serde_json::{Value, json};

use crate::attack::{no_operator_has_restarted, reach_replicas, send_endless_bodies};

#[tokio::test]
async fn every_pod_answers_with_a_change_in_each_way_under_attack_and_after_uninstalling()
-> Result<()> {
    RealScene::play("smoke", Value::Null, async |scene| {
        let tested = scene.helm("test", &["--timeout=3m"]).await?;
        ensure!(tested.contains("Succeeded"), "{tested}");

        scene.set("app", "blue").await?;
        scene.create(&reads_in_each_way(scene)).await?;
        all_answer(scene, "blue").await?;

        let before = scene.revisions("web").await?;
        reach_replicas(scene).await?;
        let (attacked, changed) =
            tokio::join!(send_endless_bodies(scene), scene.set("app", "green"));
        attacked?;
        changed?;
        scene.rolls_once("web", &before).await?;
        all_answer(scene, "green").await?;
        no_operator_has_restarted(scene).await?;

        let before = state(scene).await?;
        scene.helm("uninstall", &["--wait"]).await?;
        // Its pods, and what controllers have made of its Services, go a moment later.
        wait_for("everything of the release to go", PATIENCE, async || {
            let left = of_release(scene).await?;
            done_if(left.is_empty(), left)
        })
        .await?;
        ensure!(state(scene).await? == before, "uninstalling changed web");
        all_answer(scene, "green").await
    })
    .await
}

/// Returns a Deployment whose pods read ConfigMap `app` in each way that there is.
fn reads_in_each_way(scene: &RealScene) -> Workload {
    let container = json!({
        "env": [
            {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "key"}}},
            {"name": "START_FILES", "value": "/whole/key,/part,/projected/key"},
        ],
        "envFrom": [{"prefix": "ALL_", "configMapRef": {"name": "app"}}],
        "volumeMounts": [
            {"name": "whole", "mountPath": "/whole"},
            {"name": "whole", "mountPath": "/part", "subPath": "key"},
            {"name": "projected", "mountPath": "/projected"},
        ],
    });
    let pod = json!({
        "volumes": [
            {"name": "whole", "configMap": {"name": "app"}},
            {"name": "projected", "projected": {"sources": [{"configMap": {"name": "app"}}]}},
        ],
    });
    scene.answering("web", 3, &container, &pod)
}

/// Waits until every pod has read this content in each way, now and at its start.
async fn all_answer(scene: &RealScene, content: &str) -> Result<()> {
    for path in [
        "/env/ONE",
        "/env/ALL_key",
        "/file/whole/key",
        "/file/part",
        "/file/projected/key",
        "/start/whole/key",
        "/start/part",
        "/start/projected/key",
    ] {
        scene.all_answer("web", path, content).await?;
    }
    Ok(())
}

/// Returns what a later restart would change: generation, pod template and revisions.
async fn state(scene: &RealScene) -> Result<(Value, Vec<String>)> {
    let web = scene
        .kubectl(&["get", "deployment", "web", "--output=json"])
        .await?;
    let web: Value = serde_json::from_str(&web)?;
    let revisions = scene.revisions("web").await?;
    let parts = json!([web["metadata"]["generation"], web["spec"]["template"]]);
    Ok((parts, revisions.into_iter().collect()))
}

/// Returns the names of everything that belongs to the release, of every kind that the apiserver has.
async fn of_release(scene: &RealScene) -> Result<String> {
    let kubectl = scene.control_plane.kubectl();
    let listable = ["api-resources", "--verbs=list,delete", "--output=name"];
    let kinds = kubectl.run(&listable).await?;
    let kinds = kinds.lines().collect::<Vec<_>>().join(",");
    let selector = format!("--selector=app.kubernetes.io/instance={RELEASE}");
    let get = [
        "get",
        &kinds,
        &selector,
        "--all-namespaces",
        "--output=json",
    ];
    let found: Value = serde_json::from_str(&kubectl.run(&get).await?)?;
    let found = found["items"].as_array().cloned().unwrap_or_default();
    let left = found.iter().filter(|object| !stays(object));
    let left = left.map(|object| {
        let [kind, name] = [&object["kind"], &object["metadata"]["name"]].map(Value::as_str);
        format!("{}/{}", kind.unwrap_or_default(), name.unwrap_or_default())
    });
    let left: Vec<_> = left.collect();
    Ok(left.join("\n"))
}

/// Tells whether an object of a release is to stay: the keys of the hash, by which a later release knows the hashes, and
/// what the chart has Helm keep, of this release or of an earlier test.
fn stays(object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str();
    name.is_some_and(|name| name.ends_with("-hash-keys"))
        || object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
}
