//! Hashes that cannot be verified, from SAP's controller or under lost keys, restart nothing by themselves.

use std::collections::HashSet;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use http::StatusCode;
use pod_reloader_e2e::proxy::{Answer, Fault, Requests, Rule};
use pod_reloader_e2e::workload::{
    BASELINE, CONFIG_HASH, Kind, Workload, both_kinds, config_map, secret,
};
use pod_reloader_e2e::{
    Expected, Options, Oracles, PATIENCE, Scene, Snapshot, crowd, done_if, wait_for,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Returns options without a running operator, and with a webhook that is not in the way.
fn before_the_takeover() -> Options {
    Options {
        failure_policy: "Ignore",
        running: false,
        ..Options::default()
    }
}

#[tokio::test]
async fn workloads_of_saps_controller_get_a_baseline_and_roll_at_their_first_change() -> Result<()>
{
    Scene::play(before_the_takeover(), async |scene| {
        scene.apply(&both_kinds("app", "1")).await?;
        let web = Workload::podless("web")
            .lists("app, absent")
            .lists_secrets("app");
        let sap = sap_hash(scene, &["configmap/app", "configmap/absent", "secret/app"]).await?;
        taken_over_without_a_rollout(scene, &web.stamped(&sap)).await
    })
    .await
}

#[tokio::test]
async fn workloads_under_an_unknown_key_get_a_baseline_and_roll_at_their_first_change() -> Result<()>
{
    Scene::play(before_the_takeover(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = Workload::podless("web").lists("app");
        taken_over_without_a_rollout(scene, &web.stamped(&unknown_hash())).await
    })
    .await
}

#[tokio::test]
async fn a_hash_of_saps_controller_that_does_not_verify_rolls_once() -> Result<()> {
    Scene::play(before_the_takeover(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let sap = sap_hash(scene, &["configmap/app"]).await?;
        let web = Workload::podless("web").lists("app").stamped(&sap);
        let before = scene.create(&web).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.operator.start_again().await?;
        scene.rolls_once(&web, &before).await?;
        let note = scene.event(&web, "ConfigChanged").await?;
        ensure!(note.contains("before pod-reloader took over"), "{note}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_lost_key_rolls_nothing_until_contents_change() -> Result<()> {
    Scene::play(Options::ignoring(), async |scene| {
        scene
            .apply(&[config_map("app", "1"), config_map("other", "1")])
            .await?;
        let web = Workload::podless("web").lists("app");
        let api = Workload::podless("api").lists("other");
        let before = scene.create(&web).await?;
        let before_api = scene.create(&api).await?;
        let lost = stored_keys(scene).await?;
        scene.operator.stop().await;
        forget_keys(scene).await?;

        scene.operator.start_again().await?;
        has_baseline(scene, &web, &before).await?;
        has_baseline(scene, &api, &before_api).await?;
        scene.rolls_not(&web, &before).await?;
        scene.rolls_not(&api, &before_api).await?;
        scene
            .shows("pod_reloader_foreign_hash_workloads", "2")
            .await?;

        scene.apply(&[config_map("app", "2")]).await?;
        let after = scene.rolls_once(&web, &before).await?;
        ensure!(
            key_id(&after)? != key_id(&before)?,
            "under the lost key: {after:?}"
        );
        scene.rolls_not(&api, &before_api).await?;
        scene
            .shows("pod_reloader_foreign_hash_workloads", "1")
            .await?;
        let alarm = "a key that is not in the Secret of the hash keys";
        wait_for("the log to name the lost key", PATIENCE, async || {
            done_if(scene.operator.log()?.contains(alarm), "it is silent")
        })
        .await?;

        // The backup of the Secret is found.
        scene.operator.stop().await;
        let mut entries = lost;
        for new in stored_keys(scene).await?.keys() {
            entries.entry(new).or_insert(Value::Null);
        }
        patch_keys(scene, &json!({"data": entries})).await?;
        let sentinel = Workload::podless("sentinel");
        let sentinel_before = scene.snapshot(&sentinel).await?;
        scene.operator.start_again().await?;
        // The operator does not see changes made before its baseline.
        has_baseline(scene, &web, &after).await?;
        has_baseline(scene, &sentinel, &sentinel_before).await?;
        scene.rolls_not(&web, &after).await?;
        scene.rolls_not(&api, &before_api).await?;
        scene.apply(&[config_map("other", "2")]).await?;
        scene.rolls_once(&api, &before_api).await?;
        scene.rolls_not(&web, &after).await
    })
    .await
}

#[tokio::test]
async fn hash_keys_that_are_deleted_under_a_running_operator_are_put_back() -> Result<()> {
    let options = Options {
        // The policy would restore the right hash.
        values: json!({"policy": {"enabled": false}}),
        ..Options::ignoring()
    };
    Scene::play(options, async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = Workload::podless("web").lists("app");
        let other = Workload::podless("other").lists("app");
        let before = scene.create(&web).await?;
        scene.create(&other).await?;
        let keys = stored_keys(scene).await?;
        let webhook = ["delete", "mutatingwebhookconfiguration"];
        let webhook = [&webhook[..], &[&*scene.installation.namespace]].concat();
        scene.tool().run(&webhook).await?;
        forget_keys(scene).await?;

        // An unknown key is a reason to read the Secret again, ahead of time. The apiserver may call the
        // webhook for a little longer, which undoes this.
        let unknown = unknown_hash();
        wait_for(
            "the apiserver to forget the webhook",
            PATIENCE,
            async || {
                set_key(scene, &other, &unknown).await?;
                let key = scene.key(&other).await?;
                done_if(key.as_deref() == Some(&unknown), format!("{key:?}"))
            },
        )
        .await?;
        let restored = wait_for("the keys to be back", PATIENCE, async || {
            Ok(stored_keys(scene).await.into())
        })
        .await?;
        ensure!(restored == keys, "other keys than before");
        let stamped = scene.snapshot(&other).await?;
        has_baseline(scene, &other, &stamped).await?;
        scene.rolls_not(&other, &stamped).await?;
        scene.rolls_not(&web, &before).await
    })
    .await
}

#[tokio::test]
async fn a_new_key_rolls_nothing() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;

        // Some replica may not have read the key yet, so it is only for verifying. The first key may have
        // been made in this very second, and have its name.
        let next_second = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(1);
        add_key(scene, next_second, 1).await?;
        scene.rolls_not(&web, &before).await?;
        restart(scene).await?;
        scene.rolls_not(&web, &before).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let changed = scene.rolls_once(&web, &before).await?;
        ensure!(key_id(&changed)? == key_id(&before)?, "{changed:?}");

        // By now all replicas have read it.
        let some_time_ago = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(10);
        let old_keys = stored_keys(scene).await?;
        let first = old_keys.keys().next().context("no key")?.clone();
        rename_key(scene, &first, "20250101T000000Z").await?;
        add_key(scene, some_time_ago, 2).await?;
        restart(scene).await?;
        scene.rolls_not(&web, &changed).await?;
        scene.apply(&[config_map("app", "3")]).await?;
        let after = scene.rolls_once(&web, &changed).await?;
        ensure!(key_id(&after)? != key_id(&before)?, "{after:?}");
        scene.rolls_not(&web, &after).await
    })
    .await
}

