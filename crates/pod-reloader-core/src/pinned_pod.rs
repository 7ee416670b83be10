//! Replaces the names of ConfigMaps in a new pod by the names of the copies that it is pinned to.

use std::str::Split;

use json_patch::{PatchOperation, ReplaceOperation};
use jsonptr::PointerBuf;
use serde_json::json;
use serde_json::value::RawValue;

use crate::annotations::PINS;
use crate::pins::Pins;
use crate::raw::{Text, at, elements, is_null, member};

/// The maximum number of names that are replaced in one pod: each takes some hundred bytes. The admission
/// policy has a limit of its own in the same range.
const MAX_NAMES: usize = 4096;

/// The places where a pod spec names ConfigMaps. `*` stands for each element of a list. No pod is created with ephemeral
/// containers.
const PLACES: [&str; 6] = [
    "volumes.*.configMap.name",
    "volumes.*.projected.sources.*.configMap.name",
    "containers.*.envFrom.*.configMapRef.name",
    "containers.*.env.*.valueFrom.configMapKeyRef.name",
    "initContainers.*.envFrom.*.configMapRef.name",
    "initContainers.*.env.*.valueFrom.configMapKeyRef.name",
];

/// Returns the patch that makes a new pod use the copies of ConfigMaps that its annotation names.
///
/// # Guarantees
///
/// All names are replaced or none. If the annotation is malformed, or the pod is not shaped like one, or has
/// too many such names, the patch is empty, and the pod uses the live ConfigMaps. The same holds if it names anything
/// that could not be a copy of the ConfigMap: whoever reviews a pod template would see one name, and its pods would
/// use another. The admission policy of the chart does the same.
pub fn use_copies(pod: &RawValue) -> Vec<PatchOperation> {
    replacements(pod).unwrap_or_default()
}

fn replacements(pod: &RawValue) -> Option<Vec<PatchOperation>> {
    let pins = at(pod, &["metadata", "annotations", PINS])?;
    let pins: Text<'_> = serde_json::from_str(pins.get()).ok()?;
    let pins = Pins::parse_ours(&pins).filter(|pins| !is_chain(pins))?;
    let mut replacements = Replacements {
        pins,
        operations: Vec::new(),
    };
    let spec = member(pod, "spec").ok()??;
    for place in PLACES {
        replacements.find(spec, place.split('.'), "/spec")?;
    }
    Some(replacements.operations)
}

/// Returns true if a copy is pinned itself. Webhook and policy may be invoked again for the same pod, and would
/// then replace the name of that copy.
fn is_chain(pins: &Pins) -> bool {
    pins.iter()
        .any(|(_, copy)| pins.get(copy.as_str()).is_some())
}

/// The names to replace.
struct Replacements {
    pins: Pins,
    operations: Vec<PatchOperation>,
}

impl Replacements {
    /// Finds the names in a place below a value. `path` leads to the value. `None` if the pod is not shaped like one, or
    /// has too many such names.
    fn find(&mut self, value: &RawValue, mut place: Split<'_, char>, path: &str) -> Option<()> {
        match place.next() {
            _ if is_null(value) => Some(()),
            None => {
                let name: Text<'_> = serde_json::from_str(value.get()).ok()?;
                self.replace(&name, path)
            }
            Some("*") => {
                let mut items = elements(value.get())?.enumerate();
                items.try_for_each(|(at, item)| {
                    self.find(item, place.clone(), &format!("{path}/{at}"))
                })
            }
            Some(name) => match member(value, name).ok()? {
                Some(value) => self.find(value, place, &format!("{path}/{name}")),
                None => Some(()),
            },
        }
    }

