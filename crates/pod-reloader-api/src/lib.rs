//! The custom resources of pod-reloader, as users write them.

mod cluster_config_sync;
mod schema;

pub use self::cluster_config_sync::{
    ClusterConfigSync, ClusterConfigSyncSpec, ClusterConfigSyncStatus, Conflict, CopiedMetadata,
    DeletionPolicy, Source, SourceKind, Template,
};

/// The API group of the custom resources, and the prefix of the labels and annotations that belong to them.
pub const GROUP: &str = "pod-reloader.github.io";
