//! The table of everything that is read from objects which somebody else can write: `tests/weight.rs` reads each type
//! from documents of tiny items, and counts the memory that it takes.

use crate::foreign::Foreign;

/// A row of the table.
#[derive(Clone, Copy)]
pub struct Reader {
    /// The name of the type.
    pub name: &'static str,
    /// The memory that it may take whatever the size of the document, in bytes: for lists that are read up to a limit.
    pub fixed: usize,
    /// Reads a document, and drops what it has read. Returns false if the document cannot be read.
    pub read: fn(&[u8]) -> bool,
}

/// The memory for what is short in every object.
const SHORT: usize = 32 << 10;
/// The memory for the lists of a pod spec, in bytes: each is read up to its limit.
pub const POD_SPEC: usize = 16 << 20;

macro_rules! foreign {
    ($($object:ty $(: $fixed:expr)?),* $(,)?) => {
        $(impl Foreign for $object {})*

        /// The rows of the table.
        pub const READERS: &[Reader] = &[$(Reader {
            name: stringify!($object),
            fixed: SHORT $(+ $fixed)?,
            read: |document| serde_json::from_slice::<$object>(document).is_ok(),
        }),*];
    };
}

foreign! {
    crate::config_sync::content::Object,
    crate::cron_job::CronJob,
    crate::cron_job::Job,
    crate::config_sync::NamespaceMetadata,
    crate::config_sync::TargetMetadata,
    crate::field_binding::listed::ListedBinding,
    crate::field_binding::metadata::BoundMetadata,
    crate::field_binding::source::Source,
    crate::kept::Content,
    crate::kept::KeptMetadata,
    crate::object::CustomObject: POD_SPEC,
    crate::object::WorkloadObject: POD_SPEC,
    crate::protect::ProtectedMetadata,
    crate::protect::Templated: POD_SPEC,
    crate::reference::ConfigMetadata,
    crate::reference::NamespaceMetadata,
    crate::release::Application,
    crate::release::Kustomization,
    crate::release::ReleaseSecret,
    crate::reload_round::ReloadingPod,
    crate::revision::ControllerRevision,
    crate::revision::CopyMetadata,
    crate::revision::PastReplicaSet,
    crate::revision::Pod: POD_SPEC,
    crate::revision::ReplicaSet,
    crate::rotation::MountingPod,
    crate::secret_provider_class::PodStatus,
    crate::stuck::SetPod,
    crate::stuck::StatefulSet,
    crate::slim::Slim<pod_reloader_api::ClusterConfigSync>,
    crate::slim::Slim<pod_reloader_api::FieldBinding>,
}
