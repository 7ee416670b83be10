//! The parts of the schemas that are not derived from types.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::{OUR_PREFIX, PROTECT};

/// The maximum number of fields of a FieldBinding.
pub const MAX_FIELDS: usize = 64;
/// The maximum length of a key, in characters.
pub const MAX_KEY_LENGTH: usize = 253;
/// The maximum length of the path of a field, in characters.
pub const MAX_PATH_LENGTH: usize = 256;
/// The maximum number of steps of a path after `spec`.
pub const MAX_PATH_STEPS: usize = 16;
/// The maximum length of the API group and version of a target, in characters.
pub const MAX_API_VERSION_LENGTH: usize = 317;
/// The maximum length of the kind of a target, in characters.
pub const MAX_KIND_LENGTH: usize = 63;
/// The maximum length of the sentence about the state of a field, in characters.
const MAX_MESSAGE_LENGTH: usize = 1024;

/// Returns the schema of a LabelSelector.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": {
                "type": "array",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string"},
                        "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": {
                            "type": "array",
                            "maxItems": 1024,
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string"},
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                        "message": "In and NotIn need values, and the others must not have any",
                    }],
                },
            },
        },
    })
}

/// Returns the schema of a count. Kubernetes knows no formats of numbers without a sign, and warns of them.
pub(crate) fn count(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int64", "minimum": 0})
}

/// Returns the schema of a list of data keys.
pub(crate) fn keys(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 256,
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": r"^[-._a-zA-Z0-9]+$"},
    })
}

/// Returns the schema of the name of an object.
pub(crate) fn object_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    })
}

/// Returns the schema of a list of fields and their keys. No path is in it twice.
pub(crate) fn fields(_: &mut SchemaGenerator) -> Schema {
    let but_the_last = MAX_PATH_STEPS - 1;
    // Paths are in logs and Events, so they have no control characters.
    let c = r"\x00-\x1f\x7f-\x{9f}";
    let path = format!(
        r"^spec(\.[^].\[={c}]+|\[[^]\[={c}]+(=[^]\[{c}]+)?\]){{0,{but_the_last}}}(\.[^].\[={c}]+|\[[^]\[={c}]+\])$"
    );
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_FIELDS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["path"],
        "items": {
            "type": "object",
            "required": ["key", "path"],
            "properties": {
                "key": {
                    "description": "The key of the source.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_KEY_LENGTH,
                    "pattern": r"^[-._a-zA-Z0-9]+$",
                },
                "path": {
                    "description": "The path of the field, under spec. An element of a list is named by a field of its own: spec.users[name=admin].password. A name with dots stands in brackets: spec.config[log.level].",
                    "type": "string",
                    "maxLength": MAX_PATH_LENGTH,
                    "pattern": path,
                },
                "as": {
                    "description": "The type of the field: String (the bytes as they are), Integer or Boolean.",
                    "type": "string",
                    "enum": ["String", "Integer", "Boolean"],
                    "default": "String",
                },
            },
        },
    })
}

/// Returns the schema of the states of fields.
pub(crate) fn field_states(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["path"],
        "maxItems": MAX_FIELDS,
        "items": {
            "type": "object",
            "required": ["path", "state"],
            "properties": {
                "path": {"type": "string", "maxLength": MAX_PATH_LENGTH},
                "state": {"type": "string", "maxLength": 63},
                "message": {"type": "string", "maxLength": MAX_MESSAGE_LENGTH},
            },
        },
    })
}

/// Returns the schema of the labels of copies.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    let rule = format!("self.all(key, key == '{PROTECT}' || !{})", is_ours());
    let message = format!("of the labels of pod-reloader, copies may only have {PROTECT}");
    metadata(63, &rule, &message)
}

/// The maximum number of labels, and of annotations, of copies.
pub(crate) const MAX_COPIED: usize = 32;

/// Returns the schema of the annotations of copies.
pub(crate) fn annotations(_: &mut SchemaGenerator) -> Schema {
    let rule = format!("self.all(key, !{})", is_ours());
    let message = "copies may not have annotations of pod-reloader other than its own marks";
    metadata(4096, &rule, message)
}

/// In CEL: whether a key is one of ours.
fn is_ours() -> String {
    format!("key.startsWith('{OUR_PREFIX}')")
}

fn metadata(longest: usize, rule: &str, message: &str) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": MAX_COPIED,
        "additionalProperties": {"type": "string", "maxLength": longest},
        "x-kubernetes-validations": [{"rule": rule, "message": message}],
    })
}

/// Returns the schema of the conditions of a status.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string"},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string"},
                "message": {"type": "string"},
                "observedGeneration": {"type": "integer", "format": "int64"},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
            },
        },
    })
}
