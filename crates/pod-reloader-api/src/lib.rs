//! The custom resources of pod-reloader, as users write them.

mod cluster_config_sync;
mod field_binding;
mod schema;

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

/// The API group of the custom resources, and the prefix of the labels and annotations that belong to them.
pub const GROUP: &str = "pod-reloader.github.io";
/// The prefixes of the labels and annotations whose meaning pod-reloader defines.
pub const OUR_PREFIXES: [&str; 2] = ["pod-reloader.github.io/", "pod-reloader.cs.sap.com/"];
/// The label that protects an object. It is the only one under these prefixes that a template may give to copies.
pub const PROTECT: &str = "pod-reloader.github.io/protect";
