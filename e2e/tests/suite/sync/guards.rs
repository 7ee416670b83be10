//! Policies bound who may have an object copied, and what the operator may write.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Request};
use kube::{Api, Client};
use pod_reloader_e2e::{Attempt, PATIENCE, Scene, wait_for};
use serde_json::{Value, json};

use super::{
    COPY_OF, Namespaces, SEAL, SHARED, SYNCS, applied_sync, apply_sync, becomes, copying, has_copy,
    name_of, play, read_sync, secrets, source, sync,
};
use crate::bind::guards::refusal;

#[tokio::test]
async fn only_who_may_read_the_source_may_have_it_copied() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        scene.apply(&[source("1")]).await?;
        let user = format!("{}-author", scene.namespace);
        let role = json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": user},
                "rules": [{"apiGroups": ["pod-reloader.github.io"], "resources": ["clusterconfigsyncs"], "verbs": ["*"]}],
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
                "subjects": [{"kind": "User", "name": user}],
            },
        ]});
        let apply = ["apply", "--filename=-"];
        scene.kubectl_with_input(&apply, &role.to_string()).await?;
        let outcome = async {
            let author = scene.control_plane.client_as(&user).await?;
            let ours = sync(scene, "all", json!({}));
            let words = format!("you may not get Secret {}/{SHARED}", scene.namespace);
            // The policy of another test may be in force before ours, and go. A connection may break.
            wait_for("the author to be refused", PATIENCE, async || {
                let params = PostParams { dry_run: true, ..PostParams::default() };
                let create = Request::new(SYNCS).create(&params, ours.to_string().into_bytes())?;
                Ok(match refusal(&author, create).await {
                    Ok(Some(told)) if told.contains(&words) => Attempt::Done(()),
                    told => Attempt::NotYet(format!("{told:?}")),
                })
            })
            .await?;
            // By an administrator, and then changed by the author: most metadata is free.
            apply_sync(scene, &ours).await?;
            let keys = json!({"spec": {"keys": ["value"]}});
            wait_for("a change by the author to be refused", PATIENCE, async || {
                let tried = PatchParams::default().dry_run();
                Ok(match patched(&author, &ours, &keys, &tried).await {
                    Ok(Some(told)) if told.contains(&words) => Attempt::Done(()),
                    told => Attempt::NotYet(format!("{told:?}")),
                })
            })
            .await?;
            let params = PatchParams::default();
            let harmless = json!({"metadata": {"labels": {"more": "x"}, "annotations": {"example.com/note": "x"}}});
            let told = patched(&author, &ours, &harmless, &params).await?;
            ensure!(told.is_none(), "{told:?}");
            metadata_that_decides_is_refused(scene, &ours, &author).await?;
            let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [SHARED], "verbs": ["get"]}]);
            scene.grant(&scene.namespace, &user, "reader", &rules).await?;
            wait_for("the author to be allowed", PATIENCE, async || {
                Ok(match patched(&author, &ours, &keys, &params).await {
                    Ok(None) => Attempt::Done(()),
                    told => Attempt::NotYet(format!("{told:?}")),
                })
            })
            .await?;
            // What the schema rules out.
            for (fields, words) in [
                (json!({"spec": {"source": {"name": "other"}}}), "the source cannot be changed"),
                (json!({"spec": {"keys": ["a/b"]}}), "spec.keys[0]"),
                (json!({"spec": {"deletionPolicy": "Keep"}}), "Unsupported value"),
                (json!({"spec": {"template": {"metadata": {"annotations": {COPY_OF: "a/b@c"}}}}}), "annotations of pod-reloader"),
                (json!({"spec": {"template": {"metadata": {"labels": {"pod-reloader.cs.sap.com/kept": "true"}}}}}), "labels of pod-reloader"),
                (json!({"spec": {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}), "In and NotIn need values"),
            ] {
                let wrong = sync(scene, "all", fields);
                is_refused_with(scene, &wrong, words).await?;
            }
            let root_ca = json!({"spec": {"source": {"kind": "ConfigMap", "name": "kube-root-ca.crt"}}});
            is_refused_with(scene, &sync(scene, "ca", root_ca), "Kubernetes itself").await
        };
        let outcome = outcome.await;
        for kind in ["clusterrole", "clusterrolebinding"] {
            scene.kubectl(&["delete", kind, &user]).await?;
        }
        outcome
    })
    .await
}

