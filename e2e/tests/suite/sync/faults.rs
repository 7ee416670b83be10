//! Whoever stops in the middle, and whatever a watch misses, no copy is left behind.

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use pod_reloader_e2e::proxy::{Fault, Requests, Rule, error_event};
use pod_reloader_e2e::{Options, PATIENCE};
use serde_json::{Value, json};

use super::{
    Namespaces, apply_sync, becomes, copying, difference, has_copy, has_none, play, source, sync,
};

#[tokio::test]
async fn an_operator_that_is_killed_in_the_middle_leaves_nothing_undone() -> Result<()> {
    let options = Options {
        proxied: true,
        ..copying(Value::Null)
    };
    play(options, async |scene| {
        let namespaces = Namespaces::of(scene);
        let mut all = Vec::new();
        for number in 0..24 {
            all.push(namespaces.create(&number.to_string(), true).await?);
        }
        scene.apply(&[source("1")]).await?;
        let ours = sync(scene, "all", json!({}));
        let proxy = scene.proxy.as_ref().context("the scene is proxied")?;
        // Created, replaced, deleted.
        for (method, step) in [(Method::POST, 0), (Method::PUT, 1), (Method::DELETE, 2)] {
            let held = proxy.add(Rule::new(copies(method), Fault::Hang));
            match step {
                0 => apply_sync(scene, &ours).await?,
                1 => scene.apply(&[source("2")]).await?,
                _ => {
                    let none =
                        json!({"spec": {"namespaceSelector": {"matchLabels": {"none": "x"}}}});
                    apply_sync(scene, &sync(scene, "all", none)).await?;
                }
            }
            held.applied(4, PATIENCE).await?;
            scene.operator.process().kill().await;
            held.remove();
            scene.operator.start_again().await?;
            for namespace in &all {
                match step {
                    0 => has_copy(scene, namespace, "1").await?,
                    1 => has_copy(scene, namespace, "2").await?,
                    _ => has_none(scene, namespace).await?,
                }
            }
        }
        becomes(scene, &ours, "Synced").await.map(drop)
    })
    .await
}

#[tokio::test]
async fn another_leader_takes_over_and_a_watch_that_breaks_misses_nothing() -> Result<()> {
    let options = Options {
        proxied: true,
        replicas: 2,
        ..copying(Value::Null)
    };
    play(options, async |scene| {
        let namespaces = Namespaces::of(scene);
        let [a, b] = [
            namespaces.create("a", true).await?,
            namespaces.create("b", true).await?,
        ];
        scene.apply(&[source("1")]).await?;
        let ours = sync(scene, "all", json!({}));
        apply_sync(scene, &ours).await?;
        has_copy(scene, &a, "1").await?;
        has_copy(scene, &b, "1").await?;
        let leader = scene.leader().await?;
        // The content is too old to go on from, as after a compaction.
        let watched = Requests::any().watches().query("metadata.name");
        let gone = error_event(StatusCode::GONE);
        ensure!(
            leader.proxy()?.inject(&watched, gone) > 0,
            "nothing is watched"
        );
        scene.apply(&[source("2")]).await?;
        has_copy(scene, &a, "2").await?;
        leader.operator.process().kill().await;
        scene.apply(&[source("3")]).await?;
        namespaces.select(&b, false).await?;
        has_copy(scene, &a, "3").await?;
        has_none(scene, &b).await?;
        ensure!(difference(scene, &a, "3").await?.is_none());
        becomes(scene, &ours, "Synced").await.map(drop)
    })
    .await
}

/// Returns the writes of copies.
fn copies(method: Method) -> Requests {
    Requests::containing("/secrets").method(method)
}
