//! Parses a ConfigMap or Secret as the apiserver serialises it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use kube_core::{Selector, SelectorExt};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use sha2::{Digest as _, Sha256};

use super::{DataKeys, Digest};
use crate::annotations::HOLD;
use crate::mark::{COPY, Marks, STACKABLE_IGNORE, STAKATER_IGNORE, STAKATER_MATCH, is_hold};
use crate::release::{self, Release, Tool};

/// A ConfigMap or Secret, borrowed from the answer. A Secret has no `binaryData`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Serialized<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
    #[serde(borrow, default, deserialize_with = "values")]
    data: Values<'a>,
    #[serde(borrow, default, deserialize_with = "values")]
    binary_data: Values<'a>,
    immutable: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub(super) uid: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) resource_version: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) creation_timestamp: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) annotations: Annotations,
    labels: Option<BTreeMap<String, String>>,
}

/// The annotations that matter. All others are skipped: one of them may hold a copy of a Secret.
#[derive(Default)]
pub(super) struct Annotations {
    marks: Marks,
    /// The annotations that say to which releases the object belongs.
    of_releases: Vec<(&'static str, Box<str>)>,
}

impl Metadata<'_> {
    /// Returns the releases of `tools` that the object belongs to.
    pub(super) fn releases(&self, tools: &[Tool]) -> Box<[Release]> {
        let annotation = |key: &str| {
            let mut annotations = self.annotations.of_releases.iter();
            let (_, value) = annotations.find(|(own, _)| *own == key)?;
            Some(&**value)
        };
        let label = |key: &str| self.labels.as_ref()?.get(key).map(String::as_str);
        Release::of(tools, annotation, label)
    }
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Annotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Annotations::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut found = Annotations::default();
                while let Some(key) = map.next_key::<Text<'_>>()? {
                    let mark = match &*key {
                        HOLD => {
                            if is_hold(&map.next_value::<Text<'_>>()?) {
                                found.marks = found.marks | Marks::HELD;
                            }
                            continue;
                        }
                        STAKATER_IGNORE => Marks::STAKATER_IGNORE,
                        STAKATER_MATCH => Marks::STAKATER_MATCH,
                        key => {
                            let mut of_releases = release::ANNOTATIONS.into_iter();
                            match of_releases.find(|own| *own == key) {
                                Some(own) => {
                                    let value = (*map.next_value::<Text<'_>>()?).into();
                                    found.of_releases.push((own, value));
                                }
                                None => drop(map.next_value::<IgnoredAny>()?),
                            }
                            continue;
                        }
                    };
                    if &*map.next_value::<Text<'_>>()? == "true" {
                        found.marks = found.marks | mark;
                    }
                }
                Ok(found)
            }
        }

        deserializer.deserialize_any(Map)
    }
}

type Values<'a> = BTreeMap<Text<'a>, Option<Text<'a>>>;

/// A string that is borrowed if the JSON has no escape in it: serde does not borrow inside maps.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

/// Reads `null` as an empty map.
fn values<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Values<'de>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Serialized<'_> {
    /// Digests all entries in sorted order, tagged and length-prefixed, so different contents cannot collide.
    pub(super) fn digest(&self) -> Digest {
        let mut sha = Sha256::new();
        self.each(|entry, key, value| entry.add_to(&mut sha, key, value));
        Digest(sha.finalize().into())
    }

    /// Returns the keys asked for, or all keys: sorted, each with the digest of its entry, if present.
    pub(super) fn entries(&self, asked: Option<&DataKeys>) -> Box<[(Box<str>, Option<Digest>)]> {
        let asked_for = asked.into_iter().flatten();
        let mut entries: BTreeMap<&str, _> = asked_for.map(|key| (&**key, None)).collect();
        self.each(|entry, key, value| {
            if asked.is_none_or(|asked| asked.contains(key)) {
                let mut sha = Sha256::new();
                entry.add_to(&mut sha, key, value);
                entries.insert(key, Some(Digest(sha.finalize().into())));
            }
        });
        let owned = entries
            .into_iter()
            .map(|(key, digest)| (key.into(), digest));
        owned.collect()
    }

    fn each<'s>(&'s self, mut act: impl FnMut(Entry, &'s str, &'s str)) {
        for (kind, entries) in [
            (Entry::Data, &self.data),
            (Entry::Binary, &self.binary_data),
        ] {
            for (key, value) in entries {
                act(kind, key, value.as_deref().unwrap_or_default());
            }
        }
    }

    pub(super) fn marks(&self, selector: Option<&Selector>) -> Marks {
        let no_labels = BTreeMap::new();
        let labels = self.metadata.labels.as_ref().unwrap_or(&no_labels);
        let when = |holds: bool, mark| if holds { mark } else { Marks::NONE };
        let is_ignored = labels
            .get(STACKABLE_IGNORE)
            .is_some_and(|value| value == "true");
        let selected = selector.map_or(Marks::NONE, |selector| match selector.matches(labels) {
            true => Marks::SELECTED,
            false => Marks::NOT_SELECTED,
        });
        self.metadata.annotations.marks
            | when(labels.contains_key(COPY), Marks::COPY)
            | when(self.immutable == Some(true), Marks::IMMUTABLE)
            | when(is_ignored, Marks::STACKABLE_IGNORE)
            | selected
    }
}

/// The map that an entry is in.
#[derive(Clone, Copy)]
enum Entry {
    Data = 1,
    Binary = 2,
}

impl Entry {
    fn add_to(self, sha: &mut Sha256, key: &str, value: &str) {
        sha.update([self as u8]);
        for part in [key, value] {
            sha.update((part.len() as u64).to_be_bytes());
            sha.update(part);
        }
    }
}
