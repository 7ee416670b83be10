//! Parses a ConfigMap or Secret as the apiserver serialises it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use kube_core::{Selector, SelectorExt};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::{DataKeys, Digest, Entry};
use crate::annotations::HOLD;
use crate::mark::{
    COPY, IS_COPY, Marks, STACKABLE_IGNORE, STAKATER_IGNORE, STAKATER_MATCH, is_hold,
};
use crate::raw::{Sorted, Text};
use crate::release::{self, Release, Tool};
use crate::texts::Texts;

/// The maximum number of labels that are compared with a selector: a map of them takes ten times their size.
const MAX_LABELS: usize = 1024;

/// A ConfigMap or Secret, borrowed from the answer. A Secret has no `binaryData`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Serialized<'a> {
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    binary_data: Option<&'a RawValue>,
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
    #[serde(default)]
    labels: Texts,
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
        let label = |key: &str| self.labels.get(key);
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

/// The digests of a config object.
pub(super) struct Digests {
    /// The digest of all entries in sorted order, tagged and length-prefixed, so different contents cannot collide.
    pub(super) all: Digest,
    /// The keys asked for, or all keys: sorted, each with its entry, if present.
    pub(super) entries: Box<[(Box<str>, Option<Entry>)]>,
}

impl Serialized<'_> {
    /// Digests the entries, and each of the keys asked for on its own.
    ///
    /// # Errors
    ///
    /// An entry is not a text.
    pub(super) fn digests(&self, asked: Option<&DataKeys>) -> Result<Digests, serde_json::Error> {
        let mut all = Sha256::new();
        let asked_for = asked.into_iter().flatten();
        let mut entries: BTreeMap<Box<str>, _> = asked_for.map(|key| (key.clone(), None)).collect();
        for (map, object) in [(Map::Data, self.data), (Map::Binary, self.binary_data)] {
            let Some(object) = object else { continue };
            for (key, value) in Sorted::of_any_size(object.get())?.iter() {
                let value: Option<Text<'_>> = serde_json::from_str(value)?;
                let (key, value) = (&*key, value.as_deref().unwrap_or_default());
                map.add_to(&mut all, key, value);
                if asked.is_none_or(|asked| asked.contains(key)) {
                    let mut own = Sha256::new();
                    map.add_to(&mut own, key, value);
                    let entry = Entry {
                        digest: Digest(own.finalize().into()),
                        is_binary: matches!(map, Map::Binary),
                    };
                    entries.insert(key.into(), Some(entry));
                }
            }
        }
        Ok(Digests {
            all: Digest(all.finalize().into()),
            entries: entries.into_iter().collect(),
        })
    }

    pub(super) fn marks(&self, selector: Option<&Selector>) -> Marks {
        let labels = &self.metadata.labels;
        let when = |holds: bool, mark| if holds { mark } else { Marks::NONE };
        let is_ignored = labels.get(STACKABLE_IGNORE) == Some("true");
        let selected = selector.map_or(Marks::NONE, |selector| {
            let labels = labels.iter().take(MAX_LABELS);
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
            match selector.matches(&labels.collect()) {
                true => Marks::SELECTED,
                false => Marks::NOT_SELECTED,
            }
        });
        self.metadata.annotations.marks
            | when(labels.get(COPY) == Some(IS_COPY), Marks::COPY)
            | when(self.immutable == Some(true), Marks::IMMUTABLE)
            | when(is_ignored, Marks::STACKABLE_IGNORE)
            | selected
    }
}

/// The map that an entry is in.
#[derive(Clone, Copy)]
enum Map {
    Data = 1,
    Binary = 2,
}

impl Map {
    fn add_to(self, sha: &mut Sha256, key: &str, value: &str) {
        sha.update([self as u8]);
        for part in [key, value] {
            sha.update((part.len() as u64).to_be_bytes());
            sha.update(part);
        }
    }
}
