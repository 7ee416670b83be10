//! Recognises a block of YAML: values of the chart, objects, or a part of a workload.

use std::fs;

use anyhow::{Context, Result};
use pod_reloader_e2e::{chart, merge};
use serde_json::{Value, json};

/// The content of a block of YAML, by its use.
pub(super) enum Manifest {
    /// Values of the chart.
    Values,
    /// Objects.
    Objects(Vec<Value>),
}

impl Manifest {
    /// Parses a block.
    ///
    /// # Errors
    /// When it is not YAML, or of an unknown form.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("it is no YAML")?;
        if documents.iter().all(are_values) {
            return Ok(Self::Values);
        }
        let objects = documents.into_iter().map(object);
        let objects = objects.collect::<Option<Vec<_>>>();
        let objects = objects.context("neither values of the chart nor objects")?;
        Ok(Self::Objects(objects))
    }
}

fn are_values(document: &Value) -> bool {
    let values = fs::read_to_string(chart().join("values.yaml")).unwrap_or_default();
    let is_value = |key: &String| {
        values
            .lines()
            .any(|line| line.starts_with(&format!("{key}:")))
    };
    document
        .as_object()
        .is_some_and(|document| document.keys().all(is_value))
}

/// Returns the object that a document shows, in whole or in part. A part belongs to a Deployment `web`,
/// unless it names a kind.
fn object(document: Value) -> Option<Value> {
    let fields = document.as_object()?;
    // Only the annotations.
    if fields.keys().all(|key| key.contains('/')) {
        return Some(on_a_workload(
            &json!({"metadata": {"annotations": document}}),
        ));
    }
    let is_workload = match fields.get("kind") {
        None => ["metadata", "spec"]
            .iter()
            .any(|field| fields.contains_key(*field)),
        Some(kind) => ["Deployment", "StatefulSet", "DaemonSet", "Rollout"]
            .iter()
            .any(|known| kind == known),
    };
    match fields.get("kind") {
        _ if is_workload => Some(on_a_workload(&document)),
        Some(_) => Some(document),
        None => None,
    }
}

fn on_a_workload(part: &Value) -> Value {
    let labels = json!({"app": "web"});
    let mut workload = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]},
            },
        },
    });
    merge(&mut workload, part);
    workload
}
