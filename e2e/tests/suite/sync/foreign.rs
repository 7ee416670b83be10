//! What is not ours is never touched, and what is ours goes or stays as it was asked for.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use pod_reloader_e2e::Scene;
use serde_json::{Value, json};

use crate::plugin;

use super::{
    COPY_OF, Namespaces, SHARED, apply_sync, becomes, conflicts, copying, delete_sync, has_copy,
    has_none, play, secrets, source, sync,
};

#[tokio::test]
async fn an_object_of_somebody_else_keeps_every_byte_and_is_followed_once_it_goes() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        let [theirs, ours, cloned] = [
            namespaces.create("a-theirs", true).await?,
            namespaces.create("b-ours", true).await?,
            namespaces.create("c-cloned", true).await?,
        ];
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
        let status = becomes(scene, &sync, "Conflict").await?;
        let expected = [(&*theirs, "ExistsNotOurs"), (&*cloned, "ExistsNotOurs")];
        conflicts(&status, &expected)?;
        plugin::syncs::are_shown(scene, &sync, &ours, &expected).await?;
        same().await?;

        scene.apply(&[source("2")]).await?;
        has_copy(scene, &ours, "2").await?;
        same().await?;
        scene.operator.stop().await;
        scene.operator.start_again().await?;
        scene.apply(&[source("3")]).await?;
        has_copy(scene, &ours, "3").await?;
        same().await?;
        scene.kubectl(&["delete", "secret", SHARED]).await?;
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
        let [a, b, c] = [
            namespaces.create("a", true).await?,
            namespaces.create("b", true).await?,
            namespaces.create("c", true).await?,
        ];
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
        secrets(scene, &b)
            .delete(SHARED, &DeleteParams::default())
            .await?;
        create(
            scene,
            &b,
            json!({COPY_OF: format!("{}/{SHARED}@{b}", scene.namespace)}),
        )
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

async fn read(scene: &Scene, namespace: &str) -> Result<Secret> {
    Ok(secrets(scene, namespace).get(SHARED).await?)
}
