//! The webhook's certificate by cert-manager.

use anyhow::Result;
use pod_reloader_e2e::RealScene;
use serde_json::json;

use crate::contents::reads_variable;

#[tokio::test]
async fn with_cert_manager_a_webhook_that_must_not_fail_takes_every_write() -> Result<()> {
    let values = json!({"webhook": {"certManager": {"enabled": true}, "failurePolicy": "Fail"}});
    RealScene::play("cert-manager", values, async |scene| {
        scene.set("app", "1").await?;
        scene.create(&reads_variable(scene, "web", "app")).await?;
        let before = scene.revisions("web").await?;
        scene.set("app", "2").await?;
        scene.rolls_once("web", &before).await?;
        scene.all_answer("web", "/env/ALL_key", "2").await
    })
    .await
}
