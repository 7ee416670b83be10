//! A custom resource is created without the required fields that are bound.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{Attempt, PATIENCE, Scene, done_if, wait_for};
use serde_json::{Value, json};

use super::{becomes, binding_fields, harbor, harbor_s3, s3, with_definitions};

#[tokio::test]
async fn a_required_field_is_filled_as_the_object_is_created_and_refused_without_the_webhook()
-> Result<()> {
    let mut options = binding_fields(Value::Null);
    options.failure_policy = "Ignore";
    Scene::play(options, async |scene| {
        with_definitions(&scene.control_plane).await?;
        let region = json!({"key": "region", "path": "spec.imageChartStorage.s3.region"});
        let mut binding = harbor_s3(json!({}));
        binding["spec"]["fields"]
            .as_array_mut()
            .context("fields")?
            .push(region);
        scene.apply(&[s3("AKIA1", "images"), binding]).await?;
        becomes(scene, "TargetNotFound").await?;

        // The region has no key yet, and neither it nor the bucket is in the manifest.
        let mut without = harbor(json!({}));
        without["spec"]["imageChartStorage"]["s3"] = json!({"secretkeyRef": "s3"});
        let manifest = without.to_string();
        let tried = [
            "create",
            "--dry-run=server",
            "--output=json",
            "--filename=-",
        ];
        wait_for("the webhook to be called", PATIENCE, async || {
            let output = scene.kubectl_output(&tried, &manifest).await?;
            let warning = "spec.imageChartStorage.s3.region is not filled (KeyNotFound)";
            let is_left = output.stderr.contains(warning)
                && output.stderr.contains("s3.region: Required value");
            let is_filled = !output.stderr.contains("s3.bucket: Required value");
            done_if(is_left && is_filled, output.stderr)
        })
        .await?;
        scene.apply(&[with_region(s3("AKIA1", "images"))]).await?;
        let output = scene.kubectl_output(&tried, &manifest).await?;
        ensure!(
            output.code == Some(0) && output.stderr.is_empty(),
            "{}",
            output.stderr
        );
        let mark = scene.mark().await?;
        scene
            .kubectl_with_input(&["create", "--filename=-"], &manifest)
            .await?;
        has(scene, ["AKIA1", "images", "eu-1"]).await?;
        becomes(scene, "Applied").await?;
        let writes = scene.requests(mark).await?;
        let writes: Vec<_> = writes
            .iter()
            .filter(|it| it.resource == "harbors" && it.verb == "patch")
            .collect();
        ensure!(
            writes.is_empty(),
            "there was nothing left to write: {writes:?}"
        );

        // A placeholder in Git is filled, too.
        scene.delete("harbor/registry").await?;
        let placeholder =
            json!({"spec": {"imageChartStorage": {"s3": {"accesskey": "placeholder"}}}});
        let placeholder = harbor(placeholder).to_string();
        scene
            .kubectl_with_input(&["apply", "--server-side", "--filename=-"], &placeholder)
            .await?;
        has(scene, ["AKIA1", "images", "eu-1"]).await?;

        // Without the webhook, the apiserver refuses what it always refuses, and nothing else.
        scene.delete("harbor/registry").await?;
        scene.other()?.stop().await;
        let output = scene
            .kubectl_output(&["create", "--filename=-"], &manifest)
            .await?;
        for field in ["bucket", "region"] {
            let required = format!("spec.imageChartStorage.s3.{field}: Required value");
            ensure!(output.stderr.contains(&required), "{}", output.stderr);
        }
        scene
            .kubectl_with_input(&["create", "--filename=-"], &placeholder)
            .await?;
        wait_for("the fields to follow", PATIENCE, async || {
            let has = has(scene, ["AKIA1", "images", "eu-1"]).await;
            Ok(has.map_or_else(|error| Attempt::NotYet(error.to_string()), Attempt::Done))
        })
        .await
    })
    .await
}

/// Adds the key of the region.
fn with_region(mut secret: Value) -> Value {
    secret["stringData"]["region"] = json!("eu-1");
    secret
}

/// Asserts that the Harbor has this access key, bucket and region.
async fn has(scene: &Scene, expected: [&str; 3]) -> Result<()> {
    let harbor = scene
        .custom_object("goharbor.io/v1beta1", "harbors", "registry")
        .await?;
    let s3 = &harbor["spec"]["imageChartStorage"]["s3"];
    let found = ["accesskey", "bucket", "region"].map(|it| s3[it].as_str().unwrap_or_default());
    ensure!(found == expected, "{found:?}");
    Ok(())
}
