//! References: which config object is meant.

use std::borrow::Cow;
use std::fmt;

use kube_core::{DynamicResourceScope, ObjectMeta, Resource};
use serde::{Deserialize, Deserializer};

use crate::name::Name;

/// The kinds of config object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl ConfigKind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::ConfigMap, Self::Secret];

    /// The kind as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    /// The resource in URLs.
    pub fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }
}

impl fmt::Display for ConfigKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One config object that a workload depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// ConfigMap or Secret.
    pub kind: ConfigKind,
    /// The namespace of the object, which is that of the workload.
    pub namespace: Name,
    /// The name of the object.
    pub name: Name,
}

impl fmt::Display for Reference {
    /// `ConfigMap namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// A config object of which only the metadata is asked for, and of that only the identity is read: the
/// rest may be large, and is in nobody's way.
#[derive(Clone, Debug, Deserialize)]
pub struct ConfigMetadata {
    #[serde(deserialize_with = "identity")]
    metadata: ObjectMeta,
}

impl ConfigMetadata {
    /// Which object it is. `None` where its names are none, which the apiserver never sends.
    pub fn reference(&self, kind: ConfigKind) -> Option<Reference> {
        let name = |text: &Option<String>| Name::parse(text.as_deref()?).ok();
        Some(Reference {
            kind,
            namespace: name(&self.metadata.namespace)?,
            name: name(&self.metadata.name)?,
        })
    }

    /// Its resourceVersion.
    pub fn resource_version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Identity {
        name: Option<String>,
        namespace: Option<String>,
        resource_version: Option<String>,
    }
    let identity = Identity::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: identity.name,
        namespace: identity.namespace,
        resource_version: identity.resource_version,
        ..ObjectMeta::default()
    })
}

impl Resource for ConfigMetadata {
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
