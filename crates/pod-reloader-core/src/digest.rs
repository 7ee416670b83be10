//! The digest of one config object: a short value that stands for its content.

mod serialized;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroI64;

use jiff::Timestamp;
use kube_core::Selector;

use self::serialized::Serialized;
use crate::extent::Extent;
use crate::mark::Marks;
use crate::reference::Reference;
use crate::release::{Release, Tool};

/// The SHA-256 of the content of one config object, or of one of its entries. It never leaves the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Digest {
    /// Prints no bytes: the digest of a short Secret could be guessed offline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

/// The presence of a referenced object, as a consistent read has shown it.
///
/// An object that could not be read has no value here: an unknown state never leads to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The object is there.
    Present(ConfigObject),
    /// The apiserver answered that there is no such object.
    Absent,
}

impl Presence {
    /// Returns the object, if it is there.
    pub fn present(&self) -> Option<&ConfigObject> {
        match self {
            Self::Present(object) => Some(object),
            Self::Absent => None,
        }
    }

    /// Returns true if both have the same content, or both are absent. Metadata is ignored.
    pub fn same_content(&self, other: &Self) -> bool {
        let digest = |it: &Self| it.present().map(|object| object.digest);
        digest(self) == digest(other)
    }

    /// Returns true if the object is there and on hold.
    pub fn is_held(&self) -> bool {
        self.present().is_some_and(ConfigObject::is_held)
    }
}

/// The facts remembered about a ConfigMap or Secret: none of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigObject {
    /// The digest of the whole content.
    pub digest: Digest,
    /// The keys that were asked for, sorted, each with its entry, if present.
    entries: Box<[(Box<str>, Option<Entry>)]>,
    /// True if every key was asked for.
    has_all_entries: bool,
    /// The marks in the metadata that decide whether the object is tracked. Not part of the digest.
    pub marks: Marks,
    /// The UID, and the resourceVersion behind it: two texts would take 32 bytes more. Not part of the digest.
    version: Box<str>,
    uid_end: u32,
    /// The creation time, in seconds since 1970, if known: a `Timestamp` would take 16 bytes more. Not part of the digest.
    pub(crate) created: Option<NonZeroI64>,
    /// The releases that the object belongs to. Not part of the digest.
    pub releases: Box<[Release]>,
}

/// What is remembered of one entry of a config object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    digest: Digest,
    /// True if it is in `binaryData`.
    is_binary: bool,
}

/// Keys of the data of config objects.
pub type DataKeys = BTreeSet<Box<str>>;

/// The optional facts to read from a config object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aspects<'a> {
    /// The selector of tracked objects, if any. With one, the object is marked as selected or not.
    pub selector: Option<&'a Selector>,
    /// The keys that are needed individually. `None` means every key. An object may have a hundred thousand
    /// keys, so only those that are asked for are remembered.
    pub keys: Option<&'a DataKeys>,
    /// The tools whose releases are of interest.
    pub tools: &'a [Tool],
}

/// The objects that one workload may track, each as it was read.
pub type Objects = BTreeMap<Reference, Presence>;

/// The tracked content of one workload's objects, sorted by object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents<'a>(pub(crate) Vec<(&'a Reference, Content<'a>)>);

/// The tracked content of one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content<'a> {
    /// No content: the object does not exist.
    Absent,
    /// The whole object.
    Whole(&'a Digest),
    /// These keys, sorted, each with the digest of its entry, if present.
    Entries(Vec<(&'a str, Option<&'a Digest>)>),
}

impl<'a> Content<'a> {
    /// Returns the content of an object that any of `extents` tracks. `None` if there are no extents.
    pub(crate) fn of(
        object: &'a Presence,
        extents: impl IntoIterator<Item = &'a Extent>,
    ) -> Option<Self> {
        let mut extents = extents.into_iter().peekable();
        extents.peek()?;
        let Presence::Present(object) = object else {
            return Some(Self::Absent);
        };
        let mut named: Vec<&str> = Vec::new();
        for extent in extents {
            match extent {
                Extent::All => return Some(Self::Whole(&object.digest)),
                Extent::Named(keys) => named.extend(keys.iter().map(|key| &**key)),
            }
        }
        named.sort_unstable();
        named.dedup();
        let entries = named.into_iter().map(|key| (key, object.entry(key)));
        Some(Self::Entries(entries.collect()))
    }
}

