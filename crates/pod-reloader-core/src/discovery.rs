//! What a pod spec needs of ConfigMaps and Secrets before its containers can start.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use crate::name::Name;
use crate::reference::{ConfigKind, Reference};

/// The most objects and keys that one workload waits for.
pub const MAX_REQUIREMENTS: usize = 1024;

/// The most items of one list that are read: what a request may hold is more than memory has room for.
const MAX_ITEMS: usize = 4096;

/// An object, or one key of it, without which a pod does not start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// The object.
    pub reference: Reference,
    /// The key of the object, where the pod spec names one.
    pub key: Option<Box<str>>,
}

/// The part of a pod spec that names ConfigMaps and Secrets. Everything else is skipped as it is read.
///
/// Field names are those of the Kubernetes API; absent and `null` are the same.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    #[serde(deserialize_with = "those_of_use")]
    volumes: Option<Vec<Volume>>,
}

impl PodSpec {
    /// The objects and keys that a pod in `namespace` cannot start without: env, envFrom, volumes
    /// and projected volumes of containers and init containers, where they are not `optional`. Only of
    /// objects that `is_listed` holds for, and the first [`MAX_REQUIREMENTS`].
    pub fn requirements(
        &self,
        namespace: &Name,
        is_listed: impl Fn(&Reference) -> bool,
    ) -> BTreeSet<Requirement> {
        self.sources()
            .filter(|(_, source)| source.optional != Some(true))
            .filter_map(|(kind, source)| Some((reference(namespace, kind, source)?, source)))
            .filter(|(reference, _)| is_listed(reference))
            .flat_map(|(reference, source)| requirements_of(reference, source))
            .take(MAX_REQUIREMENTS)
            .collect()
    }

    /// Every source of configuration in the pod spec, with the kind of object that it names.
    fn sources(&self) -> impl Iterator<Item = (ConfigKind, &Source)> {
        let containers = each(&self.init_containers).chain(each(&self.containers));
        let env = containers
            .clone()
            .flat_map(|container| each(&container.env));
        let env_from = containers.flat_map(|container| each(&container.env_from));
        let projected = each(&self.volumes)
            .filter_map(|volume| volume.projected.as_ref())
            .flat_map(|projected| each(&projected.sources));
        env.filter_map(|variable| variable.value_from.as_ref())
            .flat_map(|from| pair(&from.config_map_key_ref, &from.secret_key_ref))
            .chain(env_from.flat_map(|from| pair(&from.config_map_ref, &from.secret_ref)))
            .chain(each(&self.volumes).flat_map(|volume| pair(&volume.config_map, &volume.secret)))
            .chain(projected.flat_map(|source| pair(&source.config_map, &source.secret)))
    }
}

/// The object that `source` names. The apiserver accepts names here that no object can have: such a pod
/// never starts anyway.
fn reference(namespace: &Name, kind: ConfigKind, source: &Source) -> Option<Reference> {
    let name = Name::parse(source.name.as_deref()?).ok()?;
    Some(Reference {
        kind,
        namespace: namespace.clone(),
        name,
    })
}

/// The keys that `source` names, or else the object alone.
fn requirements_of(reference: Reference, source: &Source) -> impl Iterator<Item = Requirement> {
    let items = each(&source.items).map(|item| &item.key);
    let keys = source.key.iter().chain(items).map(|key| Some(&**key));
    let names_none = source.key.is_none() && each(&source.items).len() == 0;
    let object = names_none.then_some(None);
    keys.chain(object).map(move |key| Requirement {
        reference: reference.clone(),
        key: key.map(Into::into),
    })
}

fn each<T>(list: &Option<Vec<T>>) -> std::slice::Iter<'_, T> {
    list.as_deref().unwrap_or_default().iter()
}

