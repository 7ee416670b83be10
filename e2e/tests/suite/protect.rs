//! Protected ConfigMaps, Secrets and Namespaces.

mod always;
pub(crate) mod in_use;

use anyhow::{Result, ensure};
use kube::Client;
use pod_reloader_e2e::{Options, Scene, merge};
use serde_json::{Value, json};

/// The label that protects an object.
const PROTECT: &str = "pod-reloader.cs.sap.com/protect";

/// Returns options of an installation that protects.
fn protecting() -> Options {
    Options::with_values(json!({"protect": {"enabled": true}}))
}

/// Returns a Secret or a ConfigMap with the label.
fn protected(kind: &str, name: &str, protection: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {PROTECT: protection}},
        "data": {"key": "MQ=="},
    })
}

/// Returns a client of a user who has every usual right in the namespace of the scene, as its admin, and who may
/// change and delete the namespace itself.
async fn editor(scene: &Scene) -> Result<Client> {
    const USER: &str = "editor";
    let namespace = &scene.namespace;
    scene.bind(namespace, USER, "clusterrole/admin").await?;
    let rules = json!([{
        "apiGroups": [""],
        "resources": ["namespaces", "namespaces/status", "namespaces/finalize", "secrets", "configmaps"],
        "verbs": ["get", "list", "update", "patch", "delete", "deletecollection"],
    }]);
    scene.grant(namespace, USER, "editors", &rules).await?;
    scene.control_plane.client_as(USER).await
}

/// Asserts that a write was refused with these words.
fn refused<T>(answer: kube::Result<T>, words: &str, what: &str) -> Result<()> {
    let told = match answer {
        Ok(_) => "it was allowed".to_owned(),
        Err(kube::Error::Api(status)) => status.message.clone(),
        Err(error) => error.to_string(),
    };
    ensure!(told.contains(words), "{what}: {told}");
    Ok(())
}

fn merged(mut all: Value, more: Value) -> Value {
    merge(&mut all, &more);
    all
}