impl Content<'_> {
    /// Returns a number that changes when the content changes. It never leaves the process.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

impl<'a> Contents<'a> {
    /// Returns the contents of all `objects`, regardless of their marks.
    pub fn whole(objects: &'a Objects) -> Self {
        let whole = |(reference, object)| Some((reference, Content::of(object, [&Extent::All])?));
        Self(objects.iter().filter_map(whole).collect())
    }

    /// Returns true if nothing is tracked.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl ConfigObject {
    /// Returns the UID.
    pub fn uid(&self) -> &str {
        &self.version[..self.uid_end as usize]
    }

    /// Returns the resourceVersion.
    pub fn resource_version(&self) -> &str {
        &self.version[self.uid_end as usize..]
    }

    /// Returns the creation time, in whole seconds, if it is known.
    pub fn created(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.created?.get()).ok()
    }

    /// Returns true if the object is on hold.
    pub fn is_held(&self) -> bool {
        self.marks.contain(Marks::HELD)
    }

    /// Returns this object with the content of another one.
    #[must_use]
    pub(crate) fn with_content_of(&self, other: &Self) -> Self {
        Self {
            digest: other.digest,
            entries: other.entries.clone(),
            has_all_entries: other.has_all_entries,
            ..self.clone()
        }
    }

    /// Parses a ConfigMap or Secret as the apiserver serialises it, and drops its values.
    ///
    /// Values are digested exactly as the JSON spells them: base64 is injective, so decoding it would copy
    /// a Secret and add nothing. `immutable`, `type` and metadata are not part of the content.
    ///
    /// # Errors
    ///
    /// Returns [`NotAConfigObject`], which carries no byte of `json`.
    pub fn parse(json: &[u8], aspects: Aspects<'_>) -> Result<Self, NotAConfigObject> {
        let unreadable = |error: serde_json::Error| NotAConfigObject {
            line: error.line(),
            column: error.column(),
        };
        let object: Serialized<'_> = serde_json::from_slice(json).map_err(unreadable)?;
        let digests = object.digests(aspects.keys).map_err(unreadable)?;
        let metadata = &object.metadata;
        Ok(Self {
            digest: digests.all,
            entries: digests.entries,
            has_all_entries: aspects.keys.is_none(),
            marks: object.marks(aspects.selector),
            releases: metadata.releases(aspects.tools),
            version: [&*metadata.uid, &*metadata.resource_version]
                .concat()
                .into(),
            uid_end: u32::try_from(metadata.uid.len()).expect("an answer has less than 4 GiB"),
            created: metadata
                .creation_timestamp
                .as_deref()
                .and_then(|it| it.parse::<Timestamp>().ok())
                .and_then(|it| NonZeroI64::new(it.as_second())),
        })
    }

    /// Returns true if the object has an entry with this key, which must have been asked for.
    pub fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Returns true if the entry with this key is in `binaryData`, from which the kubelet takes no variable. The key must
    /// have been asked for.
    pub fn is_binary(&self, key: &str) -> bool {
        self.found(key).is_some_and(|entry| entry.is_binary)
    }

    /// Returns the keys of which only one of both objects has an entry, or a different one. All keys of both must
    /// have been asked for.
    pub(crate) fn differing_keys<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        let keys = [self, other].into_iter().flat_map(|it| &it.entries);
        let keys: BTreeSet<&str> = keys.map(|(key, _)| &**key).collect();
        let differs = |key: &&str| self.entry(key) != other.entry(key);
        keys.into_iter().filter(differs)
    }

    /// Returns true if each of these keys was asked for when the object was read.
    pub fn covers<'a>(&self, mut keys: impl Iterator<Item = &'a str>) -> bool {
        self.has_all_entries || keys.all(|key| self.place(key).is_ok())
    }

    /// Returns the digest of the entry with this key, if present. The key must have been asked for.
    pub(crate) fn entry(&self, key: &str) -> Option<&Digest> {
        self.found(key).map(|entry| &entry.digest)
    }

    fn found(&self, key: &str) -> Option<&Entry> {
        match self.place(key) {
            Ok(at) => self.entries[at].1.as_ref(),
            Err(_) => {
                assert!(
                    self.has_all_entries,
                    "a key is needed that was not asked for"
                );
                None
            }
        }
    }

    fn place(&self, key: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(own, _)| (**own).cmp(key))
    }
}