/// With an owner that is not there, the garbage collector would delete it, and then all copies.
async fn metadata_that_decides_is_refused(
    scene: &Scene,
    sync: &Value,
    author: &Client,
) -> Result<()> {
    let nobody = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "none",
        "uid": "00000000-0000-0000-0000-000000000000"}]);
    let name = format!("clusterconfigsync/{}", name_of(sync)?);
    scene
        .annotate(&name, "pod-reloader.cs.sap.com/there=x")
        .await?;
    for metadata in [
        json!({"ownerReferences": nobody}),
        json!({"finalizers": ["example.com/stay"]}),
        json!({"annotations": {"pod-reloader.cs.sap.com/any": "x"}}),
        json!({"annotations": {"pod-reloader.cs.sap.com/there": null}}),
        json!({"labels": {"pod-reloader.cs.sap.com/any": "x"}}),
    ] {
        let patch = json!({"metadata": metadata});
        let told = patched(author, sync, &patch, &PatchParams::default()).await?;
        let words = "so you may not change owners, finalizers or marks of what has it copied";
        let is_refused = told.as_ref().is_some_and(|it| it.contains(words));
        ensure!(is_refused, "{metadata}: {told:?}");
    }
    Ok(())
}

/// Asserts that an administrator is refused with these words.
async fn is_refused_with(scene: &Scene, sync: &Value, words: &str) -> Result<()> {
    let refused = apply_sync(scene, sync).await.err();
    let told = refused
        .map(|error| format!("{error:#}"))
        .unwrap_or_default();
    ensure!(told.contains(words), "{words}: {told}");
    Ok(())
}

/// Patches a ClusterConfigSync. Returns the words in which that is refused, if it is.
async fn patched(
    client: &Client,
    sync: &Value,
    patch: &Value,
    params: &PatchParams,
) -> Result<Option<String>> {
    let patch = Request::new(SYNCS).patch(name_of(sync)?, params, &Patch::Merge(patch))?;
    refusal(client, patch).await
}

#[tokio::test]
async fn the_writers_token_writes_copies_and_nothing_else() -> Result<()> {
    play(copying(json!({"pin": {"enabled": true}})), async |scene| {
        let namespaces = Namespaces::of(scene);
        let a = namespaces.create("a", true).await?;
        let b = namespaces.create("b", false).await?;
        scene.apply(&[source("1")]).await?;
        let ours = applied_sync(scene, "all", json!({})).await?;
        has_copy(scene, &a, "1").await?;
        becomes(scene, &ours, "Synced").await?;
        scene.operator.stop().await;
        let client = scene.operators_client().await?;
        let mark = |namespace: &str| {
            let mark = format!("{}/{SHARED}@{namespace}", scene.namespace);
            json!({COPY_OF: mark, SEAL: "0".repeat(32)})
        };
        let own = scene.installation.namespace.clone();
        // An owner that is there: the garbage collector is quick.
        let root = scene.object_in(&b, "configmap/kube-root-ca.crt").await?["metadata"]["uid"].clone();
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt", "uid": root}]);
        // What it may create.
        for (namespace, fields, is_allowed) in [
            (&b, json!({"metadata": {"annotations": mark(&b)}}), true),
            (&b, json!({}), false),
            (&b, json!({"metadata": {"annotations": {COPY_OF: mark(&b)[COPY_OF]}}}), false),
            (&b, json!({"metadata": {"annotations": mark(&a)}}), false),
            (&b, json!({"metadata": {"ownerReferences": owner}}), false),
            (&b, json!({"metadata": {"annotations": mark(&b)}, "type": "helm.sh/release.v1"}), false),
            (&b, json!({"metadata": {"annotations": {COPY_OF: mark(&b)[COPY_OF], SEAL: mark(&b)[SEAL], "kubernetes.io/service-account.name": "default"}}, "type": "kubernetes.io/service-account-token"}), false),
            (&own, json!({"metadata": {"annotations": mark(&own)}}), false),
            (&own, json!({}), false),
        ] {
            let secret = secret_with("probe", fields.clone())?;
            let params = PostParams { dry_run: true, ..PostParams::default() };
            let created = Api::<Secret>::namespaced(client.clone(), namespace).create(&params, &secret).await;
            answered(created.map(drop), is_allowed, &format!("create in {namespace}: {fields}"))?;
        }
        let uid = read_sync(scene, name_of(&ours)?).await?["metadata"]["uid"].clone();
        let of_sync = json!([{"apiVersion": "pod-reloader.github.io/v1alpha1", "kind": "ClusterConfigSync", "name": name_of(&ours)?, "uid": uid}]);
        // What it may overwrite and delete.
        for (name, fields, is_allowed) in [
            ("copy", json!({"metadata": {"annotations": mark(&b)}}), true),
            ("stripped", json!({"metadata": {"ownerReferences": of_sync}}), false),
            ("foreign", json!({}), false),
            ("owned", json!({"metadata": {"ownerReferences": owner}}), false),
            ("cloned", json!({"metadata": {"annotations": mark(&a)}}), false),
            ("release", json!({"type": "helm.sh/release.v1"}), false),
        ] {
            let secret = secret_with(name, fields)?;
            let stored = secrets(scene, &b).create(&PostParams::default(), &secret).await?;
            let mut marked = stored.clone();
            let annotations = serde_json::from_value(mark(&b))?;
            marked.metadata.annotations = Some(annotations);
            let api: Api<Secret> = Api::namespaced(client.clone(), &b);
            let params = PostParams { dry_run: true, ..PostParams::default() };
            answered(api.replace(name, &params, &marked).await.map(drop), is_allowed, &format!("replace {name}"))?;
            let params = DeleteParams { dry_run: true, ..DeleteParams::default() };
            answered(api.delete(name, &params).await.map(drop), is_allowed, &format!("delete {name}"))?;
        }
        config_maps(scene, &client, &b).await
    })
    .await
}

