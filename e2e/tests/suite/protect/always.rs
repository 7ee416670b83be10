//! The label `always`: only who may `unprotect` an object changes and deletes it.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Client};
use pod_reloader_e2e::{Attempt, PATIENCE, Scene, wait_for};
use serde_json::{Value, json};

use super::{PROTECT, editor, merged, protected, protecting, refused};

/// An annotation of ours, and not of the protection.
const HOLD: &str = "pod-reloader.cs.sap.com/hold";
const WORDS: &str = "to change or delete it, you need the verb unprotect on it";

#[tokio::test]
async fn only_who_may_unprotect_an_object_touches_it_also_while_no_operator_runs() -> Result<()> {
    Scene::play(protecting(), async |scene| {
        let editor = editor(scene).await?;
        for kind in ["Secret", "ConfigMap"] {
            for name in ["base", "other"] {
                let held = json!({"metadata": {"annotations": {HOLD: "true"}}});
                let object = merged(protected(kind, name, "always"), held);
                scene.apply(&[object]).await?;
            }
        }
        let secrets = ApiResource::erase::<Secret>(&());
        let config_maps = ApiResource::erase::<ConfigMap>(&());
        let resources = [&secrets, &config_maps];
        let apis = resources.map(|it| api(&editor, scene, it));
        for (api, kind) in apis.iter().zip(["Secret", "ConfigMap"]) {
            // Too much for `kubectl apply`.
            let data = json!({"data": {"key": "MTEx".repeat(200_000)}});
            let large = serde_json::from_value(merged(protected(kind, "large", "always"), data))?;
            api.create(&PostParams::default(), &large).await?;
        }
        in_force(&apis[0]).await?;
        for api in &apis {
            touch(api).await?;
        }
        scene.operator.stop().await;
        for api in &apis {
            touch(api).await?;
        }

        unprotects(scene, &["secrets", "configmaps"], "base").await?;
        for api in &apis {
            let change = merge(json!({"data": {"key": "Mg=="}}));
            wait_for("the right to unprotect", PATIENCE, async || {
                Ok(
                    match api.patch("base", &PatchParams::default(), &change).await {
                        Ok(_) => Attempt::Done(()),
                        Err(error) => Attempt::NotYet(error.to_string()),
                    },
                )
            })
            .await?;
            api.delete("base", &DeleteParams::default()).await?;
            let delete = api.delete("other", &DeleteParams::default()).await;
            refused(delete, WORDS, "delete another")?;
            // An object without the label is nobody's concern.
            let unlabelled = merge(json!({"metadata": {"labels": {PROTECT: null}}}));
            let as_admin = api_of_admin(scene, api);
            as_admin
                .patch("other", &PatchParams::default(), &unlabelled)
                .await?;
            api.delete("other", &DeleteParams::default()).await?;
        }
        Ok(())
    })
    .await
}

