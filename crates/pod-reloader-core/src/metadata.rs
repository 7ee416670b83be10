//! The parts of metadata that objects need. The rest is never parsed: somebody may have put a time into the managed
//! fields that our types cannot represent, and that should not get in the way.

use std::marker::PhantomData;
use std::ops::Deref;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::ObjectMeta;
use serde::{Deserialize, Deserializer};

use crate::annotations::FIELD_MANAGER;
use crate::raw::{self, Text};
use crate::texts::Texts;

/// The maximum number of owners that are kept, besides the controller. Objects have one or two.
pub(crate) const MAX_OWNERS: usize = 64;

/// The finalizer of an object whose dependents the garbage collector deletes before the object itself.
const FOREGROUND: &str = "foregroundDeletion";

/// Names the labels and annotations of a kind that are kept. All others are dropped as they are read.
pub(crate) trait Wanted {
    /// The keys of the labels.
    const LABELS: &'static [&'static str] = &[];
    /// The keys of the annotations.
    const ANNOTATIONS: &'static [&'static str] = &[];
    /// True if all annotations are kept, as far as an object can have so many.
    const ALL_ANNOTATIONS: bool = false;
}

/// The metadata of an object of kind `K`.
#[derive(Clone, Debug)]
pub(crate) struct Metadata<K> {
    /// The name, namespace, UID, resourceVersion, generation, and the times of creation and deletion. A time that our
    /// types cannot represent counts as missing, or as 1970 if it is that of the deletion.
    identity: ObjectMeta,
    labels: Texts,
    annotations: Texts,
    /// True if the object has a map of annotations at all.
    pub(crate) has_annotations: bool,
    /// The numbers of all labels, annotations and finalizers.
    pub(crate) counts: Counts,
    /// True if the garbage collector is deleting its dependents.
    pub(crate) deletes_dependents: bool,
    owners: Owners,
    /// The managers of its fields.
    pub(crate) managers: Managers,
    kind: PhantomData<fn() -> K>,
}

/// The numbers of what an object has, wanted or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) labels: usize,
    pub(crate) annotations: usize,
    pub(crate) finalizers: usize,
}

/// An owner of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Owner {
    pub(crate) api_version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Box<str>,
    controller: Option<bool>,
}

#[derive(Clone, Debug, Default)]
struct Owners {
    /// The first of them.
    first: Vec<Owner>,
    controller: Option<Box<Owner>>,
}

/// The managers of the fields of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Managers {
    /// None is known. Somebody may have removed all entries.
    #[default]
    None,
    /// All fields were written by us.
    Us,
    /// Somebody else has written a field.
    Others,
}

impl<K: Wanted> Metadata<K> {
    /// Returns the value of a label, which must be a wanted one.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        debug_assert!(K::LABELS.contains(&key), "{key} is not wanted");
        self.labels.get(key)
    }

    /// Returns the value of an annotation, which must be a wanted one.
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        debug_assert!(
            K::ALL_ANNOTATIONS || K::ANNOTATIONS.contains(&key),
            "{key} is not wanted"
        );
        self.annotations.get(key)
    }

    /// Returns the wanted annotations.
    pub(crate) fn into_annotations(self) -> Texts {
        self.annotations
    }

    /// Returns the owners.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.owners.first.iter()
    }

    /// Returns the owner that controls the object.
    pub(crate) fn controller(&self) -> Option<&Owner> {
        self.owners.controller.as_deref()
    }

    /// Returns the identity as the client needs it.
    pub(crate) fn object(&self) -> &ObjectMeta {
        &self.identity
    }

    /// Returns the identity, to be changed.
    pub(crate) fn object_mut(&mut self) -> &mut ObjectMeta {
        &mut self.identity
    }
}

/// What is read here of metadata in addition to the identity is reached through the methods above.
impl<K> Deref for Metadata<K> {
    type Target = ObjectMeta;

    fn deref(&self) -> &ObjectMeta {
        &self.identity
    }
}

impl<K> Default for Metadata<K> {
    fn default() -> Self {
        Self {
            identity: ObjectMeta::default(),
            labels: Texts::default(),
            annotations: Texts::default(),
            has_annotations: false,
            counts: Counts::default(),
            deletes_dependents: false,
            owners: Owners::default(),
            managers: Managers::default(),
            kind: PhantomData,
        }
    }
}

