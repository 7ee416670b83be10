//! FieldBindings: fields of custom resources that follow the keys of Secrets.

mod clients;
mod created;
mod fields;
pub(crate) mod guards;
mod siblings;
mod tenant;

use anyhow::Result;
use pod_reloader_e2e::crds::crd;
use pod_reloader_e2e::{
    Attempt, ControlPlane, Options, PATIENCE, Scene, Tested, done_if, merge, wait_for,
};
use serde_json::{Value, json};

use crate::custom::managed::install_to_stay;

/// Returns the kinds whose fields are bound, as a value of the chart. They are the same in all scenes, because the policy
/// of each operator refuses all others, in all namespaces.
pub(crate) fn kinds() -> Value {
    json!([
        {"group": "goharbor.io", "version": "v1beta1", "resource": "harbors", "kind": "Harbor", "fillOnCreate": true},
        {"group": "example.com", "version": "v1", "resource": "stores", "kind": "Store"},
    ])
}

/// Returns options of an operator that binds fields, with more values.
pub(crate) fn binding_fields(values: Value) -> Options {
    let from = json!([{"ipBlock": {"cidr": "127.0.0.0/8"}}]);
    let mut all = json!({
        "fieldBindings": {"enabled": true, "kinds": kinds()},
        // The chart asks for it. Nothing enforces it here.
        "networkPolicy": {"enabled": true, "webhookFrom": from},
    });
    merge(&mut all, &values);
    Options {
        tested: Tested::Writer,
        values: all,
        ..Options::default()
    }
}

/// Installs the definitions of these kinds, which stay: all scenes share them.
pub(crate) async fn with_definitions(control_plane: &ControlPlane) -> Result<()> {
    for name in ["harbors", "stores"] {
        install_to_stay(control_plane, &crd(name)).await?;
    }
    Ok(())
}

/// Returns Harbor `registry`, with some fields of its own.
pub(crate) fn harbor(fields: Value) -> Value {
    let mut object = json!({
        "apiVersion": "goharbor.io/v1beta1",
        "kind": "Harbor",
        "metadata": {"name": "registry"},
        "spec": {
            "externalURL": "https://harbor.example.com",
            "version": "2.5.0",
            "harborAdminPasswordRef": "admin",
            "imageChartStorage": {"s3": {"bucket": "images", "region": "eu", "secretkeyRef": "s3"}},
            "database": {"hosts": [{"host": "db"}], "username": "harbor"},
            "redis": {"host": "redis", "port": 6379},
            "expose": {"core": {"ingress": {"host": "harbor.example.com"}}},
        },
    });
    merge(&mut object, &fields);
    object
}

/// Returns a FieldBinding of Secret `s3` and Harbor `registry`, with some fields of its own.
fn harbor_s3(fields: Value) -> Value {
    let mut object = json!({
        "apiVersion": "pod-reloader.github.io/v1alpha1",
        "kind": "FieldBinding",
        "metadata": {"name": "harbor-s3"},
        "spec": {
            "source": {"kind": "Secret", "name": "s3"},
            "target": {"apiVersion": "goharbor.io/v1beta1", "kind": "Harbor", "name": "registry"},
            "fields": [
                {"key": "accesskey", "path": "spec.imageChartStorage.s3.accesskey"},
                {"key": "bucket", "path": "spec.imageChartStorage.s3.bucket"},
            ],
        },
    });
    merge(&mut object, &fields);
    object
}

/// Returns Secret `s3`.
fn s3(access_key: &str, bucket: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s3"},
        "stringData": {"accesskey": access_key, "bucket": bucket},
    })
}

/// Waits until the condition of FieldBinding `harbor-s3` has this reason. Returns its status.
async fn becomes(scene: &Scene, reason: &str) -> Result<Value> {
    let what = format!("the FieldBinding to be {reason}");
    wait_for(&what, PATIENCE, async || {
        let version = "pod-reloader.github.io/v1alpha1";
        let binding = scene.custom_object(version, "fieldbindings", "harbor-s3");
        let binding = binding.await?;
        let status = binding["status"].clone();
        let is_current = status["observedGeneration"] == binding["metadata"]["generation"];
        Ok(
            match is_current && status["conditions"][0]["reason"] == reason {
                true => Attempt::Done(status),
                false => Attempt::NotYet(status.to_string()),
            },
        )
    })
    .await
}

/// Makes the writer fill fields of an object of each kind, from a source of each kind, and repeat an Event.
pub(crate) async fn fields_of_each_kind(scene: &Scene) -> Result<()> {
    with_definitions(&scene.control_plane).await?;
    let of_store = json!({
        "metadata": {"name": "store"},
        "spec": {
            "target": {"apiVersion": "example.com/v1", "kind": "Store", "name": "store"},
            "fields": [{"key": "accesskey", "path": "spec.password"}],
        },
    });
    let store = json!({
        "apiVersion": "example.com/v1", "kind": "Store", "metadata": {"name": "store"}, "spec": {},
    });
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"port": "5432"},
    });
    let of_settings = json!({
        "metadata": {"name": "settings"},
        "spec": {
            "source": {"kind": "ConfigMap", "name": "settings"},
            "target": {"apiVersion": "example.com/v1", "kind": "Store", "name": "store"},
            "fields": [{"key": "port", "path": "spec.port", "as": "Integer"}],
        },
    });
    let all = [
        s3("1", "images"),
        settings,
        harbor(json!({})),
        store,
        harbor_s3(json!({})),
        harbor_s3(of_store),
        harbor_s3(of_settings),
    ];
    scene.apply(&all).await?;
    becomes(scene, "Applied").await?;
    wait_for("the fields of the Store", PATIENCE, async || {
        let store = scene.custom_object("example.com/v1", "stores", "store");
        let spec = store.await?["spec"].clone();
        done_if(
            spec["password"] == "1" && spec["port"] == 5432,
            spec.to_string(),
        )
    })
    .await?;
    for _ in 0..2 {
        scene.delete("secret/s3").await?;
        becomes(scene, "SourceNotFound").await?;
        scene.apply(&[s3("1", "images")]).await?;
        becomes(scene, "Applied").await?;
    }
    Ok(())
}
