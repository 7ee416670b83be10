//! The metadata of namespaces and of objects with the name of a copy, as watches bring it.

use kube_core::{ClusterResourceScope, DynamicResourceScope, Selector, SelectorExt};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::metadata::{Metadata, Wanted, resource};
use crate::name::Name;
use crate::raw;
use crate::reference::ConfigKind;
use crate::seal::{COPY_OF, SEAL};

/// The metadata of a namespace. Only its name, its UID, its labels and whether it is being deleted are parsed.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Fields")]
pub struct NamespaceMetadata {
    metadata: Metadata<Self>,
    /// All labels, as `KEY=VALUE,...`.
    labels: Box<str>,
}

impl Wanted for NamespaceMetadata {}

/// A namespace. Its labels are parsed apart from the rest of its metadata.
#[derive(Deserialize)]
struct Fields {
    metadata: Box<RawValue>,
}

impl TryFrom<Fields> for NamespaceMetadata {
    type Error = serde_json::Error;

    fn try_from(Fields { metadata }: Fields) -> Result<Self, Self::Error> {
        #[derive(Deserialize)]
        struct Labelled {
            #[serde(default, deserialize_with = "joined")]
            labels: String,
        }
        let Labelled { labels } = serde_json::from_str(metadata.get())?;
        Ok(Self {
            metadata: serde_json::from_str(metadata.get())?,
            labels: labels.into(),
        })
    }
}

/// Reads labels as `KEY=VALUE,...`.
fn joined<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    raw::fold_map(deserializer, String::new(), |labels, key, value| {
        let comma = if labels.is_empty() { "" } else { "," };
        let parts = [comma, key, "=", value];
        labels.reserve(parts.map(str::len).iter().sum());
        for part in parts {
            labels.push_str(part);
        }
    })
}

/// What decides whether a namespace gets a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceLabels {
    /// The UID and the labels, as `KEY=VALUE,...`: there may be many namespaces, and a map takes several times as much.
    text: Box<str>,
    uid_end: u32,
    /// True if it is being deleted.
    pub is_terminating: bool,
}

impl NamespaceLabels {
    /// Returns the UID of the namespace. One that is deleted and made again has another UID.
    pub fn uid(&self) -> &str {
        &self.text[..self.uid_end as usize]
    }

    /// Returns true if a selector picks the namespace.
    pub fn are_selected_by(&self, selector: &Selector) -> bool {
        let labels = self.text[self.uid_end as usize..].split(',');
        let labels = labels.filter_map(|it| it.split_once('='));
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        selector.matches(&labels.collect())
    }
}

impl NamespaceMetadata {
    /// Returns the name. `None` if it is invalid, which the apiserver never sends.
    pub fn name(&self) -> Option<Name> {
        Name::parse(self.metadata.name.as_deref()?).ok()
    }

    /// Returns what decides whether it gets a copy.
    pub fn labels(self) -> NamespaceLabels {
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        NamespaceLabels {
            text: [uid, &*self.labels].concat().into(),
            uid_end: u32::try_from(uid.len()).expect(SIZE),
            is_terminating: self.metadata.deletion_timestamp.is_some(),
        }
    }
}

resource!(
    NamespaceMetadata, ClusterResourceScope, of_metadata: true,
    group: "", version: "v1", kind: "Namespace", plural: "namespaces"
);

/// The metadata of an object that has the name of a copy, as the apiserver sends it.
#[derive(Clone, Debug, Deserialize)]
pub struct TargetMetadata {
    metadata: Metadata<Self>,
}

impl Wanted for TargetMetadata {
    const ANNOTATIONS: &'static [&'static str] = &[COPY_OF, SEAL];
}

const SIZE: &str = "an object has at most 3 MiB";
/// The kind of the owner of a copy.
pub(super) const KIND: &str = "ClusterConfigSync";
/// The longest mark: a namespace, a name, and a namespace again, with a sign before each.
const MAX_MARK: usize = 63 + 1 + 253 + 1 + 63;
/// The length of a seal.
const SEAL_LENGTH: usize = 32;

