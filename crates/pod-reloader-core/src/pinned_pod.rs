//! Replaces the names of ConfigMaps in a new pod by the names of the copies that it is pinned to.

use std::fmt;
use std::marker::PhantomData;

use json_patch::{PatchOperation, ReplaceOperation};
use jsonptr::PointerBuf;
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::json;
use serde_json::value::RawValue;

use crate::pins::Pins;

/// The maximum number of names that are replaced in one pod: each takes some hundred bytes. The admission
/// policy has a limit of its own in the same range.
const MAX_NAMES: usize = 16_384;

/// Returns the patch that makes a new pod use the copies of ConfigMaps that its annotation names.
///
/// # Guarantees
///
/// All names are replaced or none. If the annotation is malformed, or the pod is not shaped like one, or has
/// too many such names, the patch is empty, and the pod uses the live ConfigMaps. The admission policy of the
/// chart does the same.
pub fn use_copies(pod: &RawValue) -> Vec<PatchOperation> {
    replacements(pod).unwrap_or_default()
}

fn replacements(pod: &RawValue) -> Option<Vec<PatchOperation>> {
    let pod: Pod = serde_json::from_str(pod.get()).ok()?;
    let pins = pod.metadata?.annotations?.pins?;
    let pins = Pins::parse(&pins).filter(|pins| !is_chain(pins))?;
    let spec = pod.spec?;
    let mut operations = Vec::new();
    for (path, name) in spec.names() {
        let Some(copy) = pins.get(name) else { continue };
        if operations.len() == MAX_NAMES {
            return None;
        }
        operations.push(PatchOperation::Replace(ReplaceOperation {
            path: PointerBuf::parse(path).ok()?,
            value: json!(copy.as_str()),
        }));
    }
    Some(operations)
}

/// Returns true if a copy is pinned itself. Webhook and policy may be invoked again for the same pod, and would
/// then replace the name of that copy.
fn is_chain(pins: &Pins) -> bool {
    pins.iter()
        .any(|(_, copy)| pins.get(copy.as_str()).is_some())
}

#[derive(Deserialize)]
struct Pod {
    metadata: Option<Metadata>,
    spec: Option<Spec>,
}

#[derive(Deserialize)]
struct Metadata {
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
struct Annotations {
    /// The pins, which the controllers copy from the pod template.
    #[serde(rename = "pod-reloader.cs.sap.com/pins")]
    pins: Option<Box<str>>,
}

/// The parts of a pod spec that name ConfigMaps. No pod is created with ephemeral containers.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    volumes: Items<Volume>,
    containers: Items<Container>,
    init_containers: Items<Container>,
}

