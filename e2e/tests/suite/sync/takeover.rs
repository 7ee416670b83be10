//! Copies that other tools have made become ours where they are, and nobody who uses them notices.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use pod_reloader_e2e::workload::Workload;
use pod_reloader_e2e::{Attempt, PATIENCE, Scene, wait_for};
use serde_json::{Value, json};

use super::{
    COPY_OF, Namespaces, SHARED, applied_sync, becomes, copying, has_copy, name_of, play,
    read_sync, rests, secrets, shown, source, writes,
};

#[tokio::test]
async fn copies_of_other_tools_that_are_marked_become_ours_without_a_restart() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        scene.apply(&[source("1")]).await?;
        let namespaces = Namespaces::of(scene);
        let original = secrets(scene, &scene.namespace).get(SHARED).await?;
        let owner = Api::all(scene.client.clone());
        let owner: k8s_openapi::api::core::v1::Namespace = owner.get(&scene.namespace).await?;
        let uid = owner.uid().context("it has a UID")?;
        let mut copies = Vec::new();
        for (tool, metadata) in left_by_tools(&original, &uid)? {
            let namespace = namespaces.create(tool, true).await?;
            let copy = create(scene, &namespace, metadata, &original).await?;
            copies.push((namespace, copy));
        }
        // Each copy has a consumer that our operator manages.
        let web = Workload::podless("web").lists_secrets(SHARED);
        let managed = format!("sync-test={}", scene.namespace);
        let mut consumers = Vec::new();
        for (namespace, _) in &copies {
            let reference = format!("namespace/{namespace}");
            scene.label(&reference, &managed).await?;
            scene
                .create_all_in(namespace, std::slice::from_ref(&web))
                .await?;
            let before = wait_for("the hash of a consumer", PATIENCE, async || {
                let now = scene.snapshot_in(namespace, &web).await?;
                Ok(match now.key {
                    Some(_) => Attempt::Done(now),
                    None => Attempt::NotYet("none".to_owned()),
                })
            });
            consumers.push(before.await?);
        }

        let mark = scene.mark().await?;
        for (namespace, _) in &copies {
            let copy_of = format!("{COPY_OF}={}/{SHARED}@{namespace}", scene.namespace);
            let here = format!("--namespace={namespace}");
            let annotate = ["annotate", "secret", SHARED, &here, &copy_of];
            scene.tool().run(&annotate).await?;
        }
        let ours = applied_sync(scene, "all", json!({})).await?;
        let status = becomes(scene, &ours, "Synced").await?;
        ensure!(status["synced"] == copies.len(), "{status}");
        let uid = read_sync(scene, name_of(&ours)?).await?["metadata"]["uid"].clone();
        for (namespace, before) in &copies {
            has_copy(scene, namespace, "1").await?;
            let after = secrets(scene, namespace).get(SHARED).await?;
            ensure!(after.uid() == before.uid(), "{namespace}: another object");
            let owners: Vec<_> = after.owner_references().iter().map(|it| &*it.uid).collect();
            ensure!(
                owners == [uid.as_str().unwrap_or("")],
                "{namespace}: {owners:?}"
            );
        }
        rests(scene, &ours).await?;
        scene.quiet().await?;
        let written = writes(scene, mark).await?;
        let are_updates = written.iter().all(|it| it.verb == "update");
        ensure!(
            are_updates && written.len() == copies.len(),
            "{:?}",
            shown(&written)
        );
        let mut deleted = scene.requests_naming("delete", mark).await?;
        deleted.retain(|it| {
            it.verb.starts_with("delete")
                && it.resource == "secrets"
                && copies
                    .iter()
                    .any(|(namespace, _)| *namespace == it.namespace)
        });
        ensure!(deleted.is_empty(), "{:?}", shown(&deleted));
        for ((namespace, _), before) in copies.iter().zip(&consumers) {
            let after = scene.snapshot_in(namespace, &web).await?;
            ensure!(after == *before, "{namespace}: {before:?} {after:?}");
        }

        // They follow the source from now on, and so do the consumers.
        scene.apply(&[source("2")]).await?;
        for ((namespace, _), before) in copies.iter().zip(&consumers) {
            has_copy(scene, namespace, "2").await?;
            wait_for("a consumer to be restarted", PATIENCE, async || {
                let after = scene.snapshot_in(namespace, &web).await?;
                Ok(match after.new_revisions(before) {
                    1 => Attempt::Done(()),
                    _ => Attempt::NotYet(format!("{namespace}: {before:?} {after:?}")),
                })
            })
            .await?;
        }
        Ok(())
    })
    .await
}

