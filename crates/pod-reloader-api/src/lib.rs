//! The custom resources of pod-reloader, as users write them, and its answers to programs.

mod cluster_config_sync;
mod field_binding;
#[cfg(test)]
mod page;
mod schema;
mod status_answer;

pub use self::cluster_config_sync::{
    ClusterConfigSync, ClusterConfigSyncSpec, ClusterConfigSyncStatus, Conflict, CopiedMetadata,
    DeletionPolicy, Source, SourceKind, Template,
};
pub use self::field_binding::{
    BoundField, FieldBinding, FieldBindingSpec, FieldBindingStatus, FieldSource, FieldState,
    FieldTarget, ValueType,
};
pub use self::schema::{
    MAX_API_VERSION_LENGTH, MAX_FIELDS, MAX_KEY_LENGTH, MAX_KIND_LENGTH, MAX_PATH_LENGTH,
    MAX_PATH_STEPS,
};
pub use self::status_answer::{NamedObject, STATUS_ANSWER_VERSION, StatusAnswer, Waiting};

/// The API group of the custom resources.
pub const GROUP: &str = "pod-reloader.github.io";
/// The prefix of the labels and annotations whose meaning pod-reloader defines.
pub const OUR_PREFIX: &str = "pod-reloader.cs.sap.com/";
/// The label that protects an object. It is the only one under this prefix that a template may give to copies.
pub const PROTECT: &str = "pod-reloader.cs.sap.com/protect";

#[cfg(test)]
mod tests {
    use super::*;
    use kube::CustomResourceExt;
    use serde_json::Value;

    /// Those of numbers, and those of texts that we use, of `supportedVersionedFormats` in
    /// `pkg/apiserver/validation/formats.go` of apiextensions-apiserver. It warns of any other.
    const FORMATS: [(&str, &[&str]); 3] = [
        ("integer", &["int32", "int64"]),
        ("number", &["float", "double"]),
        ("string", &["date-time"]),
    ];

    #[test]
    fn the_schemas_have_no_format_that_kubernetes_does_not_know() {
        fn check(schema: &Value) {
            if let (Some(kind), Some(format)) = (schema["type"].as_str(), schema["format"].as_str())
            {
                let known = FORMATS.iter().find(|(it, _)| *it == kind);
                let is_known = known.is_some_and(|(_, formats)| formats.contains(&format));
                assert!(is_known, "{kind} has the format {format}");
            }
            match schema {
                Value::Object(fields) => fields.values().for_each(check),
                Value::Array(items) => items.iter().for_each(check),
                _ => {}
            }
        }
        for crd in [ClusterConfigSync::crd(), FieldBinding::crd()] {
            check(&serde_json::to_value(crd).unwrap());
        }
    }
}