/// An object that has the name of a copy: the copy, its source, or an object of somebody else.
///
/// There may be many, so all is in one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The UID, the resourceVersion, the UIDs of the ClusterConfigSyncs that own it, each with a newline behind it, the
    /// mark, and the seal.
    text: Box<str>,
    uid_end: u32,
    version_end: u32,
    owners_end: u32,
    mark_end: u32,
    /// True if it is being deleted.
    pub is_terminating: bool,
}

/// What the marks of an object say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MarksOfObject<'a> {
    pub(super) mark: Option<&'a str>,
    pub(super) seal: Option<&'a str>,
    pub(super) is_terminating: bool,
}

impl Target {
    /// Returns a target, given the UIDs of the ClusterConfigSyncs that own it.
    pub(super) fn new<'a>(
        uid: &str,
        resource_version: &str,
        owners: impl IntoIterator<Item = &'a str>,
        marks: MarksOfObject<'_>,
    ) -> Self {
        let end = |text: &str| u32::try_from(text.len()).expect(SIZE);
        let mut text = uid.to_owned();
        let uid_end = end(&text);
        text.push_str(resource_version);
        let version_end = end(&text);
        for owner in owners {
            text.push_str(owner);
            text.push('\n');
        }
        let owners_end = end(&text);
        // What is longer is neither, and may be very long.
        let mark = marks.mark.filter(|mark| mark.len() <= MAX_MARK);
        text.push_str(mark.unwrap_or_default());
        let mark_end = end(&text);
        let seal = marks.seal.filter(|seal| seal.len() == SEAL_LENGTH);
        text.push_str(seal.unwrap_or_default());
        Self {
            text: text.into(),
            uid_end,
            version_end,
            owners_end,
            mark_end,
            is_terminating: marks.is_terminating,
        }
    }

    /// Returns the UID.
    pub fn uid(&self) -> &str {
        &self.text[..self.uid_end as usize]
    }

    /// Returns the resourceVersion.
    pub fn resource_version(&self) -> &str {
        &self.text[self.uid_end as usize..self.version_end as usize]
    }

    /// Returns true if the ClusterConfigSync with this UID owns it.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        let owners = &self.text[self.version_end as usize..self.owners_end as usize];
        owners.split_terminator('\n').any(|owner| owner == uid)
    }

    /// Returns the mark, which a copy has.
    pub fn mark(&self) -> Option<&str> {
        let mark = &self.text[self.owners_end as usize..self.mark_end as usize];
        (!mark.is_empty()).then_some(mark)
    }

    /// Returns the seal, which a copy has.
    pub fn seal(&self) -> Option<&str> {
        let seal = &self.text[self.mark_end as usize..];
        (!seal.is_empty()).then_some(seal)
    }
}

impl TargetMetadata {
    /// Returns the namespace. `None` if it is invalid, which the apiserver never sends.
    pub fn namespace(&self) -> Option<Name> {
        Name::parse(self.metadata.namespace.as_deref()?).ok()
    }
}

impl From<TargetMetadata> for Target {
    fn from(TargetMetadata { metadata }: TargetMetadata) -> Self {
        let owners = metadata.owners().filter(|owner| &*owner.kind == KIND);
        let marks = MarksOfObject {
            mark: metadata.annotation(COPY_OF),
            seal: metadata.annotation(SEAL),
            is_terminating: metadata.deletion_timestamp.is_some(),
        };
        Self::new(
            metadata.uid.as_deref().unwrap_or_default(),
            metadata.resource_version.as_deref().unwrap_or_default(),
            owners.map(|owner| &*owner.uid),
            marks,
        )
    }
}

resource!(
    TargetMetadata, DynamicResourceScope, of_metadata: true, by kind: ConfigKind,
    group: "", version: "v1", kind: kind.as_str(), plural: kind.plural()
);
