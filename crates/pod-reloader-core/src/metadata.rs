//! The parts of metadata that watched objects need. The rest is never parsed: somebody may have put a time
//! into the managed fields that our types cannot represent, and that should not get in the way.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference, Time};
use kube_core::ObjectMeta;
use serde::{Deserialize, Deserializer};

/// Parses the identity alone.
pub(crate) fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Identity {
        name: Option<String>,
        namespace: Option<String>,
        resource_version: Option<String>,
    }
    let identity = Identity::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: identity.name,
        namespace: identity.namespace,
        resource_version: identity.resource_version,
        ..ObjectMeta::default()
    })
}

/// Parses the identity and the annotations alone.
pub(crate) fn annotated_identity<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Annotated {
        name: Option<String>,
        resource_version: Option<String>,
        annotations: Option<BTreeMap<String, String>>,
    }
    let annotated = Annotated::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: annotated.name,
        resource_version: annotated.resource_version,
        annotations: annotated.annotations,
        ..ObjectMeta::default()
    })
}

/// Parses the identity with the UID, the labels, the generation, and whether the object is being deleted: a time that
/// our types cannot represent counts, too.
pub(crate) fn labelled_identity<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Labelled {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        generation: Option<i64>,
        deletion_timestamp: Option<String>,
    }
    let labelled = Labelled::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: labelled.name,
        namespace: labelled.namespace,
        uid: labelled.uid,
        resource_version: labelled.resource_version,
        labels: labelled.labels,
        generation: labelled.generation,
        deletion_timestamp: labelled
            .deletion_timestamp
            .map(|time| Time(time.parse().unwrap_or_default())),
        ..ObjectMeta::default()
    })
}

/// Parses the identity, the labels, the annotations, the owners, the time of creation, and whether the object is being
/// deleted. A time that our types cannot represent counts as missing, or as 1970 if it is that of the deletion.
pub(crate) fn owned_identity<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Owned {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        creation_timestamp: Option<String>,
        deletion_timestamp: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let owned = Owned::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: owned.name,
        namespace: owned.namespace,
        uid: owned.uid,
        resource_version: owned.resource_version,
        creation_timestamp: owned
            .creation_timestamp
            .and_then(|time| Some(Time(time.parse().ok()?))),
        deletion_timestamp: owned
            .deletion_timestamp
            .map(|time| Time(time.parse().unwrap_or_default())),
        labels: owned.labels,
        annotations: owned.annotations,
        owner_references: owned.owner_references,
        ..ObjectMeta::default()
    })
}

/// Parses the identity with the UID, the labels, the annotations, the time of creation, whether the object is being
/// deleted, and who manages its fields. Of managed fields, nothing but the managers is parsed.
pub(crate) fn managed_identity<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Managed {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        creation_timestamp: Option<String>,
        deletion_timestamp: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        managed_fields: Option<Vec<Entry>>,
    }
    #[derive(Deserialize)]
    struct Entry {
        manager: Option<String>,
    }
    let managed = Managed::deserialize(deserializer)?;
    let entries = managed.managed_fields.into_iter().flatten();
    let entries = entries.map(|entry| ManagedFieldsEntry {
        manager: entry.manager,
        ..ManagedFieldsEntry::default()
    });
    Ok(ObjectMeta {
        name: managed.name,
        namespace: managed.namespace,
        uid: managed.uid,
        resource_version: managed.resource_version,
        creation_timestamp: managed
            .creation_timestamp
            .and_then(|time| Some(Time(time.parse().ok()?))),
        deletion_timestamp: managed
            .deletion_timestamp
            .map(|time| Time(time.parse().unwrap_or_default())),
        labels: managed.labels,
        annotations: managed.annotations,
        managed_fields: Some(entries.collect()),
        ..ObjectMeta::default()
    })
}

/// Makes a type with a field `metadata` a resource of the API. `of_metadata` is true if only its metadata is
/// read.
macro_rules! resource {
    (
        $object:ty, $scope:ty, of_metadata: $of_metadata:literal,
        group: $group:literal, version: $version:literal, kind: $kind:literal, plural: $plural:literal
    ) => {
        impl ::kube_core::Resource for $object {
            type DynamicType = ();
            type Scope = $scope;

            fn metadata_api() -> bool {
                $of_metadata
            }

            fn kind((): &()) -> ::std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> ::std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> ::std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> ::std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &::kube_core::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ::kube_core::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use resource;