/// A new key reaches one replica after the other, and one of them writes with it at once.
#[tokio::test]
async fn a_key_that_not_every_replica_has_read_rolls_nothing_and_moves_nothing_back() -> Result<()>
{
    const EDITS: usize = 12;
    let options = Options {
        replicas: 2,
        proxied: true,
        args: vec!["--drain-period=5s".to_owned()],
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let lists = |workload: Workload| workload.lists("app");
        let workloads: Vec<_> = crowd("web", 8).into_iter().map(lists).collect();
        scene.create_all(&workloads).await?;
        let first_id = key_id(&scene.snapshot(&workloads[0]).await?)?;
        scene.quiet().await?;
        let mut oracles = Oracles::begin(scene, &workloads).await?;
        let keys = Requests::containing(format!("/secrets/{}", scene.installation.hash_keys()));
        let unavailable = Fault::Answer(Answer::error(StatusCode::SERVICE_UNAVAILABLE));
        let unread: Vec<_> = scene
            .replicas()
            .iter()
            .map(|replica| {
                anyhow::Ok(
                    replica
                        .proxy()?
                        .add(Rule::new(keys.clone(), unavailable.clone())),
                )
            })
            .collect::<Result<_>>()?;
        let first = stored_keys(scene).await?.keys().next().cloned();
        rename_key(scene, &first.context("no key")?, "20250101T000000Z").await?;
        let some_time_ago = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(10);
        add_key(scene, some_time_ago, 2).await?;

        // The third replica has the new key; the two that were there before do not.
        let old = scene.followers().await?;
        let third = scene.add_replica().await?;
        // Its connections move to the others.
        old[0].operator.stop().await;
        for edit in 1..=EDITS {
            let image = json!([{"name": "main", "image": format!("app:{edit}")}]);
            let image = json!({"spec": {"template": {"spec": {"containers": image}}}});
            try_join_all(
                workloads
                    .iter()
                    .map(|workload| scene.patch(workload, &image)),
            )
            .await?;
        }
        ensure!(scene.balancer()?.connections(third.port) > 0, "not called");
        let mut key_ids = HashSet::new();
        for workload in &workloads {
            key_ids.insert(key_id(&scene.snapshot(workload).await?)?);
        }
        key_ids.remove(&first_id);
        ensure!(!key_ids.is_empty(), "nobody has written with the new key");
        unread.iter().for_each(|rule| rule.remove());
        // A hash that only one key verifies is no reason to change it, so something else must be.
        scene.apply(&[config_map("app", "2")]).await?;
        let expected = Expected::up_to(EDITS + 1);
        oracles.check("a key that few have read", expected).await
    })
    .await
}