impl<'de, K: Wanted> Deserialize<'de> for Metadata<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", bound = "K: Wanted")]
        struct Fields<K> {
            name: Option<String>,
            namespace: Option<String>,
            uid: Option<String>,
            resource_version: Option<String>,
            generation: Option<i64>,
            creation_timestamp: Option<String>,
            deletion_timestamp: Option<String>,
            #[serde(default, deserialize_with = "labels::<_, K>")]
            labels: (Texts, usize),
            #[serde(default, deserialize_with = "annotations::<_, K>")]
            annotations: Option<(Texts, usize)>,
            #[serde(default, deserialize_with = "finalizers")]
            finalizers: Finalizers,
            #[serde(default, deserialize_with = "owners")]
            owner_references: Owners,
            #[serde(default, deserialize_with = "managers")]
            managed_fields: Managers,
            #[serde(skip)]
            _kind: PhantomData<K>,
        }
        let fields = Fields::<K>::deserialize(deserializer)?;
        let created = fields.creation_timestamp;
        let deleted = fields.deletion_timestamp;
        let is_deleted = deleted.is_some();
        let has_annotations = fields.annotations.is_some();
        let (labels, label_count) = fields.labels;
        let (annotations, annotation_count) = fields.annotations.unwrap_or_default();
        Ok(Self {
            identity: ObjectMeta {
                name: fields.name,
                namespace: fields.namespace,
                uid: fields.uid,
                resource_version: fields.resource_version,
                generation: fields.generation,
                creation_timestamp: created.and_then(|time| Some(Time(time.parse().ok()?))),
                deletion_timestamp: deleted.map(|time| Time(time.parse().unwrap_or_default())),
                ..ObjectMeta::default()
            },
            labels,
            annotations,
            has_annotations,
            counts: Counts {
                labels: label_count,
                annotations: annotation_count,
                finalizers: fields.finalizers.count,
            },
            deletes_dependents: is_deleted && fields.finalizers.has_foreground,
            owners: fields.owner_references,
            managers: fields.managed_fields,
            kind: PhantomData,
        })
    }
}

fn labels<'de, D: Deserializer<'de>, K: Wanted>(
    deserializer: D,
) -> Result<(Texts, usize), D::Error> {
    Texts::those_counted(|key| K::LABELS.contains(&key), deserializer)
}

fn annotations<'de, D, K>(deserializer: D) -> Result<Option<(Texts, usize)>, D::Error>
where
    D: Deserializer<'de>,
    K: Wanted,
{
    struct Annotations<K>((Texts, usize), PhantomData<K>);

    impl<'de, K: Wanted> Deserialize<'de> for Annotations<K> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let is_wanted = |key: &str| K::ALL_ANNOTATIONS || K::ANNOTATIONS.contains(&key);
            let annotations = Texts::those_counted(is_wanted, deserializer)?;
            Ok(Self(annotations, PhantomData))
        }
    }

    let annotations = Option::<Annotations<K>>::deserialize(deserializer)?;
    Ok(annotations.map(|it| it.0))
}

#[derive(Default)]
struct Finalizers {
    count: usize,
    has_foreground: bool,
}

fn finalizers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Finalizers, D::Error> {
    let found = Finalizers::default();
    raw::fold(deserializer, found, |found, it: Text<'de>| {
        found.count += 1;
        found.has_foreground |= &*it == FOREGROUND;
    })
}

fn owners<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Owners, D::Error> {
    raw::fold(deserializer, Owners::default(), |owners, owner: Owner| {
        if owner.controller == Some(true) && owners.controller.is_none() {
            owners.controller = Some(Box::new(owner.clone()));
        }
        if owners.first.len() < MAX_OWNERS {
            owners.first.push(owner);
        }
    })
}

fn managers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Managers, D::Error> {
    #[derive(Deserialize)]
    struct Entry<'a> {
        #[serde(borrow)]
        manager: Option<Text<'a>>,
    }
    raw::fold(
        deserializer,
        Managers::None,
        |managers, entry: Entry<'de>| {
            let is_ours = entry.manager.as_deref() == Some(FIELD_MANAGER);
            *managers = match *managers {
                Managers::Others => Managers::Others,
                _ if is_ours => Managers::Us,
                _ => Managers::Others,
            };
        },
    )
}

/// Makes a type with a field `metadata` a resource of the API. The field is a [`Metadata`], or has methods `object` and
/// `object_mut` as well. `of_metadata` is true if only its metadata is read. Group, version, kind and plural follow. If
/// objects of several kinds are of the type, these are made of what tells the kinds apart: `by` gives it a name and a type.
macro_rules! resource {
    (
        $object:ty, $scope:ty, of_metadata: $of_metadata:literal, $($part:ident: $value:literal),+
    ) => {
        $crate::metadata::resource!(
            $object, $scope, of_metadata: $of_metadata, by none: (), $($part: $value),+
        );
    };
    (
        $object:ty, $scope:ty, of_metadata: $of_metadata:literal, by $by:ident: $type:ty,
        $($part:ident: $value:expr),+
    ) => {
        impl ::kube_core::Resource for $object {
            type DynamicType = $type;
            type Scope = $scope;

            fn metadata_api() -> bool {
                $of_metadata
            }

            $(fn $part($by: &$type) -> ::std::borrow::Cow<'_, str> {
                let _ = $by;
                $value.into()
            })+

            fn meta(&self) -> &::kube_core::ObjectMeta {
                self.metadata.object()
            }

            fn meta_mut(&mut self) -> &mut ::kube_core::ObjectMeta {
                self.metadata.object_mut()
            }
        }
    };
}

pub(crate) use resource;
