//! Nothing of a Secret that is copied is seen anywhere but in its copies.

use anyhow::{Result, ensure};
use pod_reloader_e2e::CANARY;
use serde_json::{Value, json};

use super::{
    Namespaces, apply_sync, becomes, copying, has_copy, name_of, play, read_sync, source, sync,
};

#[tokio::test]
async fn a_value_is_in_no_log_event_metric_or_status() -> Result<()> {
    let mut options = copying(Value::Null);
    options.args = vec!["--log-level=trace".to_owned()];
    play(options, async |scene| {
        let namespaces = Namespaces::of(scene);
        let a = namespaces.create("a", true).await?;
        scene.apply(&[source(CANARY)]).await?;
        let ours = sync(scene, "all", json!({}));
        apply_sync(scene, &ours).await?;
        has_copy(scene, &a, CANARY).await?;
        let missing = json!({"spec": {"keys": ["value", "more"]}});
        apply_sync(scene, &sync(scene, "all", missing)).await?;
        becomes(scene, &ours, "KeyNotFound").await?;
        let status = read_sync(scene, name_of(&ours)?).await?.to_string();
        let events = scene
            .tool()
            .run(&["get", "events", "--all-namespaces", "--output=json"])
            .await?;
        let encoded = scene.object_in(&a, "secret/shared").await?["data"]["value"].clone();
        let encoded = encoded.as_str().unwrap_or_default();
        ensure!(!encoded.is_empty());
        for (what, text) in [
            ("log", scene.operator.log()?),
            ("status", status),
            ("events", events),
            ("metrics", scene.operator.metrics().await?),
        ] {
            ensure!(
                !text.contains(CANARY) && !text.contains(encoded),
                "the value is in the {what}"
            );
        }
        Ok(())
    })
    .await
}
