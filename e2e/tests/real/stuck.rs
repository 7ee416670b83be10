//! Content with which pods of a StatefulSet do not become ready, and its correction.

use anyhow::{Result, ensure};
use pod_reloader_e2e::{
    AuditLog, Mark, RealScene, done_if,
    real_scene::{LONG, RELEASE},
    wait_for,
    workload::{Kind, Workload},
};
use serde_json::json;

use crate::contents::waits_because;

#[tokio::test]
async fn a_pod_that_is_never_ready_is_deleted_and_one_that_crashes_heals_alone() -> Result<()> {
    // Longer than the pause after a second crash, which is ten seconds.
    let values = json!({"unstick": {"enabled": true, "after": "30s"}});
    RealScene::play("stuck", values, async |scene| {
        let audit_log = scene.control_plane.audit_log().await?;
        let began = audit_log.mark().await?;
        let unready = unready(scene);
        let crashing = crashing(scene);
        scene.set("unready", "good").await?;
        scene.set("crashing", "100MiB").await?;
        scene.create(&unready).await?;
        scene.create(&crashing).await?;

        scene.set("unready", "bad").await?;
        one_answers(scene, "unready", PART, "bad").await?;
        scene.set("crashing", "much").await?;
        waits_because(scene, "crashing", "CrashLoopBackOff").await?;
        // The controller has replaced one pod of each, and no other.
        one_answers(scene, "unready", PART, "good").await?;
        one_answers(scene, "crashing", LIMIT, "100MiB").await?;

        // In this order: if the first one did not heal in time, it would be deleted before the second one.
        scene.set("crashing", "200MiB").await?;
        scene.set("unready", "better").await?;
        recovers(scene, &unready, PART, "better").await?;
        recovers(scene, &crashing, LIMIT, "200MiB").await?;

        let text = scene.event("StuckPodDeleted").await?;
        ensure!(text.contains("unready-1"), "{text}");
        let deleted = deleted_pods(scene, &audit_log, began).await?;
        ensure!(deleted == ["unready-1"], "{deleted:?}");
        Ok(())
    })
    .await
}

/// Returns a StatefulSet whose pods are not ready with the content `bad` at their start: a file of a `subPath` stays as
/// it is.
fn unready(scene: &RealScene) -> Workload {
    let container = json!({
        "env": [{"name": "READY_FILE", "value": "/part"}],
        "volumeMounts": [{"name": "whole", "mountPath": "/part", "subPath": "key"}],
    });
    let volume = json!({"volumes": [{"name": "whole", "configMap": {"name": "unready"}}]});
    scene.answering_as(Kind::StatefulSet, "unready", 2, &container, &volume)
}

/// Returns a StatefulSet whose pods end at once if the content is no amount of memory: so does every program in Go.
fn crashing(scene: &RealScene) -> Workload {
    let source = json!({"configMapKeyRef": {"name": "crashing", "key": "key"}});
    let container = json!({"env": [{"name": "GOMEMLIMIT", "valueFrom": source}]});
    scene.answering_as(Kind::StatefulSet, "crashing", 2, &container, &json!({}))
}

/// Waits until a pod of a workload answers with `expected`.
async fn one_answers(scene: &RealScene, app: &str, path: &str, expected: &str) -> Result<()> {
    let what = format!("a pod of {app} to answer {path} with {expected:?}");
    wait_for(&what, LONG, async || {
        let answers = scene.answers(app, path).await?;
        let mut found = answers.iter().flatten();
        done_if(
            found.any(|answer| answer == expected),
            format!("{answers:?}"),
        )
    })
    .await
}

/// Waits until all pods of a StatefulSet are replaced, and answer with `expected`.
async fn recovers(scene: &RealScene, set: &Workload, path: &str, expected: &str) -> Result<()> {
    // While one pod is replaced, the others may be all that there are.
    scene.all_answer(&set.name, path, expected).await?;
    scene.set_rolled_out(set).await?;
    scene.all_answer(&set.name, path, expected).await
}

/// Returns the names of the pods that the operator has deleted since a mark.
async fn deleted_pods(scene: &RealScene, audit_log: &AuditLog, since: Mark) -> Result<Vec<String>> {
    let operators = format!("system:serviceaccounts:{RELEASE}");
    let mut events = audit_log.naming(&operators, since).await?;
    events.retain(|event| event.namespace == scene.namespace && event.groups.contains(&operators));
    events.retain(|event| event.verb == "delete" && event.resource == "pods");
    let deleted = events.into_iter().filter(|event| event.code == Some(200));
    Ok(deleted.map(|event| event.name).collect())
}

/// Where pods answer with their content at their start.
const PART: &str = "/file/part";
/// Where pods answer with the variable for their limit of memory.
const LIMIT: &str = "/env/GOMEMLIMIT";
