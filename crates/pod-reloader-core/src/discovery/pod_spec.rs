//! The part of a pod spec that names ConfigMaps and Secrets, read within bounds.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use crate::reference::ConfigKind;

/// The most items of one list that are read: what a request may hold is more than memory has room for.
const MAX_ITEMS: usize = 4096;

/// The part of a pod spec that names ConfigMaps and Secrets. Everything else is skipped as it is read.
///
/// Field names are those of the Kubernetes API; absent and `null` are the same.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub(super) containers: Option<Vec<Container>>,
    pub(super) init_containers: Option<Vec<Container>>,
    #[serde(deserialize_with = "those_of_use")]
    pub(super) volumes: Option<Vec<Volume>>,
}

pub(super) fn each<T>(list: &Option<Vec<T>>) -> std::slice::Iter<'_, T> {
    list.as_deref().unwrap_or_default().iter()
}

pub(super) fn pair<'a>(
    config_map: &'a Option<Source>,
    secret: &'a Option<Source>,
) -> impl Iterator<Item = (ConfigKind, &'a Source)> {
    let config_map = config_map
        .iter()
        .map(|source| (ConfigKind::ConfigMap, source));
    config_map.chain(secret.iter().map(|source| (ConfigKind::Secret, source)))
}

/// Every way in which a pod spec names a ConfigMap or Secret, in one type: a key reference has `key`,
/// a volume has `items`, and the volume of a Secret calls its name `secretName`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Source {
    #[serde(alias = "secretName")]
    pub(super) name: Option<String>,
    pub(super) key: Option<String>,
    #[serde(default, deserialize_with = "those_of_use")]
    pub(super) items: Option<Vec<Item>>,
    pub(super) optional: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Item {
    pub(super) key: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container {
    #[serde(default, deserialize_with = "those_of_use")]
    pub(super) env: Option<Vec<EnvVar>>,
    pub(super) env_from: Option<Vec<EnvFrom>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EnvVar {
    pub(super) value_from: Option<ValueFrom>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ValueFrom {
    pub(super) config_map_key_ref: Option<Source>,
    pub(super) secret_key_ref: Option<Source>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EnvFrom {
    pub(super) config_map_ref: Option<Source>,
    pub(super) secret_ref: Option<Source>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Volume {
    pub(super) config_map: Option<Source>,
    pub(super) secret: Option<Source>,
    pub(super) projected: Option<Projected>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Projected {
    pub(super) sources: Option<Vec<ProjectedSource>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProjectedSource {
    pub(super) config_map: Option<Source>,
    pub(super) secret: Option<Source>,
}

/// An item of a list that may name no ConfigMap and no Secret.
trait MayNameConfig {
    fn names_config(&self) -> bool;
}

impl MayNameConfig for EnvVar {
    fn names_config(&self) -> bool {
        self.value_from.is_some()
    }
}

impl MayNameConfig for Item {
    fn names_config(&self) -> bool {
        true
    }
}

impl MayNameConfig for Volume {
    fn names_config(&self) -> bool {
        self.config_map.is_some() || self.secret.is_some() || self.projected.is_some()
    }
}

/// Reads the first [`MAX_ITEMS`] items of a list that name something: of three megabytes of items, all
/// that a request may have, each would take some hundred times its size.
fn those_of_use<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + MayNameConfig,
{
    struct Items<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de> + MayNameConfig> Visitor<'de> for Items<T> {
        type Value = Option<Vec<T>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, list: D) -> Result<Self::Value, D::Error> {
            list.deserialize_seq(self)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = list.next_element::<T>()? {
                if items.len() < MAX_ITEMS && item.names_config() {
                    items.push(item);
                }
            }
            Ok(Some(items))
        }
    }

    deserializer.deserialize_option(Items(PhantomData))
}