fn pair<'a>(
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
struct Source {
    #[serde(alias = "secretName")]
    name: Option<String>,
    key: Option<String>,
    #[serde(default, deserialize_with = "those_of_use")]
    items: Option<Vec<Item>>,
    optional: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct Item {
    key: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default, deserialize_with = "those_of_use")]
    env: Option<Vec<EnvVar>>,
    env_from: Option<Vec<EnvFrom>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvVar {
    value_from: Option<ValueFrom>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ValueFrom {
    config_map_key_ref: Option<Source>,
    secret_key_ref: Option<Source>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvFrom {
    config_map_ref: Option<Source>,
    secret_ref: Option<Source>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    config_map: Option<Source>,
    secret: Option<Source>,
    projected: Option<Projected>,
}

#[derive(Clone, Debug, Deserialize)]
struct Projected {
    sources: Option<Vec<ProjectedSource>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProjectedSource {
    config_map: Option<Source>,
    secret: Option<Source>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn of_more_keys_than_memory_has_room_for_the_first_count() {
        let items: Vec<_> = (0..10_000).map(|n| json!({"key": n.to_string()})).collect();
        let volume = |name: &str| json!({"configMap": {"name": name, "items": items}});
        let spec = json!({"volumes": [volume("other"), volume("listed")]});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let is_listed = |reference: &Reference| reference.name.as_str() == "listed";
        let requirements = spec.requirements(&Name::parse("ns").unwrap(), is_listed);
        assert_eq!(requirements.len(), MAX_REQUIREMENTS);
        assert!(requirements.iter().all(|it| is_listed(&it.reference)));
    }

    #[test]
    fn of_what_names_nothing_nothing_is_kept() {
        let spec = json!({
            "containers": [{"env": [{"name": "A", "value": "1"}, {}]}, {"env": null}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        });
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(each(&each(&spec.containers).next().unwrap().env).count(), 0);
        assert_eq!(each(&spec.volumes).count(), 0);
    }

    fn requirements(pod_spec: &Value) -> Vec<String> {
        let pod_spec: PodSpec = serde_json::from_value(pod_spec.clone()).unwrap();
        pod_spec
            .requirements(&Name::parse("ns").unwrap(), |_| true)
            .iter()
            .map(|Requirement { reference, key }| match key {
                Some(key) => format!("{reference}[{key}]"),
                None => reference.to_string(),
            })
            .collect()
    }

    #[test]
    fn env_needs_its_key() {
        assert_eq!(
            requirements(&json!({"containers": [{"env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "C", "value": "literal"},
                {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ]}]})),
            ["ConfigMap ns/c[k]", "Secret ns/s[k]"]
        );
    }

    #[test]
    fn env_from_needs_the_object_also_in_init_containers() {
        assert_eq!(
            requirements(&json!({"initContainers": [{"envFrom": [
                {"configMapRef": {"name": "c"}}, {"prefix": "P", "secretRef": {"name": "s"}},
            ]}], "containers": null})),
            ["ConfigMap ns/c", "Secret ns/s"]
        );
    }

    #[test]
    fn volumes_need_the_object_or_their_items() {
        assert_eq!(
            requirements(&json!({"volumes": [
                {"name": "a", "configMap": {"name": "c"}},
                {"name": "b", "secret": {"secretName": "s", "items": [{"key": "k", "path": "p"}]}},
                {"name": "c", "projected": {"sources": [
                    {"configMap": {"name": "pc", "items": [{"key": "k", "path": "p"}]}},
                    {"secret": {"name": "ps"}},
                    {"serviceAccountToken": {"path": "token"}},
                ]}},
                {"name": "d", "emptyDir": {}},
            ]})),
            [
                "ConfigMap ns/c",
                "ConfigMap ns/pc[k]",
                "Secret ns/ps",
                "Secret ns/s[k]"
            ]
        );
    }

    #[test]
    fn optional_sources_are_not_needed() {
        assert_eq!(
            requirements(&json!({
                "containers": [{
                    "env": [{"name": "A", "valueFrom":
                        {"configMapKeyRef": {"name": "c", "key": "k", "optional": true}}}],
                    "envFrom": [{"secretRef": {"name": "s", "optional": true}}],
                }],
                "volumes": [
                    {"name": "a", "configMap": {"name": "c", "optional": true}},
                    {"name": "b", "projected": {"sources": [{"secret": {"name": "s", "optional": true}}]}},
                    {"name": "c", "secret": {"secretName": "needed", "optional": false}},
                ],
            })),
            ["Secret ns/needed"]
        );
    }

    #[test]
    fn a_name_that_no_object_can_have_is_no_requirement() {
        assert!(requirements(&json!({"volumes": [{"configMap": {"name": "../x"}}]})).is_empty());
        assert!(requirements(&json!({"volumes": [{"configMap": {}}]})).is_empty());
    }
}
