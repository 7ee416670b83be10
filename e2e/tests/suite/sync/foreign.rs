//! What is not ours is never touched, and what is ours goes or stays as it was asked for.

use anyhow::{Result, ensure};
use http::Request;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use pod_reloader_e2e::{Attempt, PATIENCE, Scene, done_if, wait_for};
use serde_json::{Value, json};

use crate::plugin;

use super::{
    COPY_OF, Namespaces, SEAL, SHARED, applied_sync, apply_sync, becomes, conflicts, copying,
    delete_sync, has_copy, has_none, name_of, play, read_sync, rests, secrets, source, sync,
};

#[tokio::test]
async fn an_object_of_somebody_else_keeps_every_byte_and_is_followed_once_it_goes() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        let names = ["a-theirs", "b-ours", "c-cloned"];
        let [theirs, ours, cloned] = namespaces.create_each(names).await?;
        create(scene, &theirs, json!({})).await?;
        scene.apply(&[source("1")]).await?;
        let sync = sync(scene, "all", json!({}));
        let before = read(scene, &theirs).await?;
        let same = async || -> Result<()> {
            let now = read(scene, &theirs).await?;
            ensure!(now == before, "{now:?} {before:?}");
            Ok(())
        };
        // A copy that somebody has cloned by hand, with its mark and its owner.
        namespaces.select(&cloned, false).await?;
        apply_sync(scene, &sync).await?;
        has_copy(scene, &ours, "1").await?;
        let mut clone = secrets(scene, &ours).get(SHARED).await?;
        clone.metadata.namespace = Some(cloned.clone());
        (clone.metadata.uid, clone.metadata.resource_version) = (None, None);
        // With the owner, the garbage collector would take it in the end.
        clone.metadata.owner_references = None;
        secrets(scene, &cloned)
            .create(&PostParams::default(), &clone)
            .await?;
        let clone = read(scene, &cloned).await?;
        namespaces.select(&cloned, true).await?;
        let expected = [(&*theirs, "ExistsNotOurs"), (&*cloned, "ExistsNotOurs")];
        has_conflicts(scene, &sync, &expected).await?;
        plugin::syncs::are_shown(scene, &sync, &ours, &expected).await?;
        same().await?;

        scene.apply(&[source("2")]).await?;
        has_copy(scene, &ours, "2").await?;
        same().await?;
        scene.operator.restart().await?;
        scene.apply(&[source("3")]).await?;
        has_copy(scene, &ours, "3").await?;
        same().await?;
        scene.delete(&format!("secret/{SHARED}")).await?;
        becomes(scene, &sync, "SourceNotFound").await?;
        has_copy(scene, &ours, "3").await?;
        scene.apply(&[source("4")]).await?;
        has_copy(scene, &ours, "4").await?;
        delete_sync(scene, &sync).await?;
        has_none(scene, &ours).await?;
        same().await?;
        ensure!(
            read(scene, &cloned).await? == clone,
            "the clone was touched"
        );

        apply_sync(scene, &sync).await?;
        has_copy(scene, &ours, "4").await?;
        same().await?;
        for namespace in [&theirs, &cloned] {
            secrets(scene, namespace)
                .delete(SHARED, &DeleteParams::default())
                .await?;
            has_copy(scene, namespace, "4").await?;
        }
        becomes(scene, &sync, "Synced").await.map(drop)
    })
    .await
}

#[tokio::test]
async fn copies_go_or_stay_with_their_sync_also_while_nobody_is_there() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        let [a, b, c] = namespaces.create_each(["a", "b", "c"]).await?;
        scene.apply(&[source("1")]).await?;
        let delete = sync(scene, "all", json!({}));
        let retain = sync(scene, "all", json!({"spec": {"deletionPolicy": "Retain"}}));
        apply_sync(scene, &delete).await?;
        for namespace in [&a, &b, &c] {
            has_copy(scene, namespace, "1").await?;
        }
        // While nobody is there, a namespace leaves, a copy is edited, and the source changes.
        scene.operator.stop().await;
        namespaces.select(&a, false).await?;
        let edit = json!({"metadata": {"labels": {"app": "theirs"}}, "stringData": {"more": "x"}});
        secrets(scene, &b)
            .patch(SHARED, &PatchParams::default(), &Patch::Merge(&edit))
            .await?;
        scene.apply(&[source("2")]).await?;
        scene.operator.start_again().await?;
        has_none(scene, &a).await?;
        has_copy(scene, &b, "2").await?;
        has_copy(scene, &c, "2").await?;
        becomes(scene, &delete, "Synced").await?;

        scene.operator.stop().await;
        delete_sync(scene, &delete).await?;
        has_none(scene, &b).await?;
        has_none(scene, &c).await?;
        scene.operator.start_again().await?;

        apply_sync(scene, &retain).await?;
        has_copy(scene, &b, "2").await?;
        becomes(scene, &retain, "Synced").await?;
        namespaces.select(&c, false).await?;
        becomes(scene, &retain, "Synced").await?;
        scene.operator.stop().await;
        delete_sync(scene, &retain).await?;
        scene.operator.start_again().await?;
        // It takes up what was left, and leaves alone what it does not select.
        let again = sync(scene, "again", json!({}));
        scene.apply(&[source("3")]).await?;
        apply_sync(scene, &again).await?;
        has_copy(scene, &b, "3").await?;
        has_copy(scene, &c, "2").await
    })
    .await
}

