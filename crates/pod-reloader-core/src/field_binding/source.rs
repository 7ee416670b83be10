//! The object whose keys are written to fields, as the apiserver sends it.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::ByteString;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

use crate::reference::ConfigKind;
use crate::texts::Texts;

/// A ConfigMap or a Secret, as the apiserver sends it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    metadata: Metadata,
    /// Keys and values. Those of Secrets, and binary ones, are in base64.
    #[serde(default, deserialize_with = "Texts::of_any_size")]
    data: Texts,
    #[serde(default, deserialize_with = "Texts::of_any_size")]
    binary_data: Texts,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: Box<str>,
}

/// Shows no value.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.data.iter().chain(self.binary_data.iter());
        let keys: Vec<_> = all.map(|(key, _)| key).collect();
        f.debug_struct("Source").field("keys", &keys).finish()
    }
}

impl Source {
    /// Returns the resourceVersion.
    pub fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// Returns the number of bytes of a key of an object of this kind, or none if it has no such key.
    pub fn length(&self, kind: ConfigKind, key: &str) -> usize {
        let decoded = |text: &str| text.trim_end_matches('=').len() * 3 / 4;
        match (kind, self.data.get(key)) {
            (ConfigKind::ConfigMap, Some(text)) => text.len(),
            (ConfigKind::ConfigMap, None) => self.binary_data.get(key).map_or(0, decoded),
            (ConfigKind::Secret, value) => value.map_or(0, decoded),
        }
    }

    /// Returns the bytes of a key of an object of this kind. `None` if it has no such key.
    pub fn bytes(&self, kind: ConfigKind, key: &str) -> Option<Cow<'_, [u8]>> {
        match (kind, self.data.get(key)) {
            (ConfigKind::ConfigMap, Some(text)) => Some(text.as_bytes().into()),
            (ConfigKind::ConfigMap, None) => decoded(self.binary_data.get(key)?),
            (ConfigKind::Secret, value) => decoded(value?),
        }
    }
}

/// Returns the bytes of a text in base64, which is what the apiserver sends.
fn decoded(text: &str) -> Option<Cow<'_, [u8]>> {
    let text: StrDeserializer<'_, Error> = text.into_deserializer();
    let bytes = ByteString::deserialize(text).ok()?;
    Some(bytes.0.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn bytes(kind: ConfigKind, mut object: Value, key: &str) -> Option<Vec<u8>> {
        object["metadata"] = json!({"resourceVersion": "1"});
        let source: Source = serde_json::from_value(object).unwrap();
        let bytes = source.bytes(kind, key).map(Cow::into_owned);
        assert_eq!(source.length(kind, key), bytes.as_ref().map_or(0, Vec::len));
        bytes
    }

    #[test]
    fn a_value_is_its_bytes_however_they_are_sent() {
        let secret = json!({"data": {"a": "aHVudGVyMgo="}});
        assert_eq!(
            bytes(ConfigKind::Secret, secret, "a").unwrap(),
            b"hunter2\n"
        );
        let config_map = json!({"data": {"a": "aHVudGVyMgo="}, "binaryData": {"b": "/w=="}});
        let of_config_map = |key| bytes(ConfigKind::ConfigMap, config_map.clone(), key);
        assert_eq!(of_config_map("a").unwrap(), b"aHVudGVyMgo=");
        assert_eq!(of_config_map("b").unwrap(), [0xff]);
        assert_eq!(of_config_map("c"), None);
        assert_eq!(bytes(ConfigKind::Secret, json!({"data": null}), "a"), None);
    }

    #[test]
    fn it_shows_no_value() {
        let source: Source = serde_json::from_value(
            json!({"metadata": {"resourceVersion": "1"}, "data": {"a": "aHVudGVyMgo="}}),
        )
        .unwrap();
        assert_eq!(format!("{source:?}"), r#"Source { keys: ["a"] }"#);
    }
}
