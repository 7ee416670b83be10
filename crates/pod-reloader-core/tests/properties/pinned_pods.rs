//! Checks which names of a new pod are replaced, against a reading that looks at every member of the pod.

use std::collections::BTreeMap;

use pod_reloader_core::annotations::PINS;
use pod_reloader_core::pinned_pod::use_copies;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::annotations::is_subdomain;
use crate::choices::Choices;
use crate::discovery::walk;
use crate::pod_spec::pod_spec;
use crate::written::{deep, long, spoil, written};

/// Makes a pod, and checks the patch that it gets.
pub(crate) fn hold(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let pod = pod(&mut choices);
    let text = written(&pod, &|_| true, &mut choices);
    let raw: &RawValue = serde_json::from_str(&text).expect("it is JSON");
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &use_copies(raw)).expect("the patch applies to the pod");
    assert_eq!(patched, expected(&pod), "{text}");
}

fn pod(choices: &mut Choices<'_>) -> Value {
    let pins = choices.one(&PINNED);
    let number = choices.number() % 8;
    let mut pod = json!({
        "metadata": {"name": "web", "annotations": {PINS: pins, "other": "one=x"}},
        "spec": pod_spec(choices),
    });
    pod["spec"]["future"] = json!([deep(), long(), {"configMap": {"name": "one"}}]);
    let others = [
        json!(null),
        json!(1),
        json!("one"),
        json!({}),
        json!([]),
        json!([null, null]),
        json!({"name": "one"}),
        deep(),
        long(),
    ];
    // Most pods have at most one odd part.
    for _ in 5..number {
        spoil(&mut pod, &others, choices);
    }
    pod
}

const PINNED: [&str; 11] = [
    "one=one-0123456789",
    "one=one-0123456789,two=two-abcdefghij",
    "two.three=two.three-0123456789, one=one-0123456789\n",
    "one=one-0123456789,two=two-0123456789,two.three=two.three-0123456789",
    "one=one-0123456789,one-0123456789=one-0123456789-0123456789",
    "one=one-0123456789,one=one-0123456789",
    "one=one-0123456789,",
    "one=Bad_Name",
    "one=one-0123456789,two=x",
    "other=other-0123456789",
    "",
];

/// The places where a pod names ConfigMaps.
const PLACES: [&str; 6] = [
    "/spec/volumes/*/configMap/name",
    "/spec/volumes/*/projected/sources/*/configMap/name",
    "/spec/containers/*/env/*/valueFrom/configMapKeyRef/name",
    "/spec/containers/*/envFrom/*/configMapRef/name",
    "/spec/initContainers/*/env/*/valueFrom/configMapKeyRef/name",
    "/spec/initContainers/*/envFrom/*/configMapRef/name",
];

/// Returns the pod with all names replaced, or as it is.
fn expected(pod: &Value) -> Value {
    let mut patched = pod.clone();
    let Some(pins) = pins(pod) else {
        return patched;
    };
    let mut is_odd = false;
    let mut copies = Vec::new();
    walk(&pod["spec"], "/spec".to_owned(), &mut |path, value| {
        let steps = path.split('/');
        let steps = steps.map(|step| {
            if step.parse::<usize>().is_ok() {
                "*"
            } else {
                step
            }
        });
        let here: Vec<_> = steps.collect();
        let here = here.join("/");
        for place in PLACES {
            let Some(rest) = place.strip_prefix(&here) else {
                continue;
            };
            match (rest, value) {
                (_, Value::Null) => (),
                ("", Value::String(name)) => {
                    let copy = pins.get(&**name);
                    copies.extend(copy.map(|copy| (path.to_owned(), *copy)));
                }
                ("", _) => is_odd = true,
                (rest, Value::Array(_)) if rest.starts_with("/*") => (),
                (rest, Value::Object(_)) if rest.starts_with('/') && !rest.starts_with("/*") => (),
                (rest, _) => is_odd |= rest.starts_with('/'),
            }
        }
    });
    if !is_odd {
        for (path, copy) in copies {
            *patched.pointer_mut(&path).expect("it was found there") = json!(copy);
        }
    }
    patched
}

/// Returns the copies that a pod is to use. `None` if the annotation means nothing.
fn pins(pod: &Value) -> Option<BTreeMap<&str, &str>> {
    let value = pod["metadata"]["annotations"][PINS].as_str()?;
    let mut pins = BTreeMap::new();
    for pin in value.split(',') {
        let (source, copy) = pin.trim().split_once('=')?;
        let digits = copy.strip_prefix(source)?.strip_prefix('-')?;
        let is_copy = digits.len() == 10 && digits.chars().all(|it| it.is_digit(32));
        let are_names = is_subdomain(source) && is_subdomain(copy);
        if !are_names || !is_copy || pins.insert(source, copy).is_some() {
            return None;
        }
    }
    let is_chain = pins.values().any(|copy| pins.contains_key(copy));
    (!is_chain).then_some(pins)
}
