//! Whoever stops in the middle, and whatever a watch misses, no copy is left behind.

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use pod_reloader_e2e::proxy::{Fault, Requests, Rule, RuleInForce, error_event};
use pod_reloader_e2e::{Options, PATIENCE, Scene, full};
use serde_json::{Value, json};

use super::{
    Namespaces, applied_sync, apply_sync, becomes, copying, difference, has_copy, has_none, play,
    shown, source, sync, writes,
};

/// An operator that is killed, and an apiserver that cannot be reached for a while, in the middle of writes of each kind.
#[tokio::test]
async fn a_pass_that_is_broken_off_in_the_middle_leaves_nothing_undone() -> Result<()> {
    let each = if full() { 500 } else { 4 };
    let options = Options {
        proxied: true,
        ..copying(Value::Null)
    };
    play(options, async |scene| {
        let namespaces = Namespaces::of(scene);
        let early = namespaces.create_many(EARLY, each).await?;
        let late = namespaces.create_many(LATE, each).await?;
        let all = [early, late].concat();
        scene.apply(&[source("0")]).await?;
        let nowhere = json!({"spec": {"namespaceSelector": {"matchLabels": {"none": "x"}}}});
        let [all_of_them, none] = [sync(scene, "all", json!({})), sync(scene, "all", nowhere)];
        for broken in [Broken::Operator, Broken::Apiserver] {
            let (created, replaced) = match broken {
                Broken::Operator => ("0", "1"),
                Broken::Apiserver => ("1", "2"),
            };
            let mark = scene.mark().await?;
            let write = async || apply_sync(scene, &all_of_them).await;
            broken.in_the_middle_of(scene, Method::POST, write).await?;
            for namespace in &all {
                has_copy(scene, namespace, created).await?;
            }
            let write = async || scene.apply(&[source(replaced)]).await.map(drop);
            broken.in_the_middle_of(scene, Method::PUT, write).await?;
            for namespace in &all {
                has_copy(scene, namespace, replaced).await?;
            }
            becomes(scene, &all_of_them, "Synced").await?;
            let mut deleted = writes(scene, mark).await?;
            deleted.retain(|it| it.verb == "delete");
            ensure!(deleted.is_empty(), "{:?}", shown(&deleted));

            let write = async || apply_sync(scene, &none).await;
            broken
                .in_the_middle_of(scene, Method::DELETE, write)
                .await?;
            for namespace in &all {
                has_none(scene, namespace).await?;
            }
            becomes(scene, &none, "Synced").await?;
        }
        Ok(())
    })
    .await
}

/// What breaks while copies are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Operator,
    Apiserver,
}

impl Broken {
    /// Breaks it when some of the early copies have been written as a consequence of `write`, and none of the late ones
    /// can be, and repairs it.
    async fn in_the_middle_of(
        self,
        scene: &Scene,
        method: Method,
        write: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        let proxy = scene.proxy.as_ref().context("the scene is proxied")?;
        let begun = proxy.add(Rule::count(copies(scene, EARLY, &method)));
        let late = |fault| proxy.add(Rule::new(copies(scene, LATE, &method), fault));
        let is_in_the_middle = async |held: &RuleInForce| {
            // When the next write comes, one of those before it is over.
            begun.applied(AT_ONCE + 1, PATIENCE).await?;
            held.applied(1, PATIENCE).await?;
            begun.remove();
            anyhow::Ok(())
        };
        match self {
            Self::Operator => {
                let held = late(Fault::Hang);
                write().await?;
                is_in_the_middle(&held).await?;
                scene.operator.process().kill().await;
                held.remove();
                scene.operator.start_again().await
            }
            Self::Apiserver => {
                // What is held is still written in the end, without an answer.
                let held = late(Fault::Delay(PATIENCE));
                let lost = late(Fault::LoseAnswer);
                write().await?;
                is_in_the_middle(&held).await?;
                let [watches, calls] =
                    [Requests::any().watches(), Requests::any().except_watches()]
                        .map(|requests| proxy.add(Rule::new(requests, Fault::Reset)));
                let cut = proxy.cut_once_open(&Requests::any()).await?;
                held.remove();
                lost.remove();
                watches.applied(cut as u64, PATIENCE).await?;
                calls.applied(1, PATIENCE).await?;
                watches.remove();
                calls.remove();
                Ok(())
            }
        }
    }
}

/// The number of copies that the operator writes at once.
const AT_ONCE: u64 = 2;
/// Begins the suffix of the namespaces whose turn comes first: they are in the order of their names.
const EARLY: &str = "early";
/// Begins the suffix of the others.
const LATE: &str = "late";

#[tokio::test]
async fn another_leader_takes_over_and_a_watch_that_breaks_misses_nothing() -> Result<()> {
    let options = Options {
        proxied: true,
        replicas: 2,
        ..copying(Value::Null)
    };
    play(options, async |scene| {
        let namespaces = Namespaces::of(scene);
        let [a, b] = namespaces.create_each(["a", "b"]).await?;
        scene.apply(&[source("1")]).await?;
        let ours = applied_sync(scene, "all", json!({})).await?;
        has_copy(scene, &a, "1").await?;
        has_copy(scene, &b, "1").await?;
        let leader = scene.leader().await?;
        // The content is too old to go on from, as after a compaction.
        let watched = Requests::any().watches().query("metadata.name");
        let gone = error_event(StatusCode::GONE);
        leader.proxy()?.inject_once_open(&watched, gone).await?;
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

/// Returns the writes of copies in the namespaces of the scene whose suffix begins with `part`.
fn copies(scene: &Scene, part: &str, method: &Method) -> Requests {
    let namespaces = format!("/namespaces/{}-{part}-", scene.namespace);
    Requests::containing(namespaces).method(method.clone())
}
