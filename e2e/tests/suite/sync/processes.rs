//! The operator and the writer go on while the other one does not.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Workload, config_map};
use serde_json::{Value, json};

use super::{Namespaces, apply_sync, copying, difference, has_copy, play, source, sync};

#[tokio::test]
async fn a_restart_does_not_wait_for_the_writer_and_a_copy_not_for_the_operator() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        let writer = &scene.operator;
        let operator = scene.other()?;
        let here = Namespaces::of(scene).create("here", true).await?;
        scene.apply(&[config_map("app", "1"), source("1")]).await?;
        apply_sync(scene, &sync(scene, "all", json!({}))).await?;
        has_copy(scene, &here, "1").await?;
        let web = Workload::podless("web").lists("app");
        let before = scene.create(&web).await?;

        // A process that is stuck, with work to do.
        writer.process().pause()?;
        scene.apply(&[source("2"), config_map("app", "2")]).await?;
        let restarted = scene.rolls_once(&web, &before).await?;
        let difference = difference(scene, &here, "1").await?;
        ensure!(difference.is_none(), "who has written it? {difference:?}");
        writer.process().resume()?;
        has_copy(scene, &here, "2").await?;

        // One that is gone.
        operator.process().kill().await;
        scene.apply(&[config_map("app", "3"), source("3")]).await?;
        has_copy(scene, &here, "3").await?;
        let hash = scene.key(&web).await?;
        ensure!(hash == restarted.key, "who has restarted it? {hash:?}");
        operator.start_again().await?;
        scene.rolls_once(&web, &restarted).await.map(drop)
    })
    .await
}
