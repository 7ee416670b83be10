//! Copies live as long as somebody uses them, and come back if somebody deletes them too early.

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use pod_reloader_e2e::workload::{Kind, config_map};
use pod_reloader_e2e::{Attempt, Options, PATIENCE, Scene, done_if, wait_for};
use serde_json::{Value, json};

use super::pods::pins_are_in_force;
use super::{
    COPY, PINS, app_copy, app_pins, copies, has_pins, pinned, pinned_web, pinning, pods_use,
    template_annotation,
};

/// Returns options with pins, and with copies that may be deleted soon.
pub(super) fn collecting() -> Options {
    Options {
        args: vec!["--copy-grace-period=1s".to_owned()],
        ..pinning(&json!({}))
    }
}

/// Waits until these are the values of all copies.
pub(super) async fn are(scene: &Scene, values: &[&str]) -> Result<()> {
    let mut expected: Vec<_> = values
        .iter()
        .map(|value| (app_copy(scene, value), Some((*value).to_owned())))
        .collect();
    expected.sort();
    wait_for("only copies that are in use", PATIENCE, async || {
        let mut found = copies(scene).await?;
        found.sort();
        done_if(found == expected, format!("{found:?}"))
    })
    .await
}

#[tokio::test]
async fn copies_go_with_the_last_that_uses_them() -> Result<()> {
    Scene::play(collecting(), async |scene| {
        pins_are_in_force(scene).await?;
        scene.apply(&[config_map("app", "0")]).await?;
        let all = Kind::ALL.into_iter().zip(["web", "db", "agent"]);
        let all: Vec<_> = all
            .map(|(kind, name)| {
                let workload = pinned(kind, name);
                workload.with(&["spec", "revisionHistoryLimit"], json!(2))
            })
            .collect();
        for workload in &all {
            scene.create(workload).await?;
        }
        // Somebody's own ConfigMap looks like a copy.
        scene.apply(&[config_map("app-0123456789", "mine")]).await?;
        for value in ["1", "2", "3", "4"] {
            scene.apply(&[config_map("app", value)]).await?;
            for workload in &all {
                has_pins(scene, workload, &app_pins(scene, value)).await?;
                pods_use(scene, workload, &app_copy(scene, value)).await?;
            }
        }
        are(scene, &["2", "3", "4"]).await?;
        for workload in &all {
            let delete = [
                "delete",
                &workload.reference(),
                "--cascade=foreground",
                "--wait",
            ];
            scene.kubectl(&delete).await?;
        }
        are(scene, &[]).await?;
        let own = scene.object("configmap/app-0123456789").await?;
        ensure!(own["data"]["key"] == "mine", "{own}");
        Ok(())
    })
    .await
}