/// Copies of ClusterConfigSyncs are those of the writer, and those of pins are those of the operator.
async fn config_maps(scene: &Scene, client: &Client, namespace: &str) -> Result<()> {
    use k8s_openapi::api::core::v1::ConfigMap;
    let mark = json!({COPY_OF: format!("x/y@{namespace}"), SEAL: "0".repeat(32)});
    let pinned = json!({"pod-reloader.cs.sap.com/copy-of": "app"});
    let label = json!({"pod-reloader.cs.sap.com/copy": "true"});
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let operator = scene.client_of(scene.others_installation()?).await?;
    let as_operator: Api<ConfigMap> = Api::namespaced(operator, namespace);
    let as_admin: Api<ConfigMap> = Api::namespaced(scene.client.clone(), namespace);
    for (name, metadata, immutable, is_writers, is_operators) in [
        ("synced", json!({"annotations": mark}), false, true, false),
        (
            "app-0123456789",
            json!({"annotations": pinned, "labels": label}),
            true,
            false,
            true,
        ),
        ("theirs", json!({}), false, false, false),
    ] {
        let mut object = json!({"metadata": metadata, "immutable": immutable, "data": {"a": "b"}});
        object["metadata"]["name"] = json!(name);
        let object: ConfigMap = serde_json::from_value(object)?;
        let stored = as_admin.create(&PostParams::default(), &object).await?;
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let replaced = api.replace(name, &params, &stored).await.map(drop);
        answered(replaced, is_writers, &format!("replace {name}"))?;
        let params = DeleteParams {
            dry_run: true,
            ..DeleteParams::default()
        };
        let deleted = api.delete(name, &params).await.map(drop);
        answered(deleted, is_writers, &format!("delete {name}"))?;
        let deleted = as_operator.delete(name, &params).await.map(drop);
        let what = format!("delete {name} as the operator");
        answered(deleted, is_operators, &what)?;
    }
    Ok(())
}

fn secret_with(name: &str, fields: Value) -> Result<Secret> {
    let mut object =
        json!({"metadata": {"name": name}, "type": "Opaque", "stringData": {"a": "b"}});
    pod_reloader_e2e::merge(&mut object, &fields);
    Ok(serde_json::from_value(object)?)
}

/// Asserts that a policy has allowed a request, or refused it.
fn answered(answer: kube::Result<()>, is_allowed: bool, what: &str) -> Result<()> {
    let refused = matches!(&answer, Err(kube::Error::Api(status)) if status.message.contains("pod-reloader may only"));
    ensure!(
        refused != is_allowed && answer.is_ok() == is_allowed,
        "{what}: {answer:?}"
    );
    Ok(())
}
