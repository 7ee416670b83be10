//! The custom resources of pod-reloader, as users write them, and its answers to programs.

mod cluster_config_sync;
#[cfg(test)]
mod crds;
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
