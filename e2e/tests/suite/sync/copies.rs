//! Copies follow their source and the labels of namespaces, and stay exact.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kube::api::{DeleteParams, Patch, PatchParams};
use pod_reloader_e2e::{
    Attempt, PATIENCE, Scene, done_if, full, lacks_mutating_policies, wait_for,
};
use serde_json::{Value, json};

use super::{
    Namespaces, SEAL, SHARED, applied_sync, apply_sync, are_paced, becomes, copying, delete_sync,
    difference, difference_of, has_copy, has_none, name_of, play, read_sync, rests, secrets, shown,
    source, source_named, sync, writes,
};

#[tokio::test]
async fn copies_come_in_whatever_order_source_namespace_and_sync_are_there() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        // In the first three, each of them comes last once.
        let orders = ["cns", "nsc", "scn", "csn", "ncs", "snc"];
        let count = if full() { orders.len() } else { 3 };
        try_join_all(orders[..count].iter().map(|order| in_order(scene, order)))
            .await
            .map(drop)
    })
    .await
}

/// Creates a ClusterConfigSync, a namespace and a source in this order. They have the name of the order.
async fn in_order(scene: &Scene, order: &str) -> Result<()> {
    let namespaces = Namespaces::of(scene);
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespaces.name(order)}});
    let mut ours = sync(scene, order, json!({"spec": {"source": {"name": order}}}));
    ours["spec"]["namespaceSelector"] = selector;
    for step in order.chars() {
        match step {
            'c' => apply_sync(scene, &ours).await?,
            'n' => drop(namespaces.create(order, false).await?),
            _ => scene.apply(&[source_named(order, "1")]).await?,
        }
    }
    becomes(scene, &ours, "Synced").await?;
    let namespace = namespaces.name(order);
    // It may have been in sync with no namespace, before this one was seen.
    wait_for("the copy to be exact", PATIENCE, async || {
        let difference = difference_of(scene, &namespace, order, "1").await?;
        Ok(match difference {
            None => Attempt::Done(()),
            difference => Attempt::NotYet(format!("{order}: {difference:?}")),
        })
    })
    .await?;
    // It goes with its owner, by the garbage collector.
    delete_sync(scene, &ours).await?;
    wait_for("the copy to go", PATIENCE, async || {
        Ok(
            match secrets(scene, &namespace).get_metadata_opt(order).await? {
                None => Attempt::Done(()),
                Some(copy) => Attempt::NotYet(format!("{:?}", copy.metadata)),
            },
        )
    })
    .await
}

#[tokio::test]
async fn namespaces_are_followed_as_their_labels_change_and_the_status_tells_it() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        let ours = applied_sync(scene, "all", json!({})).await?;
        let status = becomes(scene, &ours, "SourceNotFound").await?;
        ensure!(status["conditions"][0]["status"] == "False", "{status}");
        scene.apply(&[source("1")]).await?;
        let [a, b] = [
            namespaces.create("a", true).await?,
            namespaces.create("b", false).await?,
        ];
        has_copy(scene, &a, "1").await?;
        has_none(scene, &b).await?;
        namespaces.select(&b, true).await?;
        has_copy(scene, &b, "1").await?;
        namespaces.select(&a, false).await?;
        has_none(scene, &a).await?;
        scene.apply(&[source("2")]).await?;
        has_copy(scene, &b, "2").await?;
        rests(scene, &ours).await?;
        let status = becomes(scene, &ours, "Synced").await?;
        ensure!(status["selected"] == 1 && status["synced"] == 1, "{status}");
        let row = scene.kubectl(&["get", "ccs", name_of(&ours)?]).await?;
        for word in ["Secret", SHARED, &scene.namespace, "True", "Synced"] {
            ensure!(row.contains(word), "{row}");
        }
        wait_for("Events about both", PATIENCE, async || {
            let mut events = scene.events_in("default").await?;
            events.retain(|event| event["regarding"]["name"] == ours["metadata"]["name"]);
            let has = |reason: &str| events.iter().any(|event| event["reason"] == reason);
            done_if(
                has("ConfigNotSynced") && has("ConfigSynced"),
                format!("{events:?}"),
            )
        })
        .await?;

        // Some keys, and metadata of one's own.
        let template = json!({"metadata": {"labels": {"team": "x"}, "annotations": {"a": "b"}}});
        let part = json!({"spec": {"keys": ["value"], "template": template}});
        apply_sync(scene, &sync(scene, "all", part)).await?;
        wait_for("a copy of one key", PATIENCE, async || {
            // Its type changes, so it is deleted and created again.
            let copy = match scene.object_in(&b, &format!("secret/{SHARED}")).await {
                Ok(copy) => copy,
                Err(error) => return Ok(Attempt::NotYet(error.to_string())),
            };
            let is_right = copy["data"] == json!({"value": "Mg=="})
                && copy["type"] == "Opaque"
                && copy["metadata"]["labels"]["team"] == "x"
                && copy["metadata"]["annotations"]["a"] == "b";
            done_if(is_right, copy["metadata"].to_string())
        })
        .await?;
        let missing = json!({"spec": {"keys": ["value", "more"]}});
        apply_sync(scene, &sync(scene, "all", missing)).await?;
        becomes(scene, &ours, "KeyNotFound").await?;
        scene
            .object_in(&b, &format!("secret/{SHARED}"))
            .await
            .map(drop)
    })
    .await
}

