//! Contents of ConfigMaps, as pods see them.

use anyhow::{Result, ensure};
use pod_reloader_e2e::{
    RealScene, done_if,
    real_scene::LONG,
    wait_for,
    workload::{Workload, config_map},
};
use serde_json::{Value, json};

#[tokio::test]
async fn pods_wait_for_a_config_map_that_comes_late_and_none_waits_because_of_us() -> Result<()> {
    RealScene::play("late", Value::Null, async |scene| {
        let late = reads_variable(scene, "late", "app");
        scene.apply(&[late.manifest()]).await?;
        waits_because(scene, "late", MISSING).await?;
        scene.set("app", "1").await?;
        scene.all_answer("late", "/env/ALL_key", "1").await?;
        scene.rolled_out("late").await?;

        at_rest(scene, "other").await?;
        scene.rolled_out("late").await?;

        // Without its ConfigMap, no pod could start: there is no rollout.
        let late = scene.revisions("late").await?;
        scene.kubectl(&["delete", "configmap", "app"]).await?;
        at_rest(scene, "another").await?;
        let rollouts = scene.new_revisions("late", &late).await?;
        let reasons = waiting(scene, "late").await?;
        ensure!(
            rollouts == 0 && reasons.is_empty(),
            "{rollouts}, {reasons:?}"
        );
        scene.all_answer("late", "/env/ALL_key", "1").await
    })
    .await
}

#[tokio::test]
async fn a_file_of_a_volume_changes_under_the_pod_where_only_needed_changes_restart() -> Result<()>
{
    RealScene::play("needed", Value::Null, async |scene| {
        let container = json!({
            "env": [
                {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "app", "key": "one"}}},
                {"name": "START_FILES", "value": "/whole/file"},
            ],
            "volumeMounts": [{"name": "whole", "mountPath": "/whole"}],
        });
        let volume = json!({"volumes": [{"name": "whole", "configMap": {"name": "app"}}]});
        let web = scene.answering("web", 2, &container, &volume);
        let web = web.annotated(RESTART_ON, "needed");
        let app = |one: &str, file: &str| {
            let mut app = config_map("app", "unused");
            app["data"] = json!({"one": one, "file": file});
            app
        };
        scene.apply(&[app("1", "1")]).await?;
        scene.create(&web).await?;
        let before = scene.revisions("web").await?;

        scene.apply(&[app("1", "2")]).await?;
        scene.all_answer("web", "/file/whole/file", "2").await?;
        scene.all_answer("web", "/start/whole/file", "1").await?;
        let rollouts = scene.new_revisions("web", &before).await?;
        ensure!(
            rollouts == 0,
            "{rollouts} rollouts for a file that pods see"
        );

        scene.apply(&[app("2", "2")]).await?;
        scene.rolls_once("web", &before).await?;
        scene.all_answer("web", "/env/ONE", "2").await
    })
    .await
}

#[tokio::test]
async fn a_config_map_that_is_deleted_with_its_last_use_is_one_rollout() -> Result<()> {
    RealScene::play("last-use", Value::Null, async |scene| {
        let reads = |names: &[&str]| {
            let source =
                |name: &&str| json!({"prefix": format!("{name}_"), "configMapRef": {"name": name}});
            let sources: Vec<_> = names.iter().map(source).collect();
            scene.answering("web", 2, &json!({"envFrom": sources}), &json!({}))
        };
        scene.set("app", "1").await?;
        scene.set("old", "1").await?;
        scene.create(&reads(&["app", "old"])).await?;
        let before = scene.revisions("web").await?;

        // In the order of a tool that prunes.
        scene.apply(&[reads(&["app"]).manifest()]).await?;
        scene.kubectl(&["delete", "configmap", "old"]).await?;
        scene.rolls_once("web", &before).await?;
        at_rest(scene, "other").await?;
        let rollouts = scene.new_revisions("web", &before).await?;
        ensure!(rollouts == 1, "{rollouts} rollouts for one release");
        scene.rolled_out("web").await?;
        scene.all_answer("web", "/env/app_key", "1").await
    })
    .await
}

/// Returns a Deployment of two pods with the content of a ConfigMap in their variable `ALL_key`.
pub(crate) fn reads_variable(scene: &RealScene, name: &str, config_map: &str) -> Workload {
    let source = json!([{"prefix": "ALL_", "configMapRef": {"name": config_map}}]);
    scene.answering(name, 2, &json!({"envFrom": source}), &json!({}))
}

/// Waits until the operator has done what it had to do: a change that comes later has restarted a Deployment of this name.
pub(crate) async fn at_rest(scene: &RealScene, name: &str) -> Result<()> {
    scene.set(name, "1").await?;
    scene.create(&reads_variable(scene, name, name)).await?;
    let before = scene.revisions(name).await?;
    scene.set(name, "2").await?;
    scene.rolls_once(name, &before).await
}

/// Waits until a container of a workload waits for this reason.
pub(crate) async fn waits_because(scene: &RealScene, app: &str, reason: &str) -> Result<()> {
    wait_for(&format!("a pod of {app} in {reason}"), LONG, async || {
        let reasons = waiting(scene, app).await?;
        done_if(
            reasons.iter().any(|it| it == reason),
            format!("{reasons:?}"),
        )
    })
    .await
}

/// Returns why containers of a workload wait.
async fn waiting(scene: &RealScene, app: &str) -> Result<Vec<String>> {
    let pods = json!(scene.pods(app).await?);
    let pods = pods.as_array().into_iter().flatten();
    let statuses = pods.flat_map(|pod| pod["status"]["containerStatuses"].as_array());
    let reasons = statuses
        .flatten()
        .map(|status| &status["state"]["waiting"]["reason"]);
    Ok(reasons
        .filter_map(|it| it.as_str().map(str::to_owned))
        .collect())
}

/// The kubelet's reason for a ConfigMap that does not exist.
const MISSING: &str = "CreateContainerConfigError";
/// Annotation that tells which changes restart pods.
const RESTART_ON: &str = "pod-reloader.cs.sap.com/restart-on";
