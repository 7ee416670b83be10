//! The parts of metadata that objects need. The rest is never parsed: somebody may have put a time into the managed
//! fields that our types cannot represent, and that should not get in the way.

mod resource;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::ObjectMeta;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

pub(crate) use self::resource::resource;
use crate::annotations::FIELD_MANAGER;
use crate::name::Name;
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
    read: Read,
    kind: PhantomData<fn() -> K>,
}

/// What was read of metadata. It is a type of its own so that all kinds are read by the same code: repeated for each kind,
/// that would be a twentieth of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Read {
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
        self.read.annotations
    }

    /// Returns the identity, to be changed.
    pub(crate) fn object_mut(&mut self) -> &mut ObjectMeta {
        &mut self.read.identity
    }
}

impl Read {
    /// Returns the owners.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.owners.first.iter()
    }

    /// Returns the namespace and the name. `None` if one of them is missing or not valid.
    pub(crate) fn place(&self) -> Option<(Name, Name)> {
        let name = |text: &Option<String>| Name::parse(text.as_deref()?).ok();
        Some((name(&self.namespace)?, name(&self.name)?))
    }

    /// Returns the time of the creation.
    pub(crate) fn created(&self) -> Option<Timestamp> {
        self.creation_timestamp.as_ref().map(|it| it.0)
    }

    /// Returns the owner that controls the object.
    pub(crate) fn controller(&self) -> Option<&Owner> {
        self.owners.controller.as_deref()
    }

    /// Returns the identity as the client needs it.
    pub(crate) fn object(&self) -> &ObjectMeta {
        &self.identity
    }
}

impl<K> Deref for Metadata<K> {
    type Target = Read;

    fn deref(&self) -> &Read {
        &self.read
    }
}

/// What is read here of metadata in addition to the identity is reached through the methods above.
impl Deref for Read {
    type Target = ObjectMeta;

    fn deref(&self) -> &ObjectMeta {
        &self.identity
    }
}

impl<K> Default for Metadata<K> {
    fn default() -> Self {
        Self {
            read: Read::default(),
            kind: PhantomData,
        }
    }
}

impl<'de, K: Wanted> Deserialize<'de> for Metadata<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let reader = Reader {
            labels: Keys::These(K::LABELS),
            annotations: match K::ALL_ANNOTATIONS {
                true => Keys::All,
                false => Keys::These(K::ANNOTATIONS),
            },
        };
        Ok(Self {
            read: reader.deserialize(deserializer)?,
            kind: PhantomData,
        })
    }
}

/// Reads metadata with the labels and annotations that are wanted.
struct Reader {
    labels: Keys,
    annotations: Keys,
}

/// The keys of entries that are kept.
enum Keys {
    All,
    These(&'static [&'static str]),
}

impl<'de> DeserializeSeed<'de> for Reader {
    type Value = Read;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Read, D::Error> {
        deserializer.deserialize_map(self)
    }
}

/// A member of metadata.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Member {
    Name,
    Namespace,
    Uid,
    ResourceVersion,
    Generation,
    CreationTimestamp,
    DeletionTimestamp,
    Labels,
    Annotations,
    Finalizers,
    OwnerReferences,
    ManagedFields,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for Reader {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    /// Of several members with the same name, the last one counts, as in the apiserver.
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Read, A::Error> {
        let mut read = Read::default();
        let identity = &mut read.identity;
        let mut has_foreground = false;
        while let Some(member) = members.next_key()? {
            match member {
                Member::Name => identity.name = members.next_value()?,
                Member::Namespace => identity.namespace = members.next_value()?,
                Member::Uid => identity.uid = members.next_value()?,
                Member::ResourceVersion => identity.resource_version = members.next_value()?,
                Member::Generation => identity.generation = members.next_value()?,
                Member::CreationTimestamp => {
                    let time: Option<String> = members.next_value()?;
                    let time = time.and_then(|time| time.parse().ok());
                    identity.creation_timestamp = time.map(Time);
                }
                Member::DeletionTimestamp => {
                    let time: Option<String> = members.next_value()?;
                    let time = time.map(|time| time.parse().unwrap_or_default());
                    identity.deletion_timestamp = time.map(Time);
                }
                Member::Labels => {
                    let labels = members.next_value_seed(&self.labels)?;
                    (read.labels, read.counts.labels) = labels.unwrap_or_default();
                }
                Member::Annotations => {
                    let annotations = members.next_value_seed(&self.annotations)?;
                    read.has_annotations = annotations.is_some();
                    (read.annotations, read.counts.annotations) = annotations.unwrap_or_default();
                }
                Member::Finalizers => {
                    let found: Finalizers = members.next_value()?;
                    read.counts.finalizers = found.count;
                    has_foreground = found.has_foreground;
                }
                Member::OwnerReferences => read.owners = members.next_value()?,
                Member::ManagedFields => read.managers = members.next_value()?,
                Member::Other => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        read.deletes_dependents = has_foreground && identity.deletion_timestamp.is_some();
        Ok(read)
    }
}

/// Reads the entries with these keys, and counts all that there are. `None` if there is no map.
impl<'de> DeserializeSeed<'de> for &Keys {
    type Value = Option<(Texts, usize)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for &Keys {
    type Value = Option<(Texts, usize)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, map: D) -> Result<Self::Value, D::Error> {
        let is_wanted = |key: &str| match self {
            Keys::All => true,
            Keys::These(keys) => keys.contains(&key),
        };
        Texts::those_counted(is_wanted, map).map(Some)
    }
}

#[derive(Default)]
struct Finalizers {
    count: usize,
    has_foreground: bool,
}

impl<'de> Deserialize<'de> for Finalizers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        raw::fold(deserializer, Self::default(), |found, it: Text<'de>| {
            found.count += 1;
            found.has_foreground |= &*it == FOREGROUND;
        })
    }
}

impl<'de> Deserialize<'de> for Owners {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        raw::fold(deserializer, Self::default(), |owners, owner: Owner| {
            if owner.controller == Some(true) && owners.controller.is_none() {
                owners.controller = Some(Box::new(owner.clone()));
            }
            if owners.first.len() < MAX_OWNERS {
                owners.first.push(owner);
            }
        })
    }
}

impl<'de> Deserialize<'de> for Managers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Entry<'a> {
            #[serde(borrow)]
            manager: Option<Text<'a>>,
        }
        raw::fold(deserializer, Self::None, |managers, entry: Entry<'de>| {
            let is_ours = entry.manager.as_deref() == Some(FIELD_MANAGER);
            *managers = match *managers {
                Self::Others => Self::Others,
                _ if is_ours => Self::Us,
                _ => Self::Others,
            };
        })
    }
}