    fn replace(&mut self, name: &str, path: &str) -> Option<()> {
        let Some(copy) = self.pins.get(name) else {
            return Some(());
        };
        let operation = ReplaceOperation {
            path: PointerBuf::parse(path).ok()?,
            value: json!(copy.as_str()),
        };
        self.operations.push(PatchOperation::Replace(operation));
        (self.operations.len() <= MAX_NAMES).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::value::to_raw_value;

    use super::*;

    /// The name of a copy of ConfigMap `a`.
    const COPY: &str = "a-0123456789";
    const PIN: &str = "a=a-0123456789";

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
        let patched = patched(&pod(&json!("a=a-0123456789,other=other-abcdefghij")));
        let name = |path: &str| patched.pointer(path).unwrap().as_str().unwrap();
        assert_eq!(name("/spec/volumes/1/configMap/name"), "a-0123456789");
        assert_eq!(name("/spec/volumes/2/configMap/name"), "other-abcdefghij");
    }

    #[test]
    fn a_malformed_annotation_changes_nothing_at_all() {
        let of = |source: &str, stem: &str| format!("{PIN},{source}={stem}-0123456789");
        let too_long = of(&"x".repeat(254), &"x".repeat(242));
        for pins in [
            "",
            ",",
            "=",
            "a",
            "a=",
            "=a-0123456789",
            "a=a-0123456789,",
            ",a=a-0123456789",
            "a=a-0123456789,,b=b-0123456789",
            "a=a-0123456789,garbage",
            "a=a-0123456789=b-0123456789",
            "a=a-0123456789,a=a-9876543210",
            "a=a-0123456789,a=a-0123456789",
            "a=a-0123456789,B=B-0123456789",
            "a=a-0123456789,b=../b-0123456789",
            "a=a-0123456789,b_=b_-0123456789",
            "a =a-0123456789",
            "a=\u{e4}-0123456789",
            "a=a-0123456789\0",
            "-a=-a-0123456789",
            "a..b=a..b-0123456789",
            "a=a-0123456789,a-0123456789=a-0123456789-9876543210",
            &too_long,
        ] {
            assert_eq!(patch(&pod(&json!(pins))), [], "{pins:?}");
        }
        for pins in [json!(null), json!(1), json!([PIN]), json!({"a": COPY})] {
            assert_eq!(patch(&pod(&pins)), [], "{pins}");
        }
        let longest = of(&"x".repeat(253), &"x".repeat(242));
        let dotted = of(
            &format!("{}.{}", "x".repeat(241), "y".repeat(11)),
            &"x".repeat(241),
        );
        for pins in [
            &*longest,
            &dotted,
            " a=a-0123456789\n",
            "b=b-0123456789, a=a-0123456789",
        ] {
            assert_eq!(patch(&pod(&json!(pins))).len(), 6, "{pins:?}");
        }
    }

    /// Whoever reviews the pod template would see the name of the ConfigMap, and not the one that its pods use.
    #[test]
    fn a_pin_to_anything_but_a_copy_of_the_config_map_changes_nothing_at_all() {
        for pins in [
            "a=prod-db",
            "a=a",
            "a=b,b=c",
            "a=b-0123456789",
            "a=aa-0123456789",
            "a=a-x-0123456789",
            "a=a0123456789",
            "a=a-012345678",
            "a=a-01234567890",
            "a=a-012345678w",
            "a=a-0123456789,other=prod-db",
        ] {
            assert_eq!(patch(&pod(&json!(pins))), [], "{pins:?}");
        }
    }

    #[test]
    fn a_pod_without_the_annotation_stays_as_it_is() {
        let mut bare = pod(&json!(PIN));
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
        let whole = pod(&json!(PIN));
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
            let mut odd = pod(&json!(PIN));
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
        let mut pod = pod(&json!(PIN));
        pod["spec"] = json!({"containers": vec![container; containers]});
        pod
    }

    #[test]
    fn a_pod_of_64_containers_with_64_variables_each_is_pinned() {
        let patched = patched(&crowded(64, 64)).to_string();
        assert_eq!(patched.matches(r#""name":"a-0123456789""#).count(), 64 * 64);
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