impl Spec {
    /// Returns the names of ConfigMaps, each with its path.
    fn names(&self) -> impl Iterator<Item = (String, &str)> {
        let volumes = self.volumes.0.iter();
        let volumes = volumes.flat_map(|(at, it)| it.names(format!("/spec/volumes/{at}")));
        let containers = [
            ("containers", &self.containers),
            ("initContainers", &self.init_containers),
        ];
        let containers = containers.into_iter().flat_map(|(list, containers)| {
            let containers = containers.0.iter();
            containers.flat_map(move |(at, it)| it.names(format!("/spec/{list}/{at}")))
        });
        volumes.chain(containers)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    config_map: Option<Source>,
    projected: Option<Projected>,
}

impl Volume {
    fn names(&self, path: String) -> impl Iterator<Item = (String, &str)> {
        let own = named(&self.config_map).map(|name| (format!("{path}/configMap/name"), name));
        let projected = self.projected.iter().flat_map(|it| &it.sources.0);
        let projected = projected.filter_map(move |(at, it)| {
            let path = format!("{path}/projected/sources/{at}/configMap/name");
            Some((path, named(&it.config_map)?))
        });
        own.into_iter().chain(projected)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Projected {
    sources: Items<ProjectedSource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProjectedSource {
    config_map: Option<Source>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    env_from: Items<EnvFrom>,
    env: Items<EnvVar>,
}

impl Container {
    fn names(&self, path: String) -> impl Iterator<Item = (String, &str)> {
        let env_path = path.clone();
        let env_from = self.env_from.0.iter().filter_map(move |(at, it)| {
            let path = format!("{path}/envFrom/{at}/configMapRef/name");
            Some((path, named(&it.config_map_ref)?))
        });
        let env = self.env.0.iter().filter_map(move |(at, it)| {
            let path = format!("{env_path}/env/{at}/valueFrom/configMapKeyRef/name");
            Some((path, it.name()?))
        });
        env_from.chain(env)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvFrom {
    config_map_ref: Option<Source>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvVar {
    value_from: Option<ValueFrom>,
}

impl EnvVar {
    fn name(&self) -> Option<&str> {
        named(&self.value_from.as_ref()?.config_map_key_ref)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ValueFrom {
    config_map_key_ref: Option<Source>,
}

/// A reference to a ConfigMap.
#[derive(Deserialize)]
struct Source {
    name: Option<Box<str>>,
}

fn named(source: &Option<Source>) -> Option<&str> {
    source.as_ref()?.name.as_deref()
}

/// The items of a list that name a ConfigMap, each with its index. The others are not stored: a request may
/// hold three megabytes of them.
struct Items<T>(Vec<(usize, T)>);

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// An item of a list that may or may not name a ConfigMap.
trait MayName {
    fn names_any(&self) -> bool;
}

impl MayName for Volume {
    fn names_any(&self) -> bool {
        let projected = self.projected.as_ref();
        named(&self.config_map).is_some() || projected.is_some_and(|it| !it.sources.0.is_empty())
    }
}

impl MayName for ProjectedSource {
    fn names_any(&self) -> bool {
        named(&self.config_map).is_some()
    }
}

impl MayName for Container {
    fn names_any(&self) -> bool {
        !(self.env_from.0.is_empty() && self.env.0.is_empty())
    }
}

impl MayName for EnvFrom {
    fn names_any(&self) -> bool {
        named(&self.config_map_ref).is_some()
    }
}

impl MayName for EnvVar {
    fn names_any(&self) -> bool {
        self.name().is_some()
    }
}

impl<'de, T: Deserialize<'de> + MayName> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + MayName> Visitor<'de> for List<T> {
            type Value = Items<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_none<E>(self) -> Result<Self::Value, E> {
                Ok(Items::default())
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Items::default())
            }

            fn visit_some<D: Deserializer<'de>>(self, list: D) -> Result<Self::Value, D::Error> {
                list.deserialize_seq(self)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                let mut index = 0;
                while let Some(item) = list.next_element::<Option<T>>()? {
                    let item = item.filter(MayName::names_any);
                    items.extend(item.map(|item| (index, item)));
                    index += 1;
                }
                Ok(Items(items))
            }
        }

        deserializer.deserialize_option(List(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::value::to_raw_value;

    use super::*;

    /// Returns a pod that names ConfigMap `a` in every place, and other objects beside it.
    fn pod(pins: &Value) -> Value {
        let env = |name: &str| json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": name, "key": "k"}}});
        let container = json!({
            "name": "main",
            "env": [
                {"name": "PLAIN", "value": "a"},
                env("other"),
                env("a"),
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "a", "key": "k"}}},
            ],
            "envFrom": [
                {"secretRef": {"name": "a"}},
                {"configMapRef": {"name": "other"}},
                {"prefix": "A_", "configMapRef": {"name": "a", "optional": true}},
            ],
            "volumeMounts": [{"name": "a", "mountPath": "/a"}],
        });
        json!({
            "metadata": {"name": "a", "annotations": {"a": "a", "pod-reloader.cs.sap.com/pins": pins}},
            "spec": {
                "volumes": [
                    {"name": "a", "secret": {"secretName": "a"}},
                    {"name": "b", "configMap": {"name": "a", "items": [{"key": "a", "path": "a"}]}},
                    {"name": "c", "configMap": {"name": "other"}},
                    {"name": "d", "projected": {"sources": [
                        {"secret": {"name": "a"}},
                        {"configMap": {"name": "a"}},
                        {"configMap": {"name": "other"}},
                    ]}},
                ],
                "containers": [{"name": "first"}, container],
                "initContainers": [container],
                "ephemeralContainers": [container],
                "imagePullSecrets": [{"name": "a"}],
            },
        })
    }

    fn patch(pod: &Value) -> Vec<PatchOperation> {
        use_copies(&to_raw_value(pod).unwrap())
    }

    fn patched(pod: &Value) -> Value {
        let mut patched = pod.clone();
        json_patch::patch(&mut patched, &patch(pod)).unwrap();
        patched
    }

    #[test]
    fn every_name_of_a_pinned_config_map_and_no_other_is_replaced() {
        let pod = pod(&json!("a=a-0123456789,b=b-0123456789"));
        let mut expected = pod.clone();
        for path in [
            "/spec/volumes/1/configMap/name",
            "/spec/volumes/3/projected/sources/1/configMap/name",
            "/spec/containers/1/env/2/valueFrom/configMapKeyRef/name",
            "/spec/containers/1/envFrom/2/configMapRef/name",
            "/spec/initContainers/0/env/2/valueFrom/configMapKeyRef/name",
            "/spec/initContainers/0/envFrom/2/configMapRef/name",
        ] {
            *expected.pointer_mut(path).unwrap() = json!("a-0123456789");
        }
        assert_eq!(patched(&pod), expected);
        assert_eq!(patch(&expected), [], "once more");
    }

    #[test]
    fn several_config_maps_have_a_copy_each() {
        let patched = patched(&pod(&json!("a=x,other=y")));
        let name = |path: &str| patched.pointer(path).unwrap().as_str().unwrap();
        assert_eq!(name("/spec/volumes/1/configMap/name"), "x");
        assert_eq!(name("/spec/volumes/2/configMap/name"), "y");
    }

    #[test]
    fn a_malformed_annotation_changes_nothing_at_all() {
        let long = format!("a={}", "x".repeat(254));
        for pins in [
            "",
            ",",
            "=",
            "a",
            "a=",
            "=x",
            "a=x,",
            ",a=x",
            "a=x,,b=y",
            "a=x,garbage",
            "a=x=y",
            "a=x,a=y",
            "a=x,a=x",
            "a=x,b=X",
            "a=x,b=../y",
            "a=x,b_=y",
            "a =x",
            "a=ä",
            "a=x\0",
            "a=-x",
            "a=x..y",
            "a=a",
            "a=b,b=c",
            "a=b,b=a",
            &long,
        ] {
            assert_eq!(patch(&pod(&json!(pins))), [], "{pins:?}");
        }
        for pins in [json!(null), json!(1), json!(["a=x"]), json!({"a": "x"})] {
            assert_eq!(patch(&pod(&pins)), [], "{pins}");
        }
        let longest = format!("a={}", "x".repeat(253));
        for pins in [&*longest, " a=x\n", "b=y, a=x"] {
            assert_eq!(patch(&pod(&json!(pins))).len(), 6, "{pins:?}");
        }
    }

    #[test]
    fn a_pod_without_the_annotation_stays_as_it_is() {
        let mut bare = pod(&json!("a=x"));
        for (path, value) in [
            ("/metadata/annotations", json!({"a": "b"})),
            ("/metadata/annotations", json!({})),
            ("/metadata/annotations", json!(null)),
            ("/metadata", json!({})),
            ("/metadata", json!(null)),
        ] {
            *bare.pointer_mut(path).unwrap() = value;
            assert_eq!(patch(&bare), [], "{path}");
        }
    }

    #[test]
    fn nulls_and_fields_of_the_future_are_passed_over() {
        let whole = pod(&json!("a=x"));
        let mut odd = whole.clone();
        let future = json!({"name": "a", "configMap": {"name": "a"}, "z": [null, {"a": 1.5e300}]});
        for path in [
            "",
            "/metadata",
            "/spec",
            "/spec/containers/0",
            "/spec/volumes/1",
        ] {
            odd.pointer_mut(path).unwrap()["fieldOfTheFuture"] = future.clone();
        }
        odd["spec"]["containers"][0]["env"] = json!(null);
        odd["spec"]["containers"][1]["env"][0] = json!(null);
        odd["spec"]["containers"][1]["env"][1] = json!({"valueFrom": null});
        odd["spec"]["containers"][1]["envFrom"][0] = json!({"configMapRef": null});
        odd["spec"]["containers"][1]["envFrom"][1] = json!({"configMapRef": {"name": null}});
        odd["spec"]["volumes"][0] = json!(null);
        odd["spec"]["volumes"][2] = json!({"configMap": null, "projected": {"sources": null}});
        assert_eq!(patch(&odd), patch(&whole));
        assert_eq!(patch(&whole).len(), 6);
        odd["spec"]["initContainers"] = json!(null);
        odd["spec"]["volumes"] = json!([{"configMap": {}}, {"projected": {}}, {}]);
        assert_eq!(patch(&odd).len(), 2);
    }

    #[test]
    fn what_is_not_shaped_like_a_pod_is_left_alone() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in ["1", "null", "[]", "{}", "\"a\"", &deep] {
            if let Ok(raw) = RawValue::from_string(text.to_owned()) {
                assert_eq!(use_copies(&raw), []);
            }
        }
        for (path, value) in [
            ("/spec", json!(null)),
            ("/spec", json!([])),
            ("/spec/containers", json!({})),
            ("/spec/containers/0", json!("a")),
            ("/spec/containers/1/env", json!(1)),
            ("/spec/containers/1/env/0/valueFrom", json!("a")),
            ("/spec/volumes/1/configMap", json!("a")),
            ("/spec/volumes/1/configMap/name", json!(1)),
            ("/spec/volumes/3/projected/sources", json!({})),
        ] {
            let mut odd = pod(&json!("a=x"));
            match odd.pointer_mut(path) {
                Some(place) => *place = value,
                None => odd["spec"]["containers"][1]["env"][0]["valueFrom"] = value,
            }
            assert_eq!(patch(&odd), [], "{path}");
        }
    }

    fn crowded(containers: usize, variables: usize) -> Value {
        let env = json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "k"}}});
        let container = json!({"name": "c", "env": vec![env; variables]});
        let mut pod = pod(&json!("a=x"));
        pod["spec"] = json!({"containers": vec![container; containers]});
        pod
    }

    #[test]
    fn a_pod_of_64_containers_with_64_variables_each_is_pinned() {
        let patched = patched(&crowded(64, 64)).to_string();
        assert_eq!(patched.matches(r#""name":"x""#).count(), 64 * 64);
        assert!(
            !patched.contains(r#""name":"a","key""#)
                && !patched.contains(r#""key":"k","name":"a""#)
        );
    }

    #[test]
    fn a_pod_with_too_many_names_is_not_pinned_at_all() {
        assert_eq!(patch(&crowded(128, MAX_NAMES / 128)).len(), MAX_NAMES);
        assert_eq!(patch(&crowded(128, MAX_NAMES / 128 + 1)), []);
    }
}
