//! Names and keys that tests share.

use k8s_openapi::ByteString;
use pod_reloader_core::hash::{HashKey, KEY_LENGTH, Keyring};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::WorkloadId;
use serde_json::{Value, json};

/// Returns a name.
///
/// # Panics
///
/// Panics if it is not valid.
pub fn name(text: &str) -> Name {
    Name::parse(text).expect("it is a name")
}

/// Returns what names a Deployment in the namespace `ns`.
pub fn id(text: &str) -> WorkloadId {
    WorkloadId {
        kind: WorkloadKind::DEPLOYMENT,
        namespace: name("ns"),
        name: text.into(),
    }
}

/// Returns what names a ConfigMap in the namespace `ns`.
pub fn reference(text: &str) -> Reference {
    Reference::config_map(&name("ns"), &name(text))
}

/// Returns one hash key.
pub fn keys() -> Keyring {
    Keyring::new(vec![HashKey::new([7; KEY_LENGTH])]).expect("there is a key")
}

/// Returns the Secret that has [`keys`].
pub fn keys_secret() -> Value {
    json!({"metadata": {}, "data": {"20250101T000000Z": ByteString(vec![7; KEY_LENGTH])}})
}