#[tokio::test]
async fn an_object_that_somebody_gives_the_owner_or_the_mark_of_a_copy_is_not_touched() -> Result<()>
{
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        scene.apply(&[source("1")]).await?;
        let ours = applied_sync(scene, "all", json!({})).await?;
        let sealed = namespaces.create("sealed", true).await?;
        has_copy(scene, &sealed, "1").await?;
        let uid = read_sync(scene, name_of(&ours)?).await?["metadata"]["uid"].clone();
        let owner = json!([{"apiVersion": "pod-reloader.github.io/v1alpha1", "kind": "ClusterConfigSync",
            "name": name_of(&ours)?, "uid": uid}]);
        let [owned, marked] = [
            namespaces.create("a-owned", false).await?,
            namespaces.create("b-marked", false).await?,
        ];
        let mark = format!("{}/{SHARED}@{marked}", scene.namespace);
        let mut before = Vec::new();
        for (namespace, annotations) in [(&owned, json!({})), (&marked, json!({COPY_OF: mark}))] {
            create(scene, namespace, json!({})).await?;
            let forge = json!({"metadata": {"annotations": annotations, "ownerReferences": owner}});
            let params = PatchParams::default();
            let theirs = secrets(scene, namespace);
            before.push(theirs.patch(SHARED, &params, &Patch::Merge(&forge)).await?);
        }
        // Where nobody wants a copy, it is not deleted, and where one is wanted, it is not overwritten.
        rests(scene, &ours).await?;
        for namespace in [&owned, &marked] {
            namespaces.select(namespace, true).await?;
        }
        scene.apply(&[source("2")]).await?;
        has_copy(scene, &sealed, "2").await?;
        let expected = [(&*owned, "ExistsNotOurs"), (&*marked, "ExistsNotOurs")];
        has_conflicts(scene, &ours, &expected).await?;
        for (namespace, before) in [&owned, &marked].into_iter().zip(before) {
            let now = read(scene, namespace).await?;
            ensure!(now == before, "{now:?} {before:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn copies_of_an_earlier_version_and_under_earlier_keys_get_seals_and_none_is_deleted()
-> Result<()> {
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        let [a, b, leaves] = namespaces.create_each(["a", "b", "leaves"]).await?;
        scene.apply(&[source("1")]).await?;
        let ours = applied_sync(scene, "all", json!({})).await?;
        for namespace in [&a, &b, &leaves] {
            has_copy(scene, namespace, "1").await?;
        }
        becomes(scene, &ours, "Synced").await?;
        let before = [read(scene, &a).await?, read(scene, &b).await?];
        let are_same = async || -> Result<[Secret; 2]> {
            let now = [read(scene, &a).await?, read(scene, &b).await?];
            for (now, before) in now.iter().zip(&before) {
                ensure!(now.metadata.uid == before.metadata.uid, "{now:?}");
            }
            Ok(now)
        };

        // As an earlier version leaves them. Meanwhile the source changes, and a namespace leaves.
        scene.operator.stop().await;
        let bare = json!({"metadata": {"annotations": {SEAL: null}}});
        for namespace in [&a, &b, &leaves] {
            let (params, patch) = (PatchParams::default(), Patch::Merge(&bare));
            let copies = secrets(scene, namespace);
            copies.patch(SHARED, &params, &patch).await?;
        }
        let name = name_of(&ours)?;
        let status = r#"{"status": {"sealed": null}}"#;
        let patch = ["patch", "clusterconfigsync", name, "--subresource=status"];
        let of_status = ["--type=merge", "--patch", status];
        scene.kubectl(&[&patch[..], &of_status].concat()).await?;
        scene.apply(&[source("2")]).await?;
        namespaces.select(&leaves, false).await?;
        scene.operator.start_again().await?;
        has_none(scene, &leaves).await?;
        for namespace in [&a, &b] {
            has_copy(scene, namespace, "2").await?;
        }
        wait_for("all copies to be sealed", PATIENCE, async || {
            let status = becomes(scene, &ours, "Synced").await?;
            done_if(status["sealed"] == true, status.to_string())
        })
        .await?;
        let sealed = are_same().await?;

        // Another key makes seals from now on, and the one before still verifies them.
        scene.operator.stop().await;
        let keys = scene.installation.hash_keys();
        let keys = format!("secret/{keys}");
        let namespace = &scene.installation.namespace;
        let secret = scene.object_in(namespace, &keys).await?;
        let entries = secret["data"].as_object().into_iter().flatten();
        let mut data = json!({
            "20260102T000000Z": format!("{}a2s=", "a2tr".repeat(10)),
        });
        for (name, key) in entries {
            data["20260101T000000Z"] = key.clone();
            data[name] = Value::Null;
        }
        let data = json!({"data": data});
        scene.merge_in(namespace, &keys, &data).await?;
        scene.operator.start_again().await?;
        wait_for("new seals", PATIENCE, async || {
            let now = are_same().await?;
            let seals =
                |all: &[Secret; 2]| all.clone().map(|it| it.annotations().get(SEAL).cloned());
            let are_new = seals(&now)
                .iter()
                .zip(seals(&sealed))
                .all(|(now, old)| *now != old);
            done_if(are_new, "the same")
        })
        .await?;
        for namespace in [&a, &b] {
            has_copy(scene, namespace, "2").await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn copies_stay_as_they_are_when_somebody_else_has_the_namespace_of_the_source() -> Result<()>
{
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        let from = namespaces.create("from", false).await?;
        let here = namespaces.create("here", true).await?;
        let source_in = async |value: &str| {
            let secret = serde_json::from_value(source(value))?;
            let params = PostParams::default();
            secrets(scene, &from).create(&params, &secret).await?;
            anyhow::Ok(())
        };
        source_in("1").await?;
        let ours = applied_sync(
            scene,
            "all",
            json!({"spec": {"source": {"namespace": from}}}),
        )
        .await?;
        let status = becomes(scene, &ours, "Synced").await?;
        ensure!(status["sealed"] == true, "{status}");

        // At once: in a crowd, it takes the controller of namespaces a minute to find out that one is empty.
        let params = DeleteParams::default();
        secrets(scene, &from).delete(SHARED, &params).await?;
        let all: Api<Namespace> = Api::all(scene.client.clone());
        all.delete(&from, &params).await?;
        let empty = json!({"metadata": {"name": from}, "spec": {"finalizers": []}}).to_string();
        let finalize = format!("/api/v1/namespaces/{from}/finalize");
        wait_for("the namespace to be gone", PATIENCE, async || {
            let put = Request::put(&finalize).header("content-type", "application/json");
            let put = put.body(empty.clone().into_bytes())?;
            Ok(match scene.client.request::<Value>(put).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Attempt::Done(()),
                other => Attempt::NotYet(format!("{other:?}")),
            })
        })
        .await?;
        becomes(scene, &ours, "SourceNotFound").await?;
        namespaces.create("from", false).await?;
        source_in("theirs").await?;
        becomes(scene, &ours, "SourceNamespaceReplaced").await?;
        // Also a new leader knows it.
        scene.operator.restart().await?;
        let late = namespaces.create("late", true).await?;
        wait_for("the new namespace to be counted", PATIENCE, async || {
            let status = becomes(scene, &ours, "SourceNamespaceReplaced").await?;
            done_if(status["selected"] == 2, status.to_string())
        })
        .await?;
        has_none(scene, &late).await?;
        ensure!(value(scene, &here).await? == "1", "it was overwritten");

        let every = json!([{"key": "kubernetes.io/metadata.name", "operator": "Exists"}]);
        let patch = json!({"spec": {"namespaceSelector": {"matchExpressions": every}}}).to_string();
        let patch = [
            "patch",
            "clusterconfigsync",
            name_of(&ours)?,
            "--type=merge",
            "--patch",
            &patch,
        ];
        scene.kubectl(&patch).await?;
        becomes(scene, &ours, "Synced").await?;
        ensure!(value(scene, &here).await? == "theirs", "it is not copied");
        Ok(())
    })
    .await
}

/// Returns the value of the copy in a namespace.
async fn value(scene: &Scene, namespace: &str) -> Result<String> {
    let data = read(scene, namespace).await?.data.unwrap_or_default();
    let value = data.get("value").map(|it| it.0.clone());
    Ok(String::from_utf8(value.unwrap_or_default())?)
}

/// Creates a Secret with the name of the copy, and these annotations.
async fn create(scene: &Scene, namespace: &str, annotations: Value) -> Result<()> {
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": SHARED, "annotations": annotations, "labels": {"app": "theirs"}},
        "stringData": {"theirs": "yes"},
    }))?;
    secrets(scene, namespace)
        .create(&PostParams::default(), &secret)
        .await?;
    Ok(())
}

/// Waits until exactly these namespaces cannot have a copy, for these reasons.
async fn has_conflicts(scene: &Scene, sync: &Value, expected: &[(&str, &str)]) -> Result<()> {
    wait_for("all conflicts", PATIENCE, async || {
        let status = becomes(scene, sync, "Conflict").await?;
        Ok(Attempt::from(conflicts(&status, expected)))
    })
    .await
}

async fn read(scene: &Scene, namespace: &str) -> Result<Secret> {
    Ok(secrets(scene, namespace).get(SHARED).await?)
}