#[tokio::test]
async fn a_copy_of_some_keys_keeps_the_type_that_promises_no_more() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        let here = Namespaces::of(scene).create("a", true).await?;
        let mut certificate = source("1");
        certificate["type"] = json!("kubernetes.io/tls");
        certificate["stringData"] =
            json!({"tls.crt": "certificate", "tls.key": "key", "ca.crt": "authority"});
        scene.apply(&[certificate]).await?;
        // The last one is made again, because its type changes.
        for (keys, kind) in [
            (&["tls.crt", "tls.key"][..], "kubernetes.io/tls"),
            (&["ca.crt"], "Opaque"),
        ] {
            let part = json!({"spec": {"keys": keys}});
            apply_sync(scene, &sync(scene, "all", part)).await?;
            wait_for("a copy of these keys", PATIENCE, async || {
                let copy = match scene.object_in(&here, &format!("secret/{SHARED}")).await {
                    Ok(copy) => copy,
                    Err(error) => return Ok(Attempt::NotYet(error.to_string())),
                };
                let data = copy["data"].as_object().context("data")?;
                let is_right = copy["type"] == kind
                    && data.len() == keys.len()
                    && keys.iter().all(|key| data.contains_key(*key));
                done_if(is_right, copy["type"].to_string())
            })
            .await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_change_is_one_write_for_each_copy_and_a_restart_is_none() -> Result<()> {
    let count = if full() { 1000 } else { 20 };
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        scene.apply(&[source("1")]).await?;
        let all = namespaces.create_many("many", count).await?;
        let began = Instant::now();
        let ours = applied_sync(scene, "all", json!({})).await?;
        let status = becomes(scene, &ours, "Synced").await?;
        ensure!(status["synced"] == count, "{status}");
        println!("{count} copies after {:?}", began.elapsed());

        let mark = scene.mark().await?;
        let began = Instant::now();
        scene.apply(&[source("2")]).await?;
        has_copy(scene, &all[count - 1], "2").await?;
        rests(scene, &ours).await?;
        let changed = writes(scene, mark).await?;
        println!(
            "{} writes for a change, at rest after {:?}",
            changed.len(),
            began.elapsed()
        );
        ensure!(changed.len() == count, "{:?}", shown(&changed));
        for namespace in &all {
            let difference = difference(scene, namespace, "2").await?;
            ensure!(difference.is_none(), "{namespace}: {difference:?}");
        }

        // What copies do not have, and an operator that knows nothing yet.
        let mark = scene.mark().await?;
        scene
            .label(&format!("secret/{SHARED}"), "some=label")
            .await?;
        rests(scene, &ours).await?;
        scene.operator.stop().await;
        let before = read_sync(scene, name_of(&ours)?).await?;
        scene.operator.start_again().await?;
        let expected = count.to_string();
        scene.shows("pod_reloader_synced_copies", &expected).await?;
        let after = read_sync(scene, name_of(&ours)?).await?;
        ensure!(
            after == before,
            "{after}
{before}"
        );
        rests(scene, &ours).await?;
        let written = writes(scene, mark).await?;
        ensure!(written.is_empty(), "{:?}", shown(&written));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn whatever_is_done_to_a_copy_it_is_exact_again() -> Result<()> {
    play(copying(Value::Null), async |scene| {
        let namespaces = Namespaces::of(scene);
        scene.apply(&[source("1")]).await?;
        let ours = applied_sync(scene, "all", json!({})).await?;
        let merged = [
            ("edited", json!({"data": {"value": "eA==", "more": "eA=="}})),
            ("emptied", json!({"data": null})),
            ("unlabelled", json!({"metadata": {"labels": null}})),
            (
                "unsealed",
                json!({"metadata": {"annotations": {SEAL: null}}}),
            ),
            ("orphaned", json!({"metadata": {"ownerReferences": null}})),
            (
                "labelled",
                json!({"metadata": {"labels": {"argocd.argoproj.io/instance": "x"}}}),
            ),
            ("immutable", json!({"immutable": true})),
        ];
        let mut all = Vec::new();
        for (name, _) in &merged {
            all.push(namespaces.create(name, true).await?);
        }
        let deleted = namespaces.create("deleted", true).await?;
        for namespace in all.iter().chain([&deleted]) {
            has_copy(scene, namespace, "1").await?;
        }
        let mark = scene.mark().await?;
        let mut slowest = Duration::ZERO;
        for ((name, patch), namespace) in merged.iter().zip(&all) {
            let (secrets, params) = (secrets(scene, namespace), PatchParams::default());
            let patched = secrets.patch(SHARED, &params, &Patch::Merge(patch)).await;
            patched.with_context(|| (*name).to_owned())?;
            slowest = slowest.max(exact_again(scene, namespace).await?);
        }
        secrets(scene, &deleted)
            .delete(SHARED, &DeleteParams::default())
            .await?;
        slowest = slowest.max(exact_again(scene, &deleted).await?);
        println!("exact again within {slowest:?}");
        rests(scene, &ours).await?;
        let written = writes(scene, mark).await?;
        ensure!(written.len() <= merged.len() + 6, "{:?}", shown(&written));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_copy_that_somebody_deletes_in_a_loop_makes_no_storm() -> Result<()> {
    const DELETIONS: usize = 4;
    play(copying(Value::Null), async |scene| {
        scene.apply(&[source("1")]).await?;
        let mark = scene.mark().await?;
        let ours = applied_sync(scene, "all", json!({})).await?;
        let namespace = Namespaces::of(scene).create("a", true).await?;
        has_copy(scene, &namespace, "1").await?;
        let mut deletions = 0;
        wait_for(
            "the copy to come back each time",
            PATIENCE * 2,
            async || {
                let copies = secrets(scene, &namespace);
                match copies.delete(SHARED, &DeleteParams::default()).await {
                    Ok(_) => deletions += 1,
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(error) => return Err(error.into()),
                }
                done_if(deletions == DELETIONS, format!("{deletions} deletions"))
            },
        )
        .await?;
        has_copy(scene, &namespace, "1").await?;
        rests(scene, &ours).await?;
        let written = writes(scene, mark).await?;
        ensure!(
            written.len() == 1 + DELETIONS,
            "not one for each deletion: {:?}",
            shown(&written)
        );
        // The pause is measured from some moment between the write before and the one before that.
        let pauses = written.windows(3).map(|three| {
            let pause = three[2].received.duration_since(three[0].received);
            Ok(Duration::try_from(pause)?)
        });
        are_paced(&pauses.collect::<Result<Vec<_>>>()?)
    })
    .await
}

/// Each write is changed on its way, as by a webhook that labels all objects.
#[tokio::test]
async fn a_policy_that_changes_every_copy_is_not_fought() -> Result<()> {
    if lacks_mutating_policies().await? {
        return Ok(());
    }
    play(copying(Value::Null), async |scene| {
        let labelled = policy(scene);
        scene
            .kubectl_with_input(&["create", "--filename=-"], &labelled.to_string())
            .await?;
        scene.apply(&[source("1")]).await?;
        let ours = applied_sync(scene, "all", json!({})).await?;
        let outcome = async {
            let namespaces = Namespaces::of(scene);
            let mut namespace = String::new();
            wait_for("the policy to be in force", PATIENCE, async || {
                namespace = namespaces.create(&super::unique()?, true).await?;
                becomes(scene, &ours, "Synced").await?;
                wait_for("a copy", PATIENCE, async || {
                    let copy = secrets(scene, &namespace).get_opt(SHARED).await?;
                    Ok(copy.map_or(Attempt::NotYet(String::new()), |_| Attempt::Done(())))
                })
                .await?;
                let copy = scene
                    .object_in(&namespace, &format!("secret/{SHARED}"))
                    .await?;
                done_if(
                    copy["metadata"]["labels"]["team"] == "x",
                    copy["metadata"].to_string(),
                )
            })
            .await?;
            let mark = scene.mark().await?;
            scene.apply(&[source("2")]).await?;
            rests(scene, &ours).await?;
            let all = writes(scene, mark).await?;
            let here: Vec<_> = all
                .into_iter()
                .filter(|it| it.namespace == namespace)
                .collect();
            ensure!(here.len() == 1, "{:?}", shown(&here));
            Ok(())
        };
        let outcome = outcome.await;
        let name = labelled["items"][0]["metadata"]["name"]
            .as_str()
            .context("it has a name")?;
        for kind in ["mutatingadmissionpolicy", "mutatingadmissionpolicybinding"] {
            scene.kubectl(&["delete", kind, name]).await?;
        }
        outcome
    })
    .await
}

fn policy(scene: &Scene) -> Value {
    let name = format!("{}-label", scene.namespace);
    let api = "admissionregistration.k8s.io/v1";
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": api,
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
                "matchConstraints": {
                    "namespaceSelector": {"matchLabels": {"scene": scene.namespace}},
                    "resourceRules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}],
                },
                "mutations": [{
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'team': 'x'}}}"},
                }],
            },
        },
        {
            "apiVersion": api,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name},
        },
    ]})
}

/// Waits until a copy is exact again. Returns how long that took.
async fn exact_again(scene: &Scene, namespace: &str) -> Result<Duration> {
    let began = Instant::now();
    has_copy(scene, namespace, "1").await?;
    Ok(began.elapsed())
}