/// An answer of the apiserver that is not a ConfigMap or Secret.
///
/// The error of the JSON parser is dropped: it quotes what it read, which may be a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is no ConfigMap or Secret (line {line}, column {column})")]
pub struct NotAConfigObject {
    line: usize,
    column: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{config_map, digest_of};
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn only_requested_data_keys_are_remembered_of_a_thousand() {
        let data: BTreeMap<_, _> = (0..1_000).map(|n| (n.to_string(), "1")).collect();
        let json = json!({"metadata": {"uid": "1", "resourceVersion": "1"}, "data": data});
        let json = json.to_string();
        let asked: DataKeys = ["7", "absent"].map(Into::into).into();
        let aspects = Aspects {
            keys: Some(&asked),
            ..Aspects::default()
        };
        let object = ConfigObject::parse(json.as_bytes(), aspects).unwrap();
        assert_eq!(object.entries.len(), 2);
        assert!(object.has("7") && !object.has("absent"));
        assert!(object.covers(["7", "absent"].into_iter()));
        assert!(!object.covers(["7", "8"].into_iter()));
        let all = ConfigObject::parse(json.as_bytes(), Aspects::default()).unwrap();
        assert_eq!(all.digest, object.digest);
        assert_eq!(all.entry("7"), object.entry("7"));
    }

    #[test]
    fn key_order_and_metadata_are_not_content() {
        let one = r#"{"metadata":{"uid":"1","resourceVersion":"1"},"data":{"a":"1","b":"2"}}"#;
        let two = r#"{"data":{"b":"2","a":"1"},"immutable":true,"type":"Opaque",
            "metadata":{"labels":{"x":"y"},"uid":"2","resourceVersion":"2"}}"#;
        let digest = |json: &str| {
            ConfigObject::parse(json.as_bytes(), Aspects::default())
                .unwrap()
                .digest
        };
        assert_eq!(digest(one), digest(two));
    }

    #[test]
    fn no_data_and_empty_data_are_alike() {
        assert_eq!(
            digest_of(&json!({})),
            digest_of(&json!({"data": {}, "binaryData": null}))
        );
    }

    #[test]
    fn contents_that_a_joined_text_would_confuse_differ() {
        let alike = [
            json!({"data": {"a": "b;c=d"}}),
            json!({"data": {"a": "b", "c": "d"}}),
            json!({"data": {"a=b;c": "d"}}),
            json!({"data": {"a": ""}}),
            json!({"binaryData": {"a": ""}}),
            json!({"binaryData": {"a": "YjtjPWQ="}}),
            json!({"data": {"a": "YjtjPWQ="}}),
        ];
        for (n, one) in alike.iter().enumerate() {
            for other in &alike[n + 1..] {
                assert_ne!(digest_of(one), digest_of(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn keys_of_both_maps_are_known() {
        let object = config_map(&json!({"data": {"a": "1"}, "binaryData": {"b": "AA=="}}));
        assert!(object.has("a") && object.has("b") && !object.has("c"));
        let is_binary = ["a", "b", "c"].map(|key| object.is_binary(key));
        assert_eq!(is_binary, [false, true, false]);
    }

    #[test]
    fn an_error_quotes_nothing_of_the_answer() {
        let canary = r#"{"metadata":{"uid":"1","resourceVersion":"1"},"data":"hunter2"}"#;
        let error = ConfigObject::parse(canary.as_bytes(), Aspects::default()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    /// Returns data of a few letters, so that two of them are often nearly alike.
    fn data() -> impl Strategy<Value = BTreeMap<String, String>> {
        prop::collection::btree_map("[aé\u{0}]{0,2}", "[aé\u{0}]{0,2}", 0..4)
    }

    proptest! {
        #[test]
        fn different_contents_have_different_digests(one in data(), other in data()) {
            let digests = [&one, &other].map(|data| digest_of(&json!({ "data": data })));
            prop_assert_eq!(one == other, digests[0] == digests[1]);
        }
    }
}
