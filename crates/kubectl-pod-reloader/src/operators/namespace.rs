//! Namespaces, as far as operators select them.

use std::collections::BTreeMap;

use pod_reloader_core::annotations::Inherited;
use serde_json::Value;

use crate::cluster::{Cluster, Place, Unseen};

/// What a namespace says of its workloads.
#[derive(Debug, Default)]
pub(crate) struct Namespace {
    /// The labels, by which operators may select it.
    pub(crate) labels: BTreeMap<String, String>,
    /// The annotations that its workloads may have from it.
    pub(crate) inherited: Inherited,
}

/// Reads a namespace, if it can be seen.
pub(crate) async fn namespace(cluster: &Cluster, name: &str) -> Result<Namespace, Unseen> {
    let namespaces = Place::new("v1", "namespaces", None);
    let mut namespace: Value = cluster.get(namespaces, name).await?;
    Ok(Namespace::of(&mut namespace))
}

impl Namespace {
    /// Reads a Namespace as stored, and takes its labels out of it.
    pub(crate) fn of(namespace: &mut Value) -> Self {
        let annotations = &namespace["metadata"]["annotations"];
        let inherited = Inherited::of(|key| annotations[key].as_str());
        let labels = namespace["metadata"]["labels"].take();
        Self {
            labels: serde_json::from_value(labels).unwrap_or_default(),
            inherited,
        }
    }
}
