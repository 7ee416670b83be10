//! `migrate`: a workload moves from the annotations of another controller to ours, and is not restarted.

use std::fs;

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{both_kinds, config_map};
use pod_reloader_e2e::{Options, Scene};
use serde_json::json;

use super::{plugin, text, using};

#[tokio::test]
async fn a_migrated_workload_keeps_its_hash_and_is_restarted_by_the_same_objects() -> Result<()> {
    let options = Options::with_values(json!({"dialects": ["pod-reloader", "stakater"]}));
    Scene::play(options, async |scene| {
        scene.apply(&both_kinds("app", "1")).await?;
        let web = using("web", &["app"]).annotated("reloader.stakater.com/auto", "true");
        let before = scene.create(&web).await?;

        let patch = text(scene, &["migrate", "deploy/web"]).await?;
        let file = scene.directory().join("patch.yaml");
        fs::write(&file, &patch)?;
        let of_file = format!("--patch-file={}", file.display());
        scene
            .kubectl(&["patch", "deployment", "web", &of_file])
            .await?;
        let again = plugin(scene, &["migrate", "deploy/web"]).await?;
        ensure!(again.stdout.is_empty(), "{again:?}");
        scene.rolls_not(&web, &before).await?;

        scene.apply(&[config_map("app", "2")]).await?;
        // Not `rolls_once`, whose oracle knows lists alone.
        scene.gets_another_key(&web, &before.key).await?;
        scene.quiet().await?;
        let revisions = scene.snapshot(&web).await?.revisions;
        ensure!(
            revisions.len() == before.revisions.len() + 1,
            "{revisions:?}"
        );
        Ok(())
    })
    .await
}
