//! Reads copies of ConfigMaps with their values. Nothing else of this crate retains any, and no Secret is read.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt};
use pod_reloader_core::digest::{Aspects, ConfigObject};
use pod_reloader_core::mark::Marks;
use pod_reloader_core::name::Name;
use pod_reloader_core::pins::is_copy_name;
use pod_reloader_core::reference::ConfigKind;
use serde::Deserialize;

use crate::cluster::{Cluster, Place};

/// Number of copies read at once.
const READS_AT_ONCE: usize = 4;

/// The content of a ConfigMap.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content {
    data: Option<BTreeMap<String, String>>,
    /// Encoded, as no more is needed than the sizes.
    binary_data: Option<BTreeMap<String, String>>,
}

/// A value of a ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    Text(&'a str),
    /// In base64.
    Binary(&'a str),
}

/// The copies that were read, or why they cannot be.
pub(super) type Contents = BTreeMap<Name, Result<Content, String>>;

/// Reads copies, each by its own name with that of the ConfigMap that it was made of.
pub(super) async fn read(
    cluster: &Cluster,
    namespace: &Name,
    copies: BTreeSet<(&Name, &Name)>,
) -> Contents {
    let read = copies.into_iter().map(|(copy, source)| async move {
        let content = content(cluster, namespace, copy, source).await;
        (copy.clone(), content)
    });
    let read = stream::iter(read).buffer_unordered(READS_AT_ONCE);
    read.collect().await
}

async fn content(
    cluster: &Cluster,
    namespace: &Name,
    copy: &Name,
    source: &Name,
) -> Result<Content, String> {
    let place = Place::new(
        "v1",
        ConfigKind::ConfigMap.plural(),
        Some(namespace.as_str()),
    );
    let body = cluster.get_raw(place, copy.as_str()).await;
    let body = body.map_err(|error| match error.is_absent() {
        true => format!("copy {copy} is gone"),
        false => format!("copy {copy}: {error}"),
    })?;
    let object = ConfigObject::parse(&body, Aspects::default());
    let is_copy = object.is_ok_and(|it| {
        it.marks.contain(Marks::COPY | Marks::IMMUTABLE) && is_copy_name(source, copy)
    });
    match serde_json::from_slice(&body) {
        Ok(content) if is_copy => Ok(content),
        _ => Err(format!("ConfigMap {copy} is no copy of ConfigMap {source}")),
    }
}

impl Content {
    /// Returns the keys with their values.
    pub(super) fn entries(&self) -> BTreeMap<&str, Entry<'_>> {
        let text = self.data.iter().flatten();
        let text = text.map(|(key, value)| (key.as_str(), Entry::Text(value)));
        let binary = self.binary_data.iter().flatten();
        let binary = binary.map(|(key, value)| (key.as_str(), Entry::Binary(value)));
        text.chain(binary).collect()
    }
}

impl Entry<'_> {
    /// Returns the size of the value, in bytes.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(encoded) => encoded.trim_end_matches('=').len() * 3 / 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_binary_data_is_that_of_the_bytes() {
        for (encoded, size) in [
            ("", 0),
            ("YQ==", 1),
            ("YWI=", 2),
            ("YWJj", 3),
            ("YWJjZA==", 4),
        ] {
            assert_eq!(Entry::Binary(encoded).size(), size, "{encoded}");
        }
    }
}
