//! Fields follow their keys, and nothing else is written.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use pod_reloader_e2e::{AuditEvent, Mark, PATIENCE, Scene, done_if, done_with, wait_for};
use serde_json::{Value, json};

use super::{binding_fields, harbor, harbor_s3, s3, with_definitions};

/// The target of most bindings, which are those of the scene.
pub(super) const HARBORS: &str = "harbors";
pub(super) const STORES: &str = "stores";
/// The name of the objects by which a test sees that the operator rests.
const SENTINEL: &str = "bind-sentinel";

#[tokio::test]
async fn a_key_is_in_its_field_within_a_second_and_nothing_else_costs_a_write() -> Result<()> {
    Scene::play(binding_fields(Value::Null), async |scene| {
        with_definitions(&scene.control_plane).await?;
        let mark = scene.mark().await?;
        scene.apply(&[s3("key-0", "images"), harbor(json!({})), harbor_s3(json!({}))]).await?;
        is(scene, "harbor-s3", "Applied").await?;
        let access_key = "/spec/imageChartStorage/s3/accesskey";
        has(scene, HARBORS, "registry", access_key, json!("key-0")).await?;
        for round in 1..=3 {
            // Other keys, and labels of the Secret.
            let noise = json!({"metadata": {"labels": {"round": round.to_string()}}, "stringData": {"other": round.to_string()}});
            let mut noisy = s3(&format!("key-{}", round - 1), "images");
            pod_reloader_e2e::merge(&mut noisy, &noise);
            scene.apply(&[noisy]).await?;
            let value = format!("key-{round}");
            scene.apply(&[s3(&value, "images")]).await?;
            has(scene, HARBORS, "registry", access_key, json!(value)).await?;
        }
        // Whatever the owner of the Harbor does around it.
        let status = r#"{"status": {"conditions": [{"type": "InProgress", "status": "False"}]}}"#;
        let status = ["patch", "harbor", "registry", "--subresource=status", "--type=merge", "--patch", status];
        scene.kubectl(&status).await?;
        scene.label("harbor/registry", "team=shop").await?;

        scene.operator.stop().await;
        let restarted = scene.mark().await?;
        scene.operator.start_again().await?;
        wait_for("it to look at the field", PATIENCE, async || {
            let requests = scene.requests(restarted).await?;
            let looked = requests.iter().any(|it| it.verb == "get" && it.resource == HARBORS);
            done_if(looked, "")
        })
        .await?;
        rests(scene).await?;
        let mut patched = scene.requests(restarted).await?;
        patched.retain(|it| it.verb == "patch" && it.name != SENTINEL && [HARBORS, "fieldbindings"].contains(&&*it.resource));
        ensure!(patched.is_empty(), "a restart is no write: {patched:?}");

        let all = scene.requests_naming(&scene.namespace, mark).await?;
        let ours = scene.installation.username();
        let delays: Vec<Duration> = written(&all, &ours).skip(1).map(|write| {
            let secrets = all.iter().filter(|it| {
                it.resource == "secrets" && it.namespace == scene.namespace
                    && it.user != ours && it.verb != "get" && it.received < write.time
            });
            let change = secrets.max_by_key(|it| it.time).map(|it| it.time);
            change.map_or(Duration::MAX, |at| write.time.duration_since(at).try_into().unwrap_or_default())
        }).collect();
        ensure!(delays.len() == 3, "one write for each value, and no other: {delays:?}");
        ensure!(delays.iter().any(|it| *it < Duration::from_secs(1)), "{delays:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_is_missing_leaves_the_field_as_it_is_and_is_said() -> Result<()> {
    Scene::play(binding_fields(Value::Null), async |scene| {
        with_definitions(&scene.control_plane).await?;
        let access_key = "/spec/imageChartStorage/s3/accesskey";
        scene.apply(&[harbor_s3(json!({}))]).await?;
        is(scene, "harbor-s3", "SourceNotFound").await?;
        scene.apply(&[s3("1", "images")]).await?;
        is(scene, "harbor-s3", "TargetNotFound").await?;
        scene.apply(&[harbor(json!({}))]).await?;
        is(scene, "harbor-s3", "Applied").await?;
        // A key that goes, and comes back.
        let without = json!([{"op": "remove", "path": "/data/accesskey"}]).to_string();
        let patch = ["patch", "secret", "s3", "--type=json", "--patch", &without];
        scene.kubectl(&patch).await?;
        let status = is(scene, "harbor-s3", "KeyNotFound").await?;
        ensure!(status["fields"][1]["state"] == "Applied", "{status}");
        scene.delete("secret/s3").await?;
        is(scene, "harbor-s3", "SourceNotFound").await?;
        has(scene, HARBORS, "registry", access_key, json!("1")).await?;
        scene.apply(&[s3("2", "images")]).await?;
        has(scene, HARBORS, "registry", access_key, json!("2")).await?;
        // Storage that the users of the Harbor have taken out of its spec does not come back.
        let without = json!([
            {"op": "remove", "path": "/spec/imageChartStorage/s3"},
            {"op": "add", "path": "/spec/imageChartStorage/filesystem", "value": {"registryPersistentVolume": {"claimName": "images"}}},
        ]);
        let patch = ["patch", "harbor", "registry", "--type=json", "--patch", &without.to_string()];
        scene.kubectl(&patch).await?;
        is(scene, "harbor-s3", "PathNotFound").await?;
        let registry = scene.custom_object("goharbor.io/v1beta1", HARBORS, "registry").await?;
        ensure!(registry["spec"]["imageChartStorage"]["s3"].is_null());
        scene.delete("harbor/registry").await?;
        is(scene, "harbor-s3", "TargetNotFound").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn of_two_bindings_of_one_field_the_older_has_it_until_it_goes() -> Result<()> {
    Scene::play(binding_fields(Value::Null), async |scene| {
        with_definitions(&scene.control_plane).await?;
        // Of two of the same second, the first by name is the older.
        let names = ["a-first", "b-second"];
        let bindings = names.map(|name| {
            let fields = json!([{"key": name, "path": "spec.password"}]);
            bind(name, "creds", "store", fields)
        });
        let creds = secret("creds", json!({"a-first": "first", "b-second": "second"}));
        scene.apply(&[creds, store("store", json!({}))]).await?;
        for binding in &bindings {
            scene.apply(std::slice::from_ref(binding)).await?;
        }
        is(scene, "a-first", "Applied").await?;
        let status = is(scene, "b-second", "Conflict").await?;
        ensure!(
            status["fields"][0]["message"]
                .as_str()
                .is_some_and(|it| it.contains("a-first")),
            "{status}"
        );
        has(scene, STORES, "store", "/spec/password", json!("first")).await?;
        let mark = scene.mark().await?;
        scene
            .apply(&[secret(
                "creds",
                json!({"a-first": "first", "b-second": "other"}),
            )])
            .await?;
        rests(scene).await?;
        ensure!(writes(scene, mark).await?.is_empty(), "the newer one waits");
        scene.delete("fieldbinding/a-first").await?;
        is(scene, "b-second", "Applied").await?;
        has(scene, STORES, "store", "/spec/password", json!("other")).await
    })
    .await
}

/// Returns a FieldBinding of fields of a Store.
pub(super) fn bind(name: &str, source: &str, store: &str, fields: Value) -> Value {
    json!({
        "apiVersion": "pod-reloader.github.io/v1alpha1",
        "kind": "FieldBinding",
        "metadata": {"name": name},
        "spec": {
            "source": {"kind": "Secret", "name": source},
            "target": {"apiVersion": "example.com/v1", "kind": "Store", "name": store},
            "fields": fields,
        },
    })
}

pub(super) fn store(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Store", "metadata": {"name": name}, "spec": spec})
}

pub(super) fn secret(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
}

/// Waits until the condition of a FieldBinding has this reason. Returns its status.
pub(super) async fn is(scene: &Scene, name: &str, reason: &str) -> Result<Value> {
    let what = format!("FieldBinding {name} to be {reason}");
    wait_for(&what, PATIENCE, async || {
        let version = "pod-reloader.github.io/v1alpha1";
        let binding = scene.custom_object(version, "fieldbindings", name).await?;
        let status = binding["status"].clone();
        let is_current = status["observedGeneration"] == binding["metadata"]["generation"];
        let is_it = status["conditions"][0]["reason"] == reason;
        done_with(is_current && is_it, status.to_string(), status)
    })
    .await
}

/// Waits until a field of a custom resource has a value.
pub(super) async fn has(
    scene: &Scene,
    plural: &str,
    name: &str,
    pointer: &str,
    value: Value,
) -> Result<()> {
    let version = match plural {
        HARBORS => "goharbor.io/v1beta1",
        _ => "example.com/v1",
    };
    wait_for(&format!("{pointer} of {name}"), PATIENCE, async || {
        let object = scene.custom_object(version, plural, name).await?;
        done_if(
            object.pointer(pointer) == Some(&value),
            object["spec"].to_string(),
        )
    })
    .await
}

/// Waits until the operator has handled everything that happened before: it fills one more field.
pub(super) async fn rests(scene: &Scene) -> Result<()> {
    let value = Timestamp::now().to_string();
    let fields = json!([{"key": "value", "path": "spec.password"}]);
    let all = [
        secret(SENTINEL, json!({"value": value})),
        store(SENTINEL, json!({})),
        bind(SENTINEL, SENTINEL, SENTINEL, fields),
    ];
    scene.apply(&all).await?;
    has(scene, STORES, SENTINEL, "/spec/password", json!(value)).await
}

/// Returns the writes of the operator to custom resources since a mark, except for that of the sentinel.
pub(super) async fn writes(scene: &Scene, mark: Mark) -> Result<Vec<AuditEvent>> {
    let all = scene.requests(mark).await?;
    let user = scene.installation.username();
    Ok(written(&all, &user).cloned().collect())
}

fn written<'a>(all: &'a [AuditEvent], user: &'a str) -> impl Iterator<Item = &'a AuditEvent> {
    all.iter().filter(move |it| {
        it.user == user
            && it.verb == "patch"
            && it.name != SENTINEL
            && [HARBORS, STORES].contains(&&*it.resource)
    })
}

/// Returns the state of each field in a status, by path.
pub(super) fn states(status: &Value) -> Result<Vec<(&str, &str)>> {
    let fields = status["fields"].as_array().context("it has fields")?;
    Ok(fields
        .iter()
        .filter_map(|it| Some((it["path"].as_str()?, it["state"].as_str()?)))
        .collect())
}
