//! The metadata of sources and targets, as watches bring it.

use kube_core::{ApiResource, DynamicResourceScope};
use serde::Deserialize;

use crate::metadata::{Metadata, Wanted, resource};

/// The metadata of a source or a target. Of the rest, only a little is parsed.
#[derive(Clone, Debug, Deserialize)]
pub struct BoundMetadata {
    metadata: Metadata<Self>,
}

impl Wanted for BoundMetadata {}

impl BoundMetadata {
    /// Returns the namespace and the name. `None` if it lacks one, which the apiserver never sends.
    pub fn names(&self) -> Option<(&str, &str)> {
        let metadata = &self.metadata;
        Some((metadata.namespace.as_deref()?, metadata.name.as_deref()?))
    }

    /// Returns the resourceVersion, which is another one after each write.
    pub fn resource_version(&self) -> Box<str> {
        let version = self.metadata.resource_version.as_deref();
        version.unwrap_or_default().into()
    }

    /// Returns the UID and the generation, which is another one after each write that changes the spec of a custom
    /// resource: a status that changes all the time costs nothing.
    pub fn spec_version(&self) -> Box<str> {
        let uid = self.metadata.uid.as_deref().unwrap_or_default();
        let generation = self.metadata.generation.unwrap_or_default();
        format!("{uid}/{generation}").into()
    }
}

resource!(
    BoundMetadata, DynamicResourceScope, of_metadata: true, by resource: ApiResource,
    group: resource.group.as_str(), version: resource.version.as_str(),
    kind: resource.kind.as_str(), plural: resource.plural.as_str()
);
