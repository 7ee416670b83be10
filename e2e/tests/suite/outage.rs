//! The webhook is down, with or without the chart's policies: no write is blocked, and nothing is lost.

use anyhow::{Context, Result, bail, ensure};
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams,
};
use pod_reloader_e2e::workload::{
    BASELINE, CONFIG_HASH, CONFIG_MAPS, Kind, Workload, config_map, key_in, key_of,
};
use pod_reloader_e2e::{
    Attempt, Options, Output, PATIENCE, Scene, Snapshot, lacks_mutating_policies, wait_for,
};
use serde_json::{Value, json};

use crate::operator_releases::reviews;

#[tokio::test]
async fn the_policy_preserves_the_hash_while_the_webhook_is_down() -> Result<()> {
    if lacks_mutating_policies().await? {
        return Ok(());
    }
    Scene::play(Options::ignoring(), async |scene| {
        scene
            .apply(&[config_map("app", "1"), config_map("late", "1")])
            .await?;
        let workloads =
            Kind::ALL.map(|kind| Workload::new(kind, "web").without_pods().lists("app"));
        let late = Workload::podless("late").lists("late");
        let late_before = scene.create(&late).await?;
        let mut before = Vec::new();
        for workload in &workloads {
            before.push(scene.create(workload).await?);
        }
        scene.operator.stop().await;
        policy_is_in_force(scene).await?;

        let mut after = Vec::new();
        for (workload, before) in workloads.iter().zip(&before) {
            let name = workload.reference();
            let without = workload.manifest().to_string();
            let rubbish = argument(&rubbish());
            let removal = removal();
            let writes = [
                &["replace", "--filename=-"][..],
                &["patch", &name, "--type=merge", &rubbish],
                &["patch", &name, "--type=merge", NO_ANNOTATIONS],
                &["patch", &name, "--type=json", &removal],
                &["patch", &name, "--dry-run=server", IMAGE],
            ];
            // The policy has one expression for all kinds.
            let some = match workload.kind {
                Kind::Deployment => &writes[..],
                Kind::StatefulSet | Kind::DaemonSet => &writes[..1],
            };
            for write in some {
                let write = [*write, &["--output=json"]].concat();
                let stored = scene.kubectl_with_input(&write, &without).await?;
                ensure!(key_in(&stored)? == before.key, "{write:?}: {stored}");
            }
            let same = scene.snapshot(workload).await?;
            ensure!(same == *before, "{before:?}, {same:?}");

            let other = workload.clone().image("app:2").manifest().to_string();
            scene
                .kubectl_with_input(&["replace", "--filename=-"], &other)
                .await?;
            let other = scene.snapshot(workload).await?;
            ensure!(other.key == before.key, "{before:?}, {other:?}");
            ensure!(other.new_revisions(before) == 1, "{before:?}, {other:?}");
            after.push(other);
        }

        scene.apply(&[config_map("late", "2")]).await?;
        scene.operator.start_again().await?;
        scene.rolls_once(&late, &late_before).await?;
        // By then, everything has been handled.
        for (workload, after) in workloads.iter().zip(&after) {
            let now = scene.snapshot(workload).await?;
            ensure!(now == *after, "{after:?}, {now:?}");
            ensure!(now.key == Some(scene.expected_key(workload).await?));
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_policy_denies_no_write_whose_annotations_have_no_room_for_the_hash() -> Result<()> {
    if lacks_mutating_policies().await? {
        return Ok(());
    }
    Scene::play(Options::ignoring(), async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        scene.operator.stop().await;
        policy_is_in_force(scene).await?;
        let entry = CONFIG_HASH.len() + before.key.as_ref().map_or(0, String::len);
        // The workload with room comes first: later there is no hash to preserve. Bytes matter, not
        // characters.
        for (size, has_room) in [((256 << 10) - entry, true), (256 << 10, false)] {
            let size = size - "note".len();
            let note = "\u{e4}".repeat(size / 2) + &"x".repeat(size % 2);
            let web = web.clone().with(
                &["spec", "template", "metadata", "annotations"],
                json!({"note": note}),
            );
            let replace = ["replace", "--filename=-", "--output=json"];
            let manifest = web.manifest().to_string();
            let stored = scene.kubectl_with_input(&replace, &manifest).await?;
            let expected = before.key.clone().filter(|_| has_room);
            let key = key_in(&stored)?;
            ensure!(key == expected, "{key:?}, {expected:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn without_the_policy_the_loop_restores_a_hash_that_was_dropped() -> Result<()> {
    let options = Options {
        values: json!({"policy": {"enabled": false}}),
        ..Options::ignoring()
    };
    Scene::play(options, async |scene| {
        let (web, first) = scene.create_listing(Workload::podless("web")).await?;
        scene.operator.stop().await;
        // As documented for a cluster too old for the policy: pods without a hash are created.
        let manifest = web.manifest().to_string();
        scene
            .kubectl_with_input(&["replace", "--filename=-"], &manifest)
            .await?;
        let dropped = scene.snapshot(&web).await?;
        ensure!(dropped.key.is_none(), "{dropped:?}");
        ensure!(dropped.new_revisions(&first) == 1, "{first:?}, {dropped:?}");

        scene.operator.start_again().await?;
        scene.right(&web).await?;
        let restored = scene.snapshot(&web).await?;
        ensure!(restored.key == first.key, "{first:?}, {restored:?}");
        // Exactly the earlier template: its ReplicaSet is used again.
        let expected = Snapshot {
            key: first.key,
            revisions: dropped.revisions,
        };
        scene.rolls_not(&web, &expected).await
    })
    .await
}

#[tokio::test]
async fn while_the_webhook_is_down_ignore_lets_every_write_through() -> Result<()> {
    outage_under("Ignore").await
}

#[tokio::test]
async fn while_the_webhook_is_down_fail_refuses_only_writes_with_our_annotations() -> Result<()> {
    outage_under("Fail").await
}

/// Tests that an outage never blocks workloads without our annotations, nor writes to subresources.
async fn outage_under(failure_policy: &'static str) -> Result<()> {
    let options = Options {
        failure_policy,
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = Workload::deployment("web").lists("app");
        let database = Workload::new(Kind::StatefulSet, "database").lists("app");
        let alone = Workload::deployment("alone");
        let ignored = web_called("ignored").labelled(IGNORED, "true");
        // Unmanaged, but with an annotation of ours: its author can be told about the mistake.
        let misspelt = Workload::deployment("misspelt").annotated(MISSPELT, "app");
        let rolling = web_called("rolling");
        for workload in [&web, &database, &alone, &ignored, &misspelt, &rolling] {
            scene.create(workload).await?;
            finished(scene, workload).await?;
        }
        // A rollout that begins before the outage and continues during it: its pods wait for a node.
        let label = format!("example.com/{}", scene.namespace);
        let node = json!({"spec": {"template": {"spec": {"nodeSelector": {&label: "here"}}}}});
        scene.patch(&rolling, &node).await?;
        scene.operator.stop().await;

        // The operator must be able to come back, whatever its own Deployment lists.
        let own = json!(scene.installation.namespace);
        let own = web_called("own").with(&["metadata", "namespace"], own);
        scene.create_object(&own.manifest()).await?;

        let label = format!("{label}=here");
        scene.kubectl(&["label", "nodes", "--all", &label]).await?;
        finished(scene, &rolling).await?;

        scene
            .kubectl(&["scale", &web.reference(), "--replicas=2"])
            .await?;
        finished(scene, &web).await?;
        let scale = r#"--patch={"spec": {"replicas": 3}}"#;
        for workload in [&web, &database] {
            let name = workload.reference();
            let scale = ["patch", &name, "--subresource=scale", "--type=merge", scale];
            scene.kubectl(&scale).await?;
            finished(scene, workload).await?;
            let status = &scene.object(&name).await?["status"];
            ensure!(status["readyReplicas"] == 3, "{status}");
        }

        for workload in [&alone, &ignored] {
            let name = workload.reference();
            scene.label(&name, "team=blue").await?;
            let other = workload.clone().image("app:2");
            scene.apply(&[other.manifest()]).await?;
            finished(scene, workload).await?;
            scene.delete(&name).await?;
            scene.create(workload).await?;
        }

        for workload in [&web, &database, &misspelt] {
            let name = workload.reference();
            let labelled = scene.label(&name, "team=blue").await;
            if failure_policy == "Fail" {
                let told = labelled.err().context("it was let through")?;
                let is_refused = format!("{told:#}").contains("failed calling webhook");
                ensure!(is_refused, "{told:#}");
            } else {
                labelled?;
            }
            // Deleting is never blocked.
            scene.delete(&name).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_policy_reverts_neither_what_the_webhook_sets_nor_what_the_loop_sets() -> Result<()> {
    beside_the_policy(async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let before = scene.rolls_once(&web, &before).await?;

        // From here on, the settle period is too long for the loop to restart it.
        let patient = web.clone().annotated(SETTLE_PERIOD, "1h");
        scene.apply(&[patient.manifest()]).await?;
        scene.rolls_not(&web, &before).await?;
        finished(scene, &web).await?;
        let mark = scene.mark().await?;
        let release = patient.image("app:2").manifest();
        scene.apply(&[config_map("app", "3"), release]).await?;
        let after = scene.snapshot(&web).await?;
        ensure!(after.key == Some(scene.expected_key(&web).await?));
        ensure!(after.key != before.key, "{after:?}");
        ensure!(after.new_revisions(&before) == 1, "{before:?}, {after:?}");
        let called = reviews(scene, mark).await?;
        ensure!(called == [&*scene.installation.namespace], "{called:?}");
        scene.rolls_not(&web, &after).await
    })
    .await
}

#[tokio::test]
async fn a_client_that_writes_a_hash_is_warned_even_if_the_policy_reverted_it() -> Result<()> {
    beside_the_policy(async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        let name = web.reference();
        let (with, without) = (web.clone().stamped("rubbish"), &web);
        let server_side = &[
            "apply",
            "--server-side",
            "--force-conflicts",
            "--filename=-",
        ][..];
        let client_side = &["apply", "--filename=-"][..];
        let note = r#"--patch={"metadata": {"annotations": {"note": "x"}}}"#;
        for (write, manifest, is_warned) in [
            (client_side, without, false),
            (client_side, &with, true),
            (client_side, &with, true),
            (client_side, without, false),
            (server_side, &with, true),
            (server_side, &with, true),
            (server_side, without, false),
            (&["patch", &name, note], without, false),
            (&["patch", &name, &argument(&rubbish())], without, true),
            (
                &["patch", &name, "--type=merge", &argument(&rubbish())],
                without,
                true,
            ),
            (&["label", &name, "team=blue"], without, false),
            (&["set", "image", &name, "main=app:1"], without, false),
            (client_side, without, false),
            (server_side, without, false),
        ] {
            let manifest = manifest.manifest().to_string();
            let output = scene.kubectl_output(write, &manifest).await?;
            ensure!(output.code == Some(0), "{write:?}: {output:?}");
            ensure!(warns(&output) == is_warned, "{write:?}: {output:?}");
            ensure!(scene.key(&web).await? == before.key, "{write:?}");
        }
        scene.rolls_not(&web, &before).await
    })
    .await
}

#[tokio::test]
async fn a_misspelt_annotation_is_answered_with_the_one_that_is_meant() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let misspelt = Workload::podless("web").annotated(MISSPELT, "app");
        let manifest = misspelt.manifest().to_string();
        let warning = format!("did you mean {CONFIG_MAPS}?");
        let again = format!("{MISSPELT}=other");
        for write in [
            &["apply", "--filename=-"][..],
            &["annotate", "--overwrite", "deployment/web", &again],
        ] {
            let output = scene.kubectl_output(write, &manifest).await?;
            ensure!(output.code == Some(0), "{output:?}");
            ensure!(output.stderr.contains(&warning), "{write:?}: {output:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn everything_works_inside_the_fence_as_without_it() -> Result<()> {
    let options = Options {
        values: json!({"fence": {"enabled": true}}),
        running: false,
        ..Options::ignoring()
    };
    Scene::play(options, async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let bare = Kind::ALL.map(|kind| Workload::new(kind, "bare").lists("app"));
        let foreign = web_called("foreign").stamped("foreign");
        let mut before = Vec::new();
        for workload in &bare {
            before.push(scene.create(workload).await?);
        }
        let foreign_before = scene.create(&foreign).await?;
        fence_is_in_force(scene, &foreign).await?;

        scene.operator.start_again().await?;
        let has_none = |it: &Snapshot| it.key.is_none();
        ensure!(before.iter().all(has_none), "{before:?}");
        let before = scene.each_rolls_once(&bare, &before).await?;
        scene.rolls_not(&foreign, &foreign_before).await?;
        let object = scene.object(&foreign.reference()).await?;
        let baseline = &object["metadata"]["annotations"][BASELINE];
        ensure!(baseline.is_string(), "{object}");

        scene.apply(&[config_map("app", "2")]).await?;
        scene.each_rolls_once(&bare, &before).await?;
        for workload in &bare {
            scene.event(workload, "ConfigChanged").await?;
        }
        scene.rolls_once(&foreign, &foreign_before).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_fence_lets_the_operator_change_nothing_but_its_annotations() -> Result<()> {
    let options = Options::with_values(json!({"fence": {"enabled": true}}));
    Scene::play(options, async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let workloads = Kind::ALL.map(|kind| {
            let workload = Workload::new(kind, "web").lists("app");
            workload.labelled("team", "blue").annotated("note", "x")
        });
        for workload in &workloads {
            scene.create(workload).await?;
        }
        fence_is_in_force(scene, &workloads[0]).await?;
        let containers = json!([{"name": "main", "image": "evil"}]);
        let template = |part: Value| json!({"spec": {"template": part}});
        let metadata = |part: Value| json!({"metadata": part});
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0"});
        for workload in &workloads {
            let mut patches = vec![
                template(json!({"spec": {"containers": containers}})),
                template(json!({"spec": {"nodeSelector": {"a": "b"}}})),
                template(json!({"metadata": {"labels": {"extra": "x"}}})),
                template(json!({"metadata": {"annotations": {"note": "x"}}})),
                metadata(json!({"labels": {"team": "red"}})),
                metadata(json!({"labels": null})),
                metadata(json!({"labels": {"extra": "x"}})),
                metadata(json!({"annotations": {"note": "y"}})),
                metadata(json!({"annotations": {"note": null}})),
                metadata(json!({"annotations": {"reloader.stakater.com/auto": "true"}})),
                metadata(json!({"finalizers": ["example.com/keep"]})),
                // The garbage collector deletes objects whose owner does not exist.
                metadata(json!({"ownerReferences": [owner]})),
                json!({"spec": {"minReadySeconds": 5}}),
                json!({"spec": {"minReadySeconds": 1}}),
            ];
            patches.push(match workload.kind {
                Kind::Deployment => json!({"spec": {"paused": true}}),
                _ => {
                    json!({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}})
                }
            });
            if workload.kind != Kind::DaemonSet {
                patches.push(json!({"spec": {"replicas": 0}}));
            }
            let (operator, name) = (as_the_operator(scene, workload.kind).await?, &workload.name);
            let params = PatchParams::default();
            for patch in patches {
                let refused = refusal(operator.patch(name, &params, &Patch::Merge(&patch)).await)?;
                ensure!(refused.contains(FENCED), "{patch}: {refused}");
            }
            let scale = json!({"spec": {"replicas": 0}});
            let status = json!({"status": null});
            let subresources = [("scale", scale), ("status", status)];
            for (subresource, patch) in
                &subresources[usize::from(workload.kind == Kind::DaemonSet)..]
            {
                let patch = Patch::Merge(patch);
                let patched = operator.patch_subresource(subresource, name, &params, &patch);
                let refused = refusal(patched.await)?;
                ensure!(refused.contains("cannot patch"), "{subresource}: {refused}");
            }
            let refused = refusal(operator.delete(name, &DeleteParams::default()).await)?;
            ensure!(refused.contains("cannot delete"), "{refused}");
            // The write that the operator's rights are for.
            let hash = template(json!({"metadata": {"annotations": {CONFIG_HASH: "hash"}}}));
            operator.patch(name, &params, &Patch::Merge(&hash)).await?;
            let bare = Workload::new(workload.kind, "bare");
            scene.create(&bare).await?;
            let baseline = metadata(json!({"annotations": {BASELINE: "=hash"}}));
            let baseline = Patch::Merge(&baseline);
            operator.patch(&bare.name, &params, &baseline).await?;
            // It may put settings back, but not change them.
            let labelled = |value: Value| metadata(json!({"labels": {IGNORED: value}}));
            let ignored = labelled(json!("true"));
            let ignored = Patch::Merge(&ignored);
            operator.patch(&bare.name, &params, &ignored).await?;
            for patch in [labelled(json!("false")), labelled(Value::Null)] {
                let patch = Patch::Merge(&patch);
                let refused = refusal(operator.patch(&bare.name, &params, &patch).await)?;
                ensure!(refused.contains(FENCED), "{refused}");
            }
        }
        Ok(())
    })
    .await
}

/// Runs a test that begins when both the policy and the webhook are in force.
async fn beside_the_policy(test: impl AsyncFnOnce(&Scene) -> Result<()>) -> Result<()> {
    if lacks_mutating_policies().await? {
        return Ok(());
    }
    let options = Options {
        running: false,
        ..Options::ignoring()
    };
    Scene::play(options, async |scene| {
        policy_is_in_force(scene).await?;
        scene.operator.start_again().await?;
        test(scene).await
    })
    .await
}

/// Waits until the policy preserves a hash. The webhook must be down: it would do the same.
async fn policy_is_in_force(scene: &Scene) -> Result<()> {
    let gauge = web_called("gauge").stamped("gauge");
    scene.create(&gauge).await?;
    let rubbish = rubbish();
    wait_for("the policy to keep a hash", PATIENCE, async || {
        let patched = scene.try_patch(&scene.namespace, &gauge, &rubbish);
        Ok(match key_of(&patched.await?) {
            Some(key) if key == "gauge" => Attempt::Done(()),
            key => Attempt::NotYet(format!("{key:?}")),
        })
    })
    .await?;
    scene.delete(&gauge.reference()).await
}

#[tokio::test]
async fn the_fence_lets_settings_of_other_dialects_be_added_to_the_object_alone() -> Result<()> {
    let options = Options::with_values(json!({
        "fence": {"enabled": true},
        "dialects": ["pod-reloader", "stakater", "stackable"],
    }));
    Scene::play(options, async |scene| {
        let web = Workload::podless("web").labelled("team", "blue");
        scene.create(&web).await?;
        fence_is_in_force(scene, &web).await?;
        let operator = as_the_operator(scene, web.kind).await?;
        let params = PatchParams::default();
        let patched = async |patch: &Value| {
            let patch = Patch::Merge(patch);
            operator.patch(&web.name, &params, &patch).await
        };
        let fenced = async |patch: Value| {
            let refused = refusal(patched(&patch).await)?;
            ensure!(refused.contains(FENCED), "{patch}: {refused}");
            anyhow::Ok(())
        };
        let annotations = |all: Value| json!({"metadata": {"annotations": all}});
        let settings = json!({
            "reloader.stakater.com/auto": "true",
            "restarter.stackable.tech/ignore-configmap.app": "app",
        });
        let labels = json!({"metadata": {"labels": {"restarter.stackable.tech/enabled": "true"}}});
        for patch in [
            json!({"spec": {"template": annotations(settings.clone())}}),
            annotations(json!({"wave.pusher.com/update-on-config-change": "true"})),
        ] {
            fenced(patch).await?;
        }
        for patch in [annotations(settings), labels] {
            patched(&patch).await?;
        }
        for value in [json!("false"), Value::Null] {
            fenced(annotations(json!({"reloader.stakater.com/auto": value}))).await?;
        }
        Ok(())
    })
    .await
}

/// Waits until the fence stops the operator from setting a label.
async fn fence_is_in_force(scene: &Scene, workload: &Workload) -> Result<()> {
    let operator = as_the_operator(scene, workload.kind).await?;
    let dry_run = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"metadata": {"labels": {"team": "gauge"}}}));
    wait_for("the fence to keep a label", PATIENCE, async || {
        Ok(
            match refusal(operator.patch(&workload.name, &dry_run, &patch).await) {
                Ok(refused) if refused.contains(FENCED) => Attempt::Done(()),
                seen => Attempt::NotYet(format!("{seen:?}")),
            },
        )
    })
    .await
}

/// Returns the API for workloads of a kind, with the token of the operator.
async fn as_the_operator(scene: &Scene, kind: Kind) -> Result<Api<DynamicObject>> {
    let client = scene.operators_client().await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", kind.as_str()));
    Ok(Api::namespaced_with(client, &scene.namespace, &resource))
}

/// Returns the apiserver's message when it refuses a write.
fn refusal<T>(answer: kube::Result<T>) -> Result<String> {
    match answer {
        Ok(_) => bail!("it is not refused"),
        Err(kube::Error::Api(status)) => Ok(status.message.clone()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the controller of a workload has nothing left to do, and its status says so.
async fn finished(scene: &Scene, workload: &Workload) -> Result<()> {
    scene.rolled_out(workload).await
}

fn warns(output: &Output) -> bool {
    output
        .stderr
        .contains("the request's config-hash does not count")
}

fn web_called(name: &str) -> Workload {
    Workload::deployment(name).lists("app")
}

/// Returns a patch of the config hash that is both a merge patch and a strategic merge patch.
fn rubbish() -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {CONFIG_HASH: "rubbish"}}}}})
}

/// Returns a JSON patch that removes the config hash.
fn removal() -> String {
    let path = format!(
        "/spec/template/metadata/annotations/{}",
        CONFIG_HASH.replace('/', "~1")
    );
    argument(&json!([{"op": "remove", "path": path}]))
}

/// Returns the argument of `kubectl patch` for a patch.
fn argument(patch: &Value) -> String {
    format!("--patch={patch}")
}

const IGNORED: &str = "pod-reloader.cs.sap.com/ignored";
const SETTLE_PERIOD: &str = "pod-reloader.cs.sap.com/settle-period";
const MISSPELT: &str = "pod-reloader.cs.sap.com/config-maps";
const NO_ANNOTATIONS: &str =
    r#"--patch={"spec": {"template": {"metadata": {"annotations": null}}}}"#;
const IMAGE: &str = r#"--patch={"spec": {"template": {"metadata": {"annotations": null}, "spec": {"containers": [{"name": "main", "image": "app:9"}]}}}}"#;
const FENCED: &str = "ValidatingAdmissionPolicy";
