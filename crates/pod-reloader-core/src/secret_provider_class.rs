//! Secrets of external stores, as the Secrets Store CSI driver mounts them: the classes that a workload tracks, and
//! the driver's statuses.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use kube_core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::metadata::{Metadata, Wanted, resource};
use crate::name::Name;
use crate::raw::{self, Text, read_as};

/// The API group of the driver's kinds.
pub const GROUP: &str = "secrets-store.csi.x-k8s.io";
/// The resource name of the statuses in URLs.
pub const STATUSES: &str = "secretproviderclasspodstatuses";

/// The maximum number of mounted objects that are read from one status. No pod mounts nearly as many.
const MAX_OBJECTS: usize = 4096;

/// The SecretProviderClasses that a workload tracks, and how to find its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// The names of the classes, sorted.
    pub names: Box<[Name]>,
    /// The label selector of the pods.
    pub selector: Box<str>,
}

impl Classes {
    /// Returns the memory used, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let names = self.names.iter();
        let names = names.map(|it| size_of_val(it) + it.as_str().len());
        size_of_val(self) + names.sum::<usize>() + self.selector.len()
    }
}

/// A digest of the versions that a pod has mounted. It is never shown: some providers give hashes of secrets as
/// versions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Versions([u8; 32]);

impl Versions {
    /// Returns the digest.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Versions")
    }
}

/// The versions to which all pods of a workload have been rotated, by class.
pub type Rotated = BTreeMap<Name, Versions>;

/// A SecretProviderClassPodStatus: what the driver has mounted for one pod and one class.
///
/// The driver creates it when it mounts the volume, and changes it when it has written other versions to the files.
/// Its kind has no subresource for the status, so each such change is a new generation.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Fields")]
pub struct PodStatus {
    metadata: Metadata<Self>,
    /// The class. `None` if the driver has not written it, or it is not a name.
    pub class: Option<Name>,
    /// What is mounted.
    pub versions: Versions,
    /// The number of changes, the creation included.
    pub generation: i64,
    /// The time of the last change of a field, if it is known.
    pub changed: Option<Timestamp>,
}

impl Wanted for PodStatus {}

impl PodStatus {
    /// Returns the namespace and the name. `None` if a name is invalid, which the apiserver never sends.
    pub fn id(&self) -> Option<(Name, &str)> {
        let namespace = Name::parse(self.metadata.namespace.as_deref()?).ok()?;
        Some((namespace, self.metadata.name.as_deref()?))
    }

    /// Returns the UID of the pod.
    pub fn pod(&self) -> Option<&str> {
        let mut pods = self.metadata.owners().filter(|it| &*it.kind == "Pod");
        pods.next().map(|it| &*it.uid)
    }

    /// Returns the time of the creation.
    pub(crate) fn created(&self) -> Option<Timestamp> {
        self.metadata.created()
    }
}

resource!(
    PodStatus, DynamicResourceScope, of_metadata: false,
    group: "secrets-store.csi.x-k8s.io", version: "v1",
    kind: "SecretProviderClassPodStatus", plural: "secretproviderclasspodstatuses"
);

#[derive(Deserialize)]
struct Fields {
    /// The unparsed metadata: its managed fields are parsed apart from the rest.
    metadata: Box<RawValue>,
    #[serde(default)]
    status: Status,
}

/// Returns the time of the last change of an object with this unparsed metadata, by its managed fields. It is the
/// apiserver's clock that it was read from.
pub(crate) fn last_change_of(metadata: &RawValue) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct Managed {
        #[serde(default, rename = "managedFields", deserialize_with = "last_change")]
        last_change: Option<Timestamp>,
    }
    read_as::<Managed>(metadata)?.last_change
}

fn last_change<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    #[derive(Deserialize)]
    struct Entry<'a> {
        #[serde(borrow)]
        time: Option<Text<'a>>,
    }
    raw::fold(deserializer, None, |last, entry: Entry<'de>| {
        let time = entry.time.and_then(|time| time.parse().ok());
        *last = time.max(*last);
    })
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    secret_provider_class_name: Option<String>,
    #[serde(deserialize_with = "raw::first::<MAX_OBJECTS, _, _>")]
    objects: Vec<Object>,
}

#[derive(Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(default)]
struct Object {
    id: Box<str>,
    version: Box<str>,
}

impl From<Fields> for PodStatus {
    fn from(fields: Fields) -> Self {
        let Fields { metadata, status } = fields;
        let class = status.secret_provider_class_name;
        let changed = last_change_of(&metadata);
        let metadata: Metadata<Self> = read_as(&metadata).unwrap_or_default();
        Self {
            class: class.and_then(|class| Name::parse(&class).ok()),
            versions: versions(status.objects),
            generation: metadata.generation.unwrap_or_default(),
            changed,
            metadata,
        }
    }
}

/// Returns the digest of what is mounted, in whatever order the driver lists it.
fn versions(mut objects: Vec<Object>) -> Versions {
    objects.sort_unstable();
    let mut digest = Sha256::new();
    for part in objects.iter().flat_map(|it| [&it.id, &it.version]) {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    Versions(digest.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn status(objects: &Value) -> PodStatus {
        serde_json::from_value(json!({
            "metadata": {
                "name": "web-1-shop-db", "namespace": "shop", "generation": 2,
                "creationTimestamp": "2026-11-23T10:00:00Z",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": "uid-1"}],
                "managedFields": [
                    {"manager": "secrets-store-csi", "time": "2026-11-23T10:02:00Z"},
                    {"manager": "odd", "time": "10000-01-01T00:00:00Z"},
                ],
            },
            "status": {"secretProviderClassName": "db", "objects": objects},
        }))
        .unwrap()
    }

    #[test]
    fn a_status_names_its_pod_and_class_and_the_time_of_its_last_change() {
        let status = status(&json!([{"id": "password", "version": "1"}]));
        assert_eq!(status.pod(), Some("uid-1"));
        assert_eq!(status.class.as_ref().map(Name::as_str), Some("db"));
        assert_eq!(status.generation, 2);
        assert_eq!(status.changed, "2026-11-23T10:02:00Z".parse().ok());
        assert_eq!(status.created(), "2026-11-23T10:00:00Z".parse().ok());
    }

    #[test]
    fn what_is_mounted_is_compared_whatever_its_order_and_never_printed() {
        let [one, two] = ["a", "b"].map(|id| json!({"id": id, "version": "s3cr3t"}));
        let both = status(&json!([one, two]));
        assert_eq!(both.versions, status(&json!([two, one])).versions);
        assert_ne!(both.versions, status(&json!([one])).versions);
        assert_ne!(status(&json!(null)).versions, status(&json!([{}])).versions);
        let printed = format!("{both:?}");
        assert!(!printed.contains("s3cr3t"), "{printed}");
        assert_eq!(format!("{:?}", both.versions), "Versions");
    }

    #[test]
    fn a_status_without_content_is_readable() {
        let status: PodStatus = serde_json::from_value(json!({"metadata": {"name": "x"}})).unwrap();
        assert!(status.class.is_none() && status.pod().is_none() && status.changed.is_none());
    }
}
