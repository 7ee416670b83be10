//! The metadata of namespaces and of objects with the name of a copy, as watches bring it.

use std::borrow::Cow;

use kube_core::{
    ClusterResourceScope, DynamicResourceScope, ObjectMeta, Resource, Selector, SelectorExt,
};
use serde::Deserialize;

use super::COPY_OF;
use crate::metadata::{labelled_identity, owned_identity, resource};
use crate::name::Name;
use crate::reference::ConfigKind;

/// The metadata of a namespace. Only its name, its labels and whether it is being deleted are parsed.
#[derive(Clone, Debug, Deserialize)]
pub struct NamespaceMetadata {
    #[serde(deserialize_with = "labelled_identity")]
    metadata: ObjectMeta,
}

/// What decides whether a namespace gets a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceLabels {
    /// The labels, as `KEY=VALUE,...`: there may be many namespaces, and a map takes several times as much.
    labels: Box<str>,
    /// True if it is being deleted.
    pub is_terminating: bool,
}

impl NamespaceLabels {
    /// Returns true if a selector picks the namespace.
    pub fn are_selected_by(&self, selector: &Selector) -> bool {
        let labels = self.labels.split(',').filter_map(|it| it.split_once('='));
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
        let labels = self.metadata.labels.unwrap_or_default();
        let labels: Vec<_> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        NamespaceLabels {
            labels: labels.join(",").into(),
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
    #[serde(deserialize_with = "owned_identity")]
    metadata: ObjectMeta,
}

/// An object that has the name of a copy: the copy, its source, or an object of somebody else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The UID.
    pub uid: Box<str>,
    /// The resourceVersion.
    pub resource_version: Box<str>,
    /// The mark, which a copy has.
    pub mark: Option<Box<str>>,
    /// The UIDs of its owners.
    pub owners: Box<[Box<str>]>,
}

impl TargetMetadata {
    /// Returns the namespace. `None` if it is invalid, which the apiserver never sends.
    pub fn namespace(&self) -> Option<Name> {
        Name::parse(self.metadata.namespace.as_deref()?).ok()
    }
}

impl From<TargetMetadata> for Target {
    fn from(object: TargetMetadata) -> Self {
        let text = |text: Option<String>| text.unwrap_or_default().into_boxed_str();
        let metadata = object.metadata;
        let mark = metadata.annotations.and_then(|mut it| it.remove(COPY_OF));
        let owners = metadata.owner_references.into_iter().flatten();
        Self {
            uid: text(metadata.uid),
            resource_version: text(metadata.resource_version),
            mark: mark.map(Into::into),
            owners: owners.map(|owner| owner.uid.into()).collect(),
        }
    }
}

impl Resource for TargetMetadata {
    type DynamicType = ConfigKind;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        true
    }

    fn kind(kind: &ConfigKind) -> Cow<'_, str> {
        kind.as_str().into()
    }

    fn group(_: &ConfigKind) -> Cow<'_, str> {
        "".into()
    }

    fn version(_: &ConfigKind) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(kind: &ConfigKind) -> Cow<'_, str> {
        kind.plural().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
