//! ClusterConfigSync: copies a ConfigMap or Secret to namespaces.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::schema;

/// Copies of one ConfigMap or Secret in all namespaces that a selector picks.
#[derive(CustomResource, Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "pod-reloader.github.io",
    version = "v1alpha1",
    kind = "ClusterConfigSync",
    plural = "clusterconfigsyncs",
    shortname = "ccs",
    category = "pod-reloader",
    status = "ClusterConfigSyncStatus",
    derive = "PartialEq",
    doc = "Copies a ConfigMap or Secret to all namespaces that a selector picks, and keeps the copies exact.",
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.source.kind"),
    printcolumn(name = "Source", type_ = "string", json_path = ".spec.source.name"),
    printcolumn(name = "From", type_ = "string", json_path = ".spec.source.namespace"),
    printcolumn(name = "Selected", type_ = "integer", json_path = ".status.selected"),
    printcolumn(name = "Synced", type_ = "integer", json_path = ".status.synced"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[expect(
    clippy::duplicated_attributes,
    reason = "columns have types in common, which are no attributes"
)]
pub struct ClusterConfigSyncSpec {
    /// The object that is copied. It is only read, never written. It cannot be changed later.
    pub source: Source,
    /// The labels of the namespaces that get a copy. An empty selector picks all of them. The source's own namespace, pod-reloader's own, those that begin with kube-, and those that are being deleted never get one.
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: LabelSelector,
    /// The keys to copy, if not all of them. The copy of a Secret keeps its type if the type is one of Kubernetes and promises no other keys, and otherwise has the type Opaque.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::keys")]
    pub keys: Vec<String>,
    /// The labels and annotations of the copies. They have no others, except the marks of pod-reloader.
    #[serde(default, skip_serializing_if = "Template::is_empty")]
    pub template: Template,
    /// What becomes of copies when this object is deleted, or no longer selects their namespace.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// The object that is copied.
#[derive(
    Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.kind != 'ConfigMap' || self.name != 'kube-root-ca.crt'",
    "message": "Kubernetes itself puts ConfigMap kube-root-ca.crt into each namespace",
}, {
    "rule": "self == oldSelf",
    "message": "the source cannot be changed: create another ClusterConfigSync",
}]))]
pub struct Source {
    /// ConfigMap or Secret.
    pub kind: SourceKind,
    /// Its namespace.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    )]
    pub namespace: String,
    /// Its name, which the copies have, too.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
}

/// The kind of object that is copied.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum SourceKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

/// The part of the copies that does not come from the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Template {
    /// The labels and annotations of the copies.
    #[serde(default)]
    pub metadata: CopiedMetadata,
}

impl Template {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The labels and annotations of the copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct CopiedMetadata {
    /// The labels of the copies.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "few"
    )]
    #[schemars(schema_with = "schema::labels")]
    pub labels: BTreeMap<String, String>,
    /// The annotations of the copies.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "few"
    )]
    #[schemars(schema_with = "schema::annotations")]
    pub annotations: BTreeMap<String, String>,
}

/// Reads the first entries of a map. By the definition of the kind, there are no more.
fn few<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Few;

    impl<'de> Visitor<'de> for Few {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of strings")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut few = BTreeMap::new();
            while let Some((key, value)) = map.next_entry()? {
                if few.len() < schema::MAX_COPIED {
                    few.insert(key, value);
                }
            }
            Ok(few)
        }
    }

    deserializer.deserialize_map(Few)
}

/// What becomes of copies that are no longer wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum DeletionPolicy {
    /// They are deleted.
    #[default]
    Delete,
    /// They stay, and nobody updates them any more.
    Retain,
}

/// The state of the copies.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConfigSyncStatus {
    /// The generation of the spec that this describes.
    #[serde(default)]
    pub observed_generation: i64,
    /// The number of namespaces that should have a copy.
    #[serde(default)]
    #[schemars(schema_with = "schema::count")]
    pub selected: u32,
    /// The number of those that have an exact one.
    #[serde(default)]
    #[schemars(schema_with = "schema::count")]
    pub synced: u32,
    /// True once all copies have a seal, by which pod-reloader knows its own. Earlier versions made none.
    #[serde(default)]
    pub sealed: bool,
    /// The UID that the source's Namespace had when the spec of this generation was first seen. If that Namespace is deleted and made again, nothing is copied from it before the spec is changed.
    #[serde(default)]
    #[schemars(skip_serializing_if = "String::is_empty")]
    pub source_namespace_uid: String,
    /// Namespaces that cannot have an exact copy, with the reason. At most 50 of them are shown.
    #[serde(default)]
    #[schemars(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<Conflict>,
    /// One condition, Ready. It is true if each selected namespace has an exact copy.
    #[serde(default)]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A namespace that cannot have an exact copy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Conflict {
    /// The namespace.
    pub namespace: String,
    /// The reason, in one word.
    pub reason: String,
    /// The reason, in a sentence.
    #[serde(default)]
    pub message: String,
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;

    use super::*;

    #[test]
    fn a_spec_is_read_as_users_write_it() {
        let spec: ClusterConfigSyncSpec = serde_json::from_value(serde_json::json!({
            "source": {"kind": "Secret", "namespace": "platform", "name": "pull"},
            "namespaceSelector": {},
        }))
        .unwrap();
        assert_eq!(spec.deletion_policy, DeletionPolicy::Delete);
        assert_eq!((spec.keys.len(), spec.template.is_empty()), (0, true));
        let written = serde_json::to_value(&spec).unwrap();
        let fields: Vec<_> = written.as_object().unwrap().keys().cloned().collect();
        assert_eq!(fields, ["deletionPolicy", "namespaceSelector", "source"]);
    }

    /// What a merge patch leaves out stays as it was.
    #[test]
    fn a_status_is_written_with_all_of_its_fields() {
        let written = serde_json::to_value(ClusterConfigSyncStatus::default()).unwrap();
        let definition = serde_json::to_value(ClusterConfigSync::crd()).unwrap();
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        let fields = definition.pointer(status).unwrap().as_object().unwrap();
        assert!(fields.keys().eq(written.as_object().unwrap().keys()));
    }
}
