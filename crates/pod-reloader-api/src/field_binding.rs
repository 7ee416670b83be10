//! FieldBinding: keeps fields of a custom resource equal to keys of a ConfigMap or Secret.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SourceKind;
use crate::schema::{self, MAX_API_VERSION_LENGTH, MAX_KIND_LENGTH};

/// Fields of one custom resource that are equal to keys of one ConfigMap or Secret of the same namespace.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "pod-reloader.github.io",
    version = "v1alpha1",
    kind = "FieldBinding",
    plural = "fieldbindings",
    shortname = "fb",
    category = "pod-reloader",
    namespaced,
    status = "FieldBindingStatus",
    derive = "PartialEq",
    doc = "Keeps fields of a custom resource equal to keys of a ConfigMap or Secret. Anyone who can read the custom resource can read the values.",
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.source.kind"),
    printcolumn(name = "Source", type_ = "string", json_path = ".spec.source.name"),
    printcolumn(name = "To", type_ = "string", json_path = ".spec.target.kind"),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.target.name"),
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
pub struct FieldBindingSpec {
    /// The object whose keys are written to fields. It is only read, never written.
    pub source: FieldSource,
    /// The custom resource whose fields are written.
    pub target: FieldTarget,
    /// The fields. They are written together: if the cluster refuses the value of one of them, it gets none of them.
    #[schemars(schema_with = "schema::fields")]
    pub fields: Vec<BoundField>,
}

/// The object whose keys are written to fields.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct FieldSource {
    /// ConfigMap or Secret.
    pub kind: SourceKind,
    /// Its name.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
}

/// The custom resource whose fields are written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.apiVersion.contains('.') && !self.apiVersion.contains('.k8s.io/') && !self.apiVersion.startsWith('k8s.io/') && !self.apiVersion.startsWith('pod-reloader.github.io/')",
    "message": "fields of custom resources alone can be bound, not fields of the kinds of Kubernetes or of pod-reloader itself",
}]))]
pub struct FieldTarget {
    /// Its API group and version, such as goharbor.io/v1beta1. The paths of the fields are in the form of this version.
    #[schemars(
        length(min = 3, max = MAX_API_VERSION_LENGTH),
        regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/v[0-9a-z]+$")
    )]
    pub api_version: String,
    /// Its kind, such as Harbor. The operator writes only kinds that it has been given.
    #[schemars(length(min = 1, max = MAX_KIND_LENGTH), regex(pattern = r"^[A-Za-z][A-Za-z0-9]*$"))]
    pub kind: String,
    /// Its name.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
}

/// One field, and the key that it is equal to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct BoundField {
    /// The key of the source.
    pub key: String,
    /// The path of the field, under spec. An element of a list is named by a field of its own: spec.users[name=admin].password. A name with dots stands in brackets: spec.config[log.level].
    pub path: String,
    /// The type of the field.
    #[serde(rename = "as", default)]
    pub value_type: ValueType,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ValueType {
    /// The bytes as they are, with a newline at the end if there is one.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// true or false.
    Boolean,
}

/// The state of the fields.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldBindingStatus {
    /// The generation of the spec that this describes.
    #[serde(default)]
    pub observed_generation: i64,
    /// The state of each field. It has no value and no digest of one.
    #[serde(default)]
    #[schemars(schema_with = "schema::field_states")]
    pub fields: Vec<FieldState>,
    /// One condition, Ready. It is true if each field is equal to its key.
    #[serde(default)]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// The state of one field.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct FieldState {
    /// The path of the field.
    pub path: String,
    /// Its state, in one word: Applied, or why it is not equal to its key.
    pub state: String,
    /// Its state in a sentence, unless it is Applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_read_as_users_write_it() {
        let written = serde_json::json!({
            "source": {"kind": "Secret", "name": "s3-creds"},
            "target": {"apiVersion": "goharbor.io/v1beta1", "kind": "Harbor", "name": "registry"},
            "fields": [
                {"key": "accesskey", "path": "spec.imageChartStorage.s3.accesskey"},
                {"key": "port", "path": "spec.port", "as": "Integer"},
            ],
        });
        let spec: FieldBindingSpec = serde_json::from_value(written).unwrap();
        let types: Vec<_> = spec.fields.iter().map(|it| it.value_type).collect();
        assert_eq!(types, [ValueType::String, ValueType::Integer]);
    }
}