#[tokio::test]
async fn a_backup_that_is_restored_into_a_cluster_with_an_operator_rolls_nothing() -> Result<()> {
    restored_with_other_keys(Comes::Before).await
}

#[tokio::test]
async fn a_backup_that_is_restored_before_the_operator_comes_rolls_nothing() -> Result<()> {
    restored_with_other_keys(Comes::After).await
}

/// When the operator starts, as seen from the restore.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comes {
    Before,
    After,
}

/// Restores a backup as Velero does, in a cluster with other hash keys. Asserts that workloads are restarted
/// only by their first change.
async fn restored_with_other_keys(operator: Comes) -> Result<()> {
    let is_operator_there = operator == Comes::Before;
    Scene::play(Options::ignoring(), async |scene| {
        let configs = |value| [config_map("app", value), secret("db", value)];
        scene.apply(&configs("1")).await?;
        let workloads = [
            Workload::podless("web").lists("app"),
            Workload::podless("needy").lists("app").requires("app"),
            Workload::podless("of-sap").lists_secrets("db"),
            Workload::new(Kind::StatefulSet, "data")
                .without_pods()
                .lists("app"),
            Workload::new(Kind::DaemonSet, "agent")
                .without_pods()
                .lists_secrets("db"),
        ];
        let mut before = Vec::new();
        for workload in &workloads {
            before.push(scene.create(workload).await?);
        }
        let mut backup = backup(scene).await?;
        // As if this hash had come from SAP's controller. The loop cannot tell a hash of other UIDs from one
        // of other contents, but the webhook can.
        let (key, of_sap) = (before[2].key.clone().context("no hash")?, "5".repeat(64));
        for object in backup.iter_mut().filter(|_| is_operator_there) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if name.starts_with("of-sap") {
                *object = serde_json::from_str(&object.to_string().replace(&key, &of_sap))?;
            }
        }
        if is_operator_there {
            before[2].key = Some(of_sap);
        }

        scene.operator.stop().await;
        let everything = [&["delete", "--all"], &[KINDS][..]].concat();
        scene.kubectl(&everything).await?;
        wait_for("the ReplicaSets to be gone", PATIENCE, async || {
            let mut left = scene.objects("apps/v1", "ReplicaSet").await?;
            left.extend(scene.objects("apps/v1", "ControllerRevision").await?);
            done_if(left.is_empty(), format!("{left:?}"))
        })
        .await?;
        forget_keys(scene).await?;
        if is_operator_there {
            scene.operator.start_again().await?;
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": backup}).to_string();
        let create = ["create", "--filename=-", "--output=json"];
        let created = scene.kubectl_with_input(&create, &list).await?;
        match operator {
            Comes::Before => ensure!(created.contains(BASELINE), "{created}"),
            Comes::After => {
                ensure!(!created.contains(BASELINE), "{created}");
                scene.operator.start_again().await?;
            }
        }

        for (workload, before) in workloads.iter().zip(&before) {
            has_baseline(scene, workload, before).await?;
        }
        scene.each_rolls_not(&workloads, &before).await?;
        scene.apply(&configs("2")).await?;
        scene.each_rolls_once(&workloads, &before).await.map(drop)
    })
    .await
}

/// Returns a backup of the namespace, in the order in which Velero restores it. Of the metadata, Velero
/// restores only names, labels and annotations, and no status.
async fn backup(scene: &Scene) -> Result<Vec<Value>> {
    let list = scene.kubectl(&["get", KINDS, "--output=json"]).await?;
    let list: Value = serde_json::from_str(&list)?;
    let mut backup = list["items"].as_array().cloned().unwrap_or_default();
    backup.retain(|object| object["metadata"]["name"] != "kube-root-ca.crt");
    for object in &mut backup {
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|name, _| ["name", "labels", "annotations"].contains(&&**name));
        }
    }
    Ok(backup)
}

