//! Nothing of a Secret that is copied is seen anywhere but in its copies.

use anyhow::{Result, ensure};
use pod_reloader_e2e::{Attempt, CANARY, PATIENCE, wait_for};
use serde_json::{Value, json};

use super::{
    Namespaces, applied_sync, apply_sync, becomes, copying, has_copy, name_of, play, read_sync,
    source, sync,
};

#[tokio::test]
async fn a_value_is_in_no_log_event_metric_or_status() -> Result<()> {
    let mut options = copying(Value::Null);
    options.args = vec!["--log-level=trace".to_owned()];
    play(options, async |scene| {
        let namespaces = Namespaces::of(scene);
        let a = namespaces.create("a", true).await?;
        scene.apply(&[source(CANARY)]).await?;
        let ours = applied_sync(scene, "all", json!({})).await?;
        has_copy(scene, &a, CANARY).await?;
        let missing = json!({"spec": {"keys": ["value", "more"]}});
        apply_sync(scene, &sync(scene, "all", missing)).await?;
        becomes(scene, &ours, "KeyNotFound").await?;
        let status = read_sync(scene, name_of(&ours)?).await?.to_string();
        let events = wait_for("the Event", PATIENCE, async || {
            let path = http::Request::get("/apis/events.k8s.io/v1/events");
            let events = scene.client.request_text(path.body(Vec::new())?).await?;
            let list: Value = serde_json::from_str(&events)?;
            let mut items = list["items"].as_array().into_iter().flatten();
            let is_it = |event: &Value| {
                event["reason"] == "ConfigNotSynced"
                    && event["regarding"]["name"] == ours["metadata"]["name"]
            };
            Ok(match items.any(is_it) {
                true => Attempt::Done(events),
                false => Attempt::NotYet(events),
            })
        })
        .await?;
        let encoded = scene.object_in(&a, "secret/shared").await?["data"]["value"].clone();
        let encoded = encoded.as_str().unwrap_or_default();
        ensure!(!encoded.is_empty());
        for (what, text) in [
            ("log", scene.operator.log()?),
            ("log of the operator", scene.other()?.log()?),
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