/// As kustomize names what it generates, if it has ten digits. Labels and annotations may be written by those who may
/// not delete it.
#[tokio::test]
async fn a_protected_config_map_with_the_marks_of_a_copy_is_left_alone() -> Result<()> {
    let options = Options {
        args: vec!["--copy-grace-period=1s".to_owned()],
        ..pinning(&json!({"protect": {"enabled": true}}))
    };
    Scene::play(options, async |scene| {
        pins_are_in_force(scene).await?;
        let web = pinned(Kind::Deployment, "web").with(&["spec", "revisionHistoryLimit"], json!(0));
        scene.apply(&[config_map("app", "1")]).await?;
        scene.create(&web).await?;
        pods_use(scene, &web, &app_copy(scene, "1")).await?;
        let mark = scene.mark().await?;
        let name = "app-0123456789";
        let mut theirs = config_map(name, "theirs");
        theirs["immutable"] = json!(true);
        theirs["metadata"]["labels"] =
            json!({COPY: "true", "pod-reloader.cs.sap.com/protect": "always"});
        theirs["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/copy-of": "app"});
        scene.apply(&[theirs]).await?;
        // Whenever an unused copy is deleted, all have been looked at twice.
        for value in ["2", "3"] {
            let before = (value.parse::<u8>()? - 1).to_string();
            scene.apply(&[config_map("app", value)]).await?;
            pods_use(scene, &web, &app_copy(scene, value)).await?;
            wait_for("the unused copy to go", PATIENCE, async || {
                let found = copies(scene).await?;
                let is_there = found
                    .iter()
                    .any(|(name, _)| *name == app_copy(scene, &before));
                done_if(!is_there, format!("{found:?}"))
            })
            .await?;
        }
        let own = scene.object(&format!("configmap/{name}")).await?;
        ensure!(own["data"]["key"] == "theirs", "{own}");
        let mut requests = scene.requests(mark).await?;
        requests.retain(|it| it.verb == "delete" && it.name == name);
        ensure!(requests.is_empty(), "{requests:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_copy_that_is_deleted_in_use_comes_back_or_pods_get_the_present_content() -> Result<()> {
    Scene::play(collecting(), async |scene| {
        let web = pinned_web(scene).await?;
        let delete = async |name: String| scene.delete(&format!("configmap/{name}")).await;
        delete(app_copy(scene, "1")).await?;
        are(scene, &["1"]).await?;

        scene.apply(&[config_map("app", "2")]).await?;
        pods_use(scene, &web, &app_copy(scene, "2")).await?;
        scene
            .kubectl(&["rollout", "undo", "deployment/web"])
            .await?;
        pods_use(scene, &web, &app_copy(scene, "1")).await?;
        // Nobody knows the first content any more.
        delete(app_copy(scene, "1")).await?;
        let name = format!("configmap/{}", app_copy(scene, "1"));
        wait_for("something that pods can start with", PATIENCE, async || {
            let object = scene.object(&name).await;
            Ok(match object.as_ref().map(|it| &it["data"]["key"]) {
                Ok(Value::String(value)) if value == "2" => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:?}")),
            })
        })
        .await?;
        scene.event(&web, "CopyLost").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn without_room_for_a_copy_the_rollout_goes_on_without() -> Result<()> {
    Scene::play(collecting(), async |scene| {
        let web = pinned_web(scene).await?;
        let count = scene
            .kubectl(&["get", "configmaps", "--output=name"])
            .await?;
        let quota = json!({
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "full"},
            "spec": {"hard": {"count/configmaps": count.lines().count().to_string()}},
        });
        scene.apply(&[quota]).await?;
        wait_for("the quota", PATIENCE, async || {
            let quota = scene.object("resourcequota/full").await?;
            Ok(match quota["status"]["used"]["count/configmaps"].as_str() {
                Some(_) => Attempt::Done(()),
                None => Attempt::NotYet(quota.to_string()),
            })
        })
        .await?;
        let before = scene.snapshot(&web).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        has_pins(scene, &web, "").await?;
        let note = scene.event(&web, "CopyFailed").await?;
        ensure!(note.contains("quota of the namespace"), "{note}");
        pods_use(scene, &web, "app").await?;
        scene.delete("resourcequota/full").await?;
        scene.quiet().await?;
        let after = scene.snapshot(&web).await?;
        ensure!(after.new_revisions(&before) == 1, "{before:?} {after:?}");
        scene.apply(&[config_map("app", "3")]).await?;
        pods_use(scene, &web, &app_copy(scene, "3")).await?;
        are(scene, &["1", "3"]).await.context("the second is none")
    })
    .await
}

#[tokio::test]
async fn the_largest_config_map_is_copied_byte_by_byte() -> Result<()> {
    Scene::play(pinning(&json!({})), async |scene| {
        pins_are_in_force(scene).await?;
        let web = pinned(Kind::Deployment, "web");
        // Kubernetes takes 1 MiB of values.
        let half = 512 << 10;
        let text = "\"\\\n\t\u{1}<\u{e4}\u{1f980}".repeat(half / 12);
        let bytes: Vec<_> = (0..half).map(|at| (at * at / 7) as u8).collect();
        let mut live = config_map("app", &text);
        live["data"]["rest"] = json!("x".repeat(half - text.len()));
        live["binaryData"] = json!({"bytes": ByteString(bytes), "none": ""});
        scene.put_all(std::slice::from_ref(&live)).await?;
        scene.create(&web).await?;
        let pins = template_annotation(scene, &web, PINS).await?;
        let pins = pins.context("no pins")?;
        let copy = pins.strip_prefix("app=").context("another name")?;
        pods_use(scene, &web, copy).await?;
        let copy = scene.object(&format!("configmap/{copy}")).await?;
        for part in ["data", "binaryData"] {
            ensure!(copy[part] == live[part], "{part} differs");
        }
        let metadata = &copy["metadata"];
        ensure!(metadata["labels"] == json!({COPY: "true"}), "{metadata}");
        let seal = metadata["annotations"]["pod-reloader.cs.sap.com/seal"].as_str();
        let seal = seal.context("no seal")?;
        ensure!(seal.len() == 32, "{metadata}");
        let ours = json!({
            "pod-reloader.cs.sap.com/copy-of": "app",
            "pod-reloader.cs.sap.com/seal": seal,
        });
        ensure!(metadata["annotations"] == ours, "{metadata}");
        let first = scene.snapshot(&web).await?;
        live["data"]["rest"] = json!("y".repeat(half - text.len()));
        scene.put_all(&[live]).await?;
        scene.rolls_once(&web, &first).await?;
        let note = scene.event(&web, "CopiesLarge").await?;
        ensure!(note.contains("MiB"), "{note}");
        Ok(())
    })
    .await
}