/// The kinds in that order. kubectl prints objects in the order in which it is asked for them.
const KINDS: &str =
    "secrets,configmaps,replicasets,controllerrevisions,daemonsets,deployments,statefulsets";

/// Asserts that a workload that was created before the operator started gets a baseline and nothing else,
/// until the content of ConfigMap `app` changes.
async fn taken_over_without_a_rollout(scene: &Scene, workload: &Workload) -> Result<()> {
    let before = scene.create(workload).await?;
    let stamped =
        workload.manifest()["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH].clone();
    ensure!(
        before.key.as_deref() == stamped.as_str(),
        "stored as it was sent: {before:?}"
    );
    scene.operator.start_again().await?;
    has_baseline(scene, workload, &before).await?;
    scene.rolls_not(workload, &before).await?;
    scene
        .shows("pod_reloader_foreign_hash_workloads", "1")
        .await?;

    scene.label("configmap/app", "team=blue").await?;
    scene.rolls_not(workload, &before).await?;
    restart(scene).await?;
    scene.rolls_not(workload, &before).await?;

    scene.apply(&[config_map("app", "2")]).await?;
    let after = scene.rolls_once(workload, &before).await?;
    scene
        .shows("pod_reloader_foreign_hash_workloads", "0")
        .await?;
    restart(scene).await?;
    scene.rolls_not(workload, &after).await
}

async fn restart(scene: &Scene) -> Result<()> {
    scene.operator.stop().await;
    scene.operator.start_again().await
}

/// Waits for the baseline of the hash that a workload carried in `before`.
async fn has_baseline(scene: &Scene, workload: &Workload, before: &Snapshot) -> Result<()> {
    let key = before.key.as_deref().unwrap_or_default();
    let expected = format!("{key}={}", scene.expected_key(workload).await?);
    scene.has_baseline(workload, Some(&expected)).await
}

/// Returns the hash that SAP's controller computes for these objects, in the order of the lists.
async fn sap_hash(scene: &Scene, listed: &[&str]) -> Result<String> {
    let mut digest = Sha256::new();
    for item in listed {
        let (kind, name) = item.split_once('/').context("not KIND/NAME")?;
        let state = match scene.object(item).await {
            Ok(object) => {
                let text = |member: &str| object["metadata"][member].as_str().unwrap_or_default();
                format!("{}.{}", text("uid"), text("resourceVersion"))
            }
            Err(error) if is_missing(&error) => String::new(),
            Err(error) => return Err(error),
        };
        digest.update(format!("{kind}/{}/{name}/{state}\n", scene.namespace));
    }
    Ok(digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn unknown_hash() -> String {
    format!("v1.deadbeef.{}", "0123456789abcdef".repeat(4))
}

fn is_missing(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<kube::Error>();
    matches!(error, Some(kube::Error::Api(status)) if status.code == 404)
}

fn key_id(snapshot: &Snapshot) -> Result<String> {
    let key = snapshot.key.as_deref().context("no hash")?;
    let id = key.split('.').nth(1).context("no hash of ours")?;
    Ok(id.to_owned())
}

async fn set_key(scene: &Scene, workload: &Workload, value: &str) -> Result<()> {
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {CONFIG_HASH: value}}}}});
    scene.patch(workload, &patch).await
}

/// Deletes the keys of the config hash.
async fn forget_keys(scene: &Scene) -> Result<()> {
    let secret = format!("secret/{}", scene.installation.hash_keys());
    let namespace = &scene.installation.namespace;
    scene.delete_in(namespace, &secret).await
}

async fn stored_keys(scene: &Scene) -> Result<serde_json::Map<String, Value>> {
    let secret = format!("secret/{}", scene.installation.hash_keys());
    let namespace = &scene.installation.namespace;
    let secret = scene.object_in(namespace, &secret).await?;
    secret["data"].as_object().cloned().context("no data")
}

/// Rotates the keys: adds one that was made at this time.
async fn add_key(scene: &Scene, made: jiff::Timestamp, byte: u8) -> Result<()> {
    let name = made.strftime("%Y%m%dT%H%M%SZ").to_string();
    let key = k8s_openapi::ByteString(vec![byte; 32]);
    patch_keys(scene, &json!({"data": {name: key}})).await
}

async fn rename_key(scene: &Scene, from: &str, to: &str) -> Result<()> {
    let key = stored_keys(scene).await?[from].clone();
    patch_keys(scene, &json!({"data": {from: null, to: key}})).await
}

async fn patch_keys(scene: &Scene, patch: &Value) -> Result<()> {
    let secret = format!("secret/{}", scene.installation.hash_keys());
    let namespace = &scene.installation.namespace;
    scene.merge_in(namespace, &secret, patch).await
}
