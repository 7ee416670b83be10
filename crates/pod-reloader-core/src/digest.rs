//! The digest of one config object: what its content comes to.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::reference::Reference;

/// The SHA-256 of the content of one config object. Never leaves the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The 32 bytes.
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

/// Whether a referenced object is there, as a consistent read has shown it.
///
/// That it could not be read is no value here: what is unknown never leads to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The object is there.
    Present(ConfigObject),
    /// The apiserver answered that there is no such object.
    Absent,
}

impl Presence {
    /// Whether both have the same content, or are both absent. Metadata does not count.
    pub fn same_content(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Present(one), Self::Present(other)) => one.digest == other.digest,
            (Self::Absent, Self::Absent) => true,
            _ => false,
        }
    }
}

/// What is remembered of a ConfigMap or Secret: nothing of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigObject {
    /// What its content comes to.
    pub digest: Digest,
    /// The keys that it has.
    pub keys: BTreeSet<Box<str>>,
    /// Its UID. No part of the digest.
    pub uid: Box<str>,
    /// Its resourceVersion. No part of the digest.
    pub resource_version: Box<str>,
}

/// The referenced objects of one workload, each as it was read.
pub type Contents = BTreeMap<Reference, Presence>;

impl ConfigObject {
    /// Reads a ConfigMap or Secret as the apiserver serialises it, and forgets its values.
    ///
    /// Values are digested as they stand in the JSON: base64 is injective, so decoding it would
    /// copy a Secret and add nothing. `immutable`, `type` and metadata are not part of the content.
    ///
    /// *Errors*: [`NotAConfigObject`], which carries no byte of `json`.
    pub fn parse(json: &[u8]) -> Result<Self, NotAConfigObject> {
        let object: Serialized<'_> =
            serde_json::from_slice(json).map_err(|error| NotAConfigObject {
                line: error.line(),
                column: error.column(),
            })?;
        Ok(Self {
            digest: object.digest(),
            keys: object
                .data
                .keys()
                .chain(object.binary_data.keys())
                .map(|key| (&**key).into())
                .collect(),
            uid: object.metadata.uid.into(),
            resource_version: object.metadata.resource_version.into(),
        })
    }
}

/// An answer of the apiserver that is no ConfigMap or Secret.
///
/// The error of the JSON parser is not kept: it quotes what it read, which may be a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is no ConfigMap or Secret (line {line}, column {column})")]
pub struct NotAConfigObject {
    line: usize,
    column: usize,
}

/// A ConfigMap or a Secret, borrowed from the answer. A Secret has no `binaryData`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Serialized<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow, default, deserialize_with = "entries")]
    data: Entries<'a>,
    #[serde(borrow, default, deserialize_with = "entries")]
    binary_data: Entries<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
}

type Entries<'a> = BTreeMap<Text<'a>, Option<Text<'a>>>;

/// A string that is borrowed where the JSON has no escape in it: serde does not borrow inside maps.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

/// `null` is an empty map.
fn entries<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Entries<'de>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Serialized<'_> {
    /// Every entry in sorted order, tagged and length-prefixed, so that different contents cannot meet.
    fn digest(&self) -> Digest {
        const DATA: u8 = 1;
        const BINARY_DATA: u8 = 2;
        let mut sha = Sha256::new();
        for (tag, entries) in [(DATA, &self.data), (BINARY_DATA, &self.binary_data)] {
            for (key, value) in entries {
                sha.update([tag]);
                for part in [&**key, value.as_deref().unwrap_or_default()] {
                    sha.update((part.len() as u64).to_be_bytes());
                    sha.update(part);
                }
            }
        }
        Digest(sha.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{config_map, digest_of};
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn key_order_and_metadata_are_no_content() {
        let one = r#"{"metadata":{"uid":"1","resourceVersion":"1"},"data":{"a":"1","b":"2"}}"#;
        let two = r#"{"data":{"b":"2","a":"1"},"immutable":true,"type":"Opaque",
            "metadata":{"labels":{"x":"y"},"uid":"2","resourceVersion":"2"}}"#;
        let digest = |json: &str| ConfigObject::parse(json.as_bytes()).unwrap().digest;
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
        assert_eq!(
            object.keys.iter().map(|key| &**key).collect::<Vec<_>>(),
            ["a", "b"]
        );
    }

    #[test]
    fn an_error_quotes_nothing_of_the_answer() {
        let canary = r#"{"metadata":{"uid":"1","resourceVersion":"1"},"data":"hunter2"}"#;
        let error = ConfigObject::parse(canary.as_bytes()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    proptest! {
        #[test]
        fn different_contents_have_different_digests(
            one: BTreeMap<String, String>, other: BTreeMap<String, String>
        ) {
            let digests = [&one, &other].map(|data| digest_of(&json!({ "data": data })));
            prop_assert_eq!(one == other, digests[0] == digests[1]);
        }
    }
}