/// Tries everything that is refused, and what is not.
async fn touch(api: &Api<DynamicObject>) -> Result<()> {
    let name = "base";
    let before = api.get(name).await?;
    let tried = [
        ("data", json!({"data": {"key": "Mg=="}})),
        ("another key", json!({"data": {"more": "Mg=="}})),
        ("immutable", json!({"immutable": true})),
        ("no label", json!({"metadata": {"labels": {PROTECT: null}}})),
        (
            "no annotation of ours",
            json!({"metadata": {"annotations": {HOLD: null}}}),
        ),
        // What would let somebody else write or delete it.
        (
            "the mark of a copy",
            json!({"metadata": {"annotations": {"pod-reloader.cs.sap.com/copy-of": "x/base@y"}}}),
        ),
        (
            "a seal",
            json!({"metadata": {"annotations": {"pod-reloader.cs.sap.com/seal": "0".repeat(32)}}}),
        ),
        (
            "the marks of a pinned copy",
            json!({"metadata": {
                "annotations": {"pod-reloader.cs.sap.com/copy-of": "base"},
                "labels": {"pod-reloader.cs.sap.com/copy": "true"},
            }}),
        ),
        (
            "an owner",
            json!({"metadata": {"ownerReferences": [{
                "apiVersion": "pod-reloader.github.io/v1alpha1",
                "kind": "ClusterConfigSync",
                "name": "any",
                "uid": "00000000-0000-0000-0000-000000000000",
            }]}}),
        ),
        (
            "a finalizer",
            json!({"metadata": {"finalizers": ["example.com/stay"]}}),
        ),
        (
            "another value",
            json!({"metadata": {"labels": {PROTECT: "in-use"}}}),
        ),
    ];
    for (what, change) in tried {
        for dry_run in [true, false] {
            let params = PatchParams {
                dry_run,
                ..PatchParams::default()
            };
            refused(
                api.patch(name, &params, &merge(change.clone())).await,
                WORDS,
                what,
            )?;
        }
    }
    for dry_run in [true, false] {
        let params = DeleteParams {
            dry_run,
            ..DeleteParams::default()
        };
        refused(api.delete(name, &params).await, WORDS, "delete")?;
        let all = ListParams::default().labels(PROTECT);
        refused(
            api.delete_collection(&params, &all).await,
            WORDS,
            "delete all",
        )?;
    }
    ensure!(api.get(name).await? == before);
    // Other metadata is free, and a large object is not too much to compare.
    let note = merge(json!({"metadata": {"annotations": {"note": "x"}, "labels": {"team": "x"}}}));
    for name in [name, "large"] {
        api.patch(name, &PatchParams::default(), &note).await?;
        let data = merge(json!({"data": {"more": "Mg=="}}));
        let changed = api.patch(name, &PatchParams::default(), &data).await;
        refused(changed, WORDS, name)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_namespace_with_something_that_is_always_protected_is_refused_before_it_is_touched()
-> Result<()> {
    Scene::play(protecting(), async |scene| {
        let editor = editor(scene).await?;
        let namespaces: Api<Namespace> = Api::all(editor.clone());
        let name = &*scene.namespace;
        let delete = DeleteParams::default();
        // The label on the namespace itself.
        let label = |value: Value| merge(json!({"metadata": {"labels": {PROTECT: value}}}));
        let as_admin: Api<Namespace> = Api::all(scene.client.clone());
        as_admin.patch(name, &PatchParams::default(), &label(json!("always"))).await?;
        let params = PatchParams::default();
        wait_for("the policy to be in force", PATIENCE, async || {
            let params = params.clone().dry_run();
            Ok(match namespaces.patch(name, &params, &label(Value::Null)).await {
                Ok(_) => Attempt::NotYet("it was allowed".to_owned()),
                Err(_) => Attempt::Done(()),
            })
        })
        .await?;
        refused(namespaces.delete(name, &delete).await, WORDS, "delete")?;
        let unlabel = label(Value::Null);
        refused(namespaces.patch(name, &params, &unlabel).await, WORDS, "no label")?;
        refused(namespaces.patch_status(name, &params, &unlabel).await, WORDS, "no label by status")?;
        as_admin.patch(name, &params, &unlabel).await?;

        // An object in it.
        let objects = ["Secret", "ConfigMap"].map(|kind| protected(kind, "base", "always"));
        scene.apply(&objects).await?;
        scene.apply(&[json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "free"}})]).await?;
        for (kind, resource) in [("ConfigMap", "configmaps"), ("Secret", "secrets")] {
            let words = format!("{kind} base in the namespace has the label {PROTECT}=always: to delete the namespace");
            wait_for("the namespace to be refused", PATIENCE, async || {
                let params = delete.clone().dry_run();
                let answer = namespaces.delete(name, &params).await;
                Ok(Attempt::from(refused(answer, &words, "dry run")))
            })
            .await?;
            refused(namespaces.delete(name, &delete).await, &words, kind)?;
            let now = as_admin.get(name).await?;
            ensure!(now.metadata.deletion_timestamp.is_none());
            for object in ["secret/base", "secret/free", "configmap/base"] {
                scene.object(object).await.context("nothing in it was touched")?;
            }
            unprotects(scene, &[resource], "base").await?;
        }
        wait_for("who may unprotect both to be allowed", PATIENCE, async || {
            let params = delete.clone().dry_run();
            Ok(match namespaces.delete(name, &params).await {
                Ok(_) => Attempt::Done(()),
                Err(error) => Attempt::NotYet(error.to_string()),
            })
        })
        .await?;
        // Once it is being deleted, everybody may delete what is in it, and everything goes.
        let held = protected("Secret", "held", "always");
        let held = merged(held, json!({"metadata": {"finalizers": ["example.com/held"]}}));
        scene.apply(&[held]).await?;
        as_admin.delete(name, &delete).await?;
        let secrets: Api<Secret> = Api::namespaced(editor.clone(), name);
        wait_for("the deletion to be seen", PATIENCE, async || {
            Ok(match secrets.delete("held", &delete).await {
                Ok(_) => Attempt::Done(()),
                Err(error) => Attempt::NotYet(error.to_string()),
            })
        })
        .await?;
        let released = merge(json!({"metadata": {"finalizers": null}}));
        secrets.patch("held", &params, &released).await?;
        wait_for("the namespace to go completely", PATIENCE, async || {
            Ok(match as_admin.get_opt(name).await? {
                None => Attempt::Done(()),
                Some(left) => Attempt::NotYet(format!("{:?}", left.status)),
            })
        })
        .await
    })
    .await
}

fn merge(change: Value) -> Patch<Value> {
    Patch::Merge(change)
}

fn api(client: &Client, scene: &Scene, resource: &ApiResource) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), &scene.namespace, resource)
}

fn api_of_admin(scene: &Scene, api: &Api<DynamicObject>) -> Api<DynamicObject> {
    let kind = match api.resource_url().ends_with("secrets") {
        true => ApiResource::erase::<Secret>(&()),
        false => ApiResource::erase::<ConfigMap>(&()),
    };
    Api::namespaced_with(scene.client.clone(), &scene.namespace, &kind)
}

async fn in_force(api: &Api<DynamicObject>) -> Result<()> {
    wait_for("the policy to be in force", PATIENCE, async || {
        let params = DeleteParams::default().dry_run();
        Ok(
            match refused(api.delete("base", &params).await, WORDS, "probe") {
                Ok(()) => Attempt::Done(()),
                Err(error) => Attempt::NotYet(error.to_string()),
            },
        )
    })
    .await
}

/// Gives the editor the verb on the object with a name.
async fn unprotects(scene: &Scene, resources: &[&str], name: &str) -> Result<()> {
    let role = format!("unprotect-{}", resources.join("-"));
    let rules = json!([{
        "apiGroups": [""], "resources": resources, "resourceNames": [name], "verbs": ["unprotect"],
    }]);
    let namespace = &scene.namespace;
    scene.grant(namespace, "editor", &role, &rules).await
}
