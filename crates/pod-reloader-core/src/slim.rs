//! The custom resources of the operator, as they are read: of their metadata, only the identity is parsed.

use std::borrow::Cow;

use kube_core::{ObjectMeta, Resource};
use pod_reloader_api::{ClusterConfigSync, FieldBinding};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::metadata::{Metadata, Wanted};

/// A custom resource whose metadata has nothing but the identity.
#[derive(Clone, Debug)]
pub struct Slim<K>(pub K);

impl<K> Wanted for Slim<K> {}

impl<K: Resource> Resource for Slim<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(kind: &K::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &K::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &K::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &K::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

macro_rules! read {
    ($($kind:ident: $max_spec:expr),*) => {
        $(impl<'de> Deserialize<'de> for Slim<$kind> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let Fields::<$kind, _> {
                    metadata,
                    spec,
                    status,
                } = Fields::deserialize(deserializer)?;
                if spec.get().len() > $max_spec {
                    return Err(D::Error::custom("the spec is too large"));
                }
                Ok(Self($kind {
                    metadata: metadata.object().clone(),
                    spec: serde_json::from_str(spec.get())
                        .map_err(|_| D::Error::custom("the spec cannot be read"))?,
                    status,
                }))
            }
        })*
    };
}

#[derive(Deserialize)]
#[serde(bound = "Status: Deserialize<'de>")]
struct Fields<K, Status> {
    metadata: Metadata<Slim<K>>,
    /// The unparsed spec.
    spec: Box<RawValue>,
    status: Option<Status>,
}

// The maximum size of each spec, in bytes. By its definition, it is smaller.
read!(ClusterConfigSync: 4 << 20, FieldBinding: 128 << 10);
