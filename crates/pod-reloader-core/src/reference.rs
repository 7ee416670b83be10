//! References: the identity of one config object.

use std::fmt;

use kube_core::{ClusterResourceScope, DynamicResourceScope};
use pod_reloader_api::SourceKind;
use serde::Deserialize;

use crate::annotations::{INHERITED, Inherited};
use crate::metadata::{Metadata, Wanted, resource};
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

    /// Returns the kind as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }

    /// Returns the resource name in URLs.
    pub fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }
}

impl From<SourceKind> for ConfigKind {
    fn from(kind: SourceKind) -> Self {
        match kind {
            SourceKind::ConfigMap => Self::ConfigMap,
            SourceKind::Secret => Self::Secret,
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
    /// The kind, ConfigMap or Secret.
    pub kind: ConfigKind,
    /// The namespace of the object and of the workload.
    pub namespace: Name,
    /// The name of the object.
    pub name: Name,
}

impl Reference {
    /// Returns the reference to a ConfigMap.
    pub fn config_map(namespace: &Name, name: &Name) -> Self {
        Self {
            kind: ConfigKind::ConfigMap,
            namespace: namespace.clone(),
            name: name.clone(),
        }
    }
}

impl fmt::Display for Reference {
    /// Writes `ConfigMap namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The metadata of a config object. Only the identity is parsed: the rest may be large, and must not
/// get in the way.
#[derive(Clone, Debug, Deserialize)]
pub struct ConfigMetadata {
    metadata: Metadata<Self>,
}

impl Wanted for ConfigMetadata {}

impl ConfigMetadata {
    /// Returns the reference to the object. `None` if a name is invalid, which the apiserver never sends.
    pub fn reference(&self, kind: ConfigKind) -> Option<Reference> {
        let (namespace, name) = self.metadata.place()?;
        Some(Reference {
            kind,
            namespace,
            name,
        })
    }

    /// Returns the resourceVersion.
    pub fn resource_version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }
}

/// The metadata of a namespace. Only the identity and the annotations are parsed.
#[derive(Clone, Debug, Deserialize)]
pub struct NamespaceMetadata {
    metadata: Metadata<Self>,
}

impl Wanted for NamespaceMetadata {
    const ANNOTATIONS: &'static [&'static str] = &INHERITED;
}

impl NamespaceMetadata {
    /// Returns the name. `None` if it is invalid, which the apiserver never sends.
    pub fn name(&self) -> Option<Name> {
        Name::parse(self.metadata.name.as_deref()?).ok()
    }

    /// Returns the annotations that apply to the workloads of the namespace.
    pub fn inherited(&self) -> Inherited {
        Inherited::of(|key| self.metadata.annotation(key))
    }
}

resource!(
    NamespaceMetadata, ClusterResourceScope, of_metadata: true,
    group: "", version: "v1", kind: "Namespace", plural: "namespaces"
);

resource!(
    ConfigMetadata, DynamicResourceScope, of_metadata: true, by kind: ConfigKind,
    group: "", version: "v1", kind: kind.as_str(), plural: kind.plural()
);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_time_out_of_range_does_not_make_metadata_unreadable() {
        // The apiserver stores and serialises these times.
        for time in [
            "9999-12-31T23:59:59Z",
            "10000-01-01T23:58:59Z",
            "0000-01-01T00:00:00Z",
        ] {
            let object = json!({"metadata": {
                "name": "app",
                "namespace": "shop",
                "creationTimestamp": time,
                "managedFields": [{"manager": "odd", "time": time}],
            }});
            let config: ConfigMetadata = serde_json::from_value(object.clone()).unwrap();
            assert!(config.reference(ConfigKind::Secret).is_some());
            let namespace: NamespaceMetadata = serde_json::from_value(object).unwrap();
            assert_eq!(namespace.name().unwrap().as_str(), "app");
        }
    }
}