/// Returns the metadata that other tools give to copies of `source`, with a suffix of a namespace for each. `owner` is
/// the UID of the namespace of the source.
fn left_by_tools(source: &Secret, owner: &str) -> Result<Vec<(&'static str, Value)>> {
    let (from, uid) = (source.namespace(), source.uid());
    let from = from.context("it has a namespace")?;
    let uid = uid.context("it has a UID")?;
    let version = source.resource_version().context("it has a version")?;
    let reference = format!("{from}/{SHARED}");
    let applied = source.annotations().clone();
    // v10: Core/ResourceMirror.cs
    let reflected = |is_automatic: &str| {
        json!({"annotations": {
            "reflector.v1.k8s.emberstack.com/auto-reflects": is_automatic,
            "reflector.v1.k8s.emberstack.com/reflects": reference,
            "reflector.v1.k8s.emberstack.com/reflected-version": version,
            "reflector.v1.k8s.emberstack.com/reflected-at": "2026-01-01T00:00:00.0000000+00:00",
        }})
    };
    // v2.12: replicate/secret/secrets.go
    let replicated = json!({
        "replicator.v1.mittwald.de/replicated-at": "2026-01-01T00:00:00Z",
        "replicator.v1.mittwald.de/replicated-from-version": version,
        "replicator.v1.mittwald.de/replicated-keys": "binary,value",
    });
    let mut pulled = json!({"replicator.v1.mittwald.de/replicate-from": reference});
    pod_reloader_e2e::merge(&mut pulled, &replicated);
    // v0.13: pkg/syncer/secret.go
    let mut synced = json!(applied);
    synced["kubed.appscode.com/origin"] = json!(format!(
        r#"{{"namespace":"{from}","name":"{SHARED}","uid":"{uid}","resourceVersion":"{version}"}}"#
    ));
    Ok(vec![
        ("reflector", reflected("True")),
        ("mirror", reflected("False")),
        (
            "replicator",
            json!({
                "labels": {"app.kubernetes.io/part-of": "platform"},
                "annotations": replicated,
                // With keep-owner-references.
                "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": from, "uid": owner}],
            }),
        ),
        ("replica", json!({"annotations": pulled})),
        (
            "kubed",
            json!({
                "labels": {
                    "app.kubernetes.io/part-of": "platform",
                    "kubed.appscode.com/origin.cluster": "unicorn",
                    "kubed.appscode.com/origin.name": SHARED,
                    "kubed.appscode.com/origin.namespace": from,
                },
                "annotations": synced,
            }),
        ),
        // 0.0.14: src/kubernetes_utils.py
        (
            "clustersecret",
            json!({
                "labels": {"clustersecret.io": "true"},
                "annotations": {
                    "clustersecret.io/created-by": "ClusterSecrets",
                    "clustersecret.io/last-sync": "2026-01-01T00:00:00.000000",
                    "clustersecret.io/version": "0.0.14",
                },
            }),
        ),
        // 1.18: pkg/background/generate/clone.go, pkg/background/common/labels.go
        (
            "kyverno",
            json!({
                "labels": {
                    "app.kubernetes.io/managed-by": "kyverno",
                    "app.kubernetes.io/part-of": "platform",
                    "generate.kyverno.io/clone-source": "",
                    "generate.kyverno.io/policy-name": "clone-shared",
                    "generate.kyverno.io/policy-namespace": "",
                    "generate.kyverno.io/rule-name": "clone",
                    "generate.kyverno.io/source-group": "",
                    "generate.kyverno.io/source-kind": "Secret",
                    "generate.kyverno.io/source-namespace": from,
                    "generate.kyverno.io/source-uid": uid,
                    "generate.kyverno.io/source-version": "v1",
                    "generate.kyverno.io/trigger-group": "",
                    "generate.kyverno.io/trigger-kind": "Namespace",
                    "generate.kyverno.io/trigger-namespace": "",
                    "generate.kyverno.io/trigger-uid": owner,
                    "generate.kyverno.io/trigger-version": "v1",
                },
                "annotations": applied,
            }),
        ),
    ])
}

/// Creates a copy of the source with this metadata.
async fn create(
    scene: &Scene,
    namespace: &str,
    mut metadata: Value,
    source: &Secret,
) -> Result<Secret> {
    metadata["name"] = json!(SHARED);
    let copy = Secret {
        metadata: serde_json::from_value(metadata)?,
        data: source.data.clone(),
        type_: source.type_.clone(),
        ..Secret::default()
    };
    let params = PostParams::default();
    Ok(secrets(scene, namespace).create(&params, &copy).await?)
}
