//! Objects as the apiserver sends them, and the results of patching them there.

use json_patch::{PatchOperation, TestOperation};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use pod_reloader_core::annotations;
use serde_json::{Map, Value, json};

use crate::choices::Choices;

/// Patches `object` the way the apiserver does. Unlike the crate's, the apiserver's `test` for `null`
/// passes if the member is absent, as long as the parent exists.
pub(crate) fn patched(object: &Value, patch: &[PatchOperation]) -> Result<Value, String> {
    let mut object = object.clone();
    for operation in patch {
        match operation {
            PatchOperation::Test(test) if test.value.is_null() => is_null(&object, test)?,
            other => json_patch::patch(&mut object, std::slice::from_ref(other))
                .map_err(|error| error.to_string())?,
        }
    }
    Ok(object)
}

fn is_null(object: &Value, test: &TestOperation) -> Result<(), String> {
    let parent = test.path.parent().ok_or("a test of the root")?;
    let parent = parent
        .resolve(object)
        .map_err(|error| error.to_string())?
        .as_object()
        .ok_or("its parent is no object")?;
    let member = test.path.last().ok_or("a test of the root")?;
    match parent.get(&*member.decoded()) {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err(format!("{} is there", test.path)),
    }
}

/// Returns true if the apiserver could send this: every field has its proper type.
pub(crate) fn is_workload(object: &Value) -> bool {
    let object = || object.clone();
    serde_json::from_value::<Deployment>(object()).is_ok()
        || serde_json::from_value::<StatefulSet>(object()).is_ok()
        || serde_json::from_value::<DaemonSet>(object()).is_ok()
}

/// Returns the config hash on the pod template of `object`.
pub(crate) fn config_hash(object: &Value) -> Option<&str> {
    let annotations = object.pointer("/spec/template/metadata/annotations")?;
    annotations.get(annotations::CONFIG_HASH)?.as_str()
}

/// Returns the baseline of `object`.
pub(crate) fn baseline(object: &Value) -> Option<&str> {
    let annotations = object.pointer("/metadata/annotations")?;
    annotations.get(annotations::BASELINE)?.as_str()
}

/// Returns `object` without our annotations, and the parents of those in the template that are then empty.
pub(crate) fn without_ours(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(annotations) = member(&mut object, &["metadata", "annotations"]) {
        annotations.remove(annotations::BASELINE);
        annotations.remove(annotations::UNDONE);
    }
    let template = ["spec", "template", "metadata", "annotations"];
    if let Some(annotations) = member(&mut object, &template) {
        annotations.remove(annotations::CONFIG_HASH);
        annotations.remove(annotations::PINS);
    }
    for depth in [3, 2] {
        if let Some(parent) = member(&mut object, &template[..depth]) {
            parent.retain(|name, value| name != template[depth] || !is_nothing(value));
        }
    }
    object
}

/// Pins of ConfigMap `a`.
const PINNED: &str = "a=a-0123456789";

pub(crate) fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty)
}

/// Returns the members of the object at `path`, if there is one.
pub(crate) fn member<'a>(
    object: &'a mut Value,
    path: &[&str],
) -> Option<&'a mut Map<String, Value>> {
    let found = path
        .iter()
        .try_fold(object, |value, name| value.get_mut(*name));
    found?.as_object_mut()
}

/// Returns a workload that lists something.
pub(crate) fn workload(choices: &mut Choices<'_>) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1",
        "kind": choices.one(&["Deployment", "StatefulSet", "DaemonSet"]),
        "metadata": {"name": "web", "namespace": "ns", "uid": "u", "generation": 3, "annotations": {}},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {
            "containers": [{"name": "main", "image": "main:1", "envFrom": [{"configMapRef": {"name": "a"}}]}],
            "volumes": [{"name": "config", "configMap": {"name": "b", "items": [{"key": "k", "path": "k"}]}}],
        }}},
    });
    let optional = |choices: &mut Choices<'_>, object: &mut Value, name: &str, values: &[Value]| {
        if choices.flag() {
            object[name] = choices.one(values).clone();
        }
    };
    let metadata = &mut object["metadata"];
    metadata["annotations"][annotations::CONFIG_MAPS] =
        choices.one(&[json!("a"), json!("a,b")]).clone();
    let own = &mut metadata["annotations"];
    optional(choices, own, annotations::SECRETS, &[json!("s"), json!("")]);
    optional(
        choices,
        own,
        annotations::BASELINE,
        &[json!("=x"), json!("old=x")],
    );
    optional(
        choices,
        own,
        annotations::PIN,
        &[json!("configmaps"), json!("a"), json!("x")],
    );
    optional(
        choices,
        own,
        annotations::UNDONE,
        &[json!(PINNED), json!("x")],
    );
    let labels = [
        json!({}),
        json!({"team": "a"}),
        json!({annotations::IGNORED: "no", "app": "web"}),
    ];
    optional(choices, metadata, "labels", &labels);
    let of_template = [
        json!({}),
        json!({"labels": {"app": "web"}}),
        json!({"annotations": {}}),
        json!({"annotations": {annotations::CONFIG_HASH: "old", "other": "x"}}),
        json!({"annotations": {annotations::CONFIG_HASH: "old", annotations::PINS: PINNED}}),
        json!({"annotations": {annotations::CONFIG_HASH: "older", annotations::PINS: "a=a-9876543210"}}),
        json!({"annotations": {annotations::PINS: ""}}),
        json!(null),
    ];
    optional(
        choices,
        &mut object["spec"]["template"],
        "metadata",
        &of_template,
    );
    object
}
