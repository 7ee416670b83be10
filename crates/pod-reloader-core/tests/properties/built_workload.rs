//! What a workload says, by an object that is built.

use std::collections::{BTreeMap, BTreeSet};

use pod_reloader_core::annotations as keys;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;
use serde_json::{Value, json};

use crate::annotations::{items, name_of};
use crate::discovery::uses;

/// The annotations that are read, and one that is not.
pub(crate) const READ: [&str; 7] = [
    keys::CONFIG_MAPS,
    keys::SECRETS,
    keys::EXCLUDE_CONFIG_MAPS,
    keys::EXCLUDE_SECRETS,
    keys::AUTO,
    keys::RESTART,
    "other",
];
pub(crate) const LABELS: [&str; 3] = [keys::IGNORED, keys::DISABLED, "app"];

/// Returns what a workload says, by the object and the pod specs in it. `None` if its namespace is not a name.
pub(crate) fn expected(object: &Value, specs: &[Value], templates: Vec<Value>) -> Option<Value> {
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    let namespace = text("namespace");
    Name::parse(&namespace).ok()?;
    let annotation = |key: &str| metadata["annotations"][key].as_str();
    let label = |key: &str| metadata["labels"][key].as_str();
    let value =
        |key: &str, value: Option<&str>| json!([key, value.filter(|_| !UNREAD.contains(&key))]);
    let takes = |kind: ConfigKind| match annotation(keys::AUTO) {
        Some("true") => true,
        Some("configmaps") => kind == ConfigKind::ConfigMap,
        Some("secrets") => kind == ConfigKind::Secret,
        _ => false,
    };
    let listed = |kind: ConfigKind| match kind {
        ConfigKind::ConfigMap => (
            annotation(keys::CONFIG_MAPS),
            annotation(keys::EXCLUDE_CONFIG_MAPS),
        ),
        ConfigKind::Secret => (annotation(keys::SECRETS), annotation(keys::EXCLUDE_SECRETS)),
    };
    let mut named = BTreeSet::new();
    let mut is_opted_in = false;
    for kind in ConfigKind::ALL {
        let (list, excluded) = listed(kind);
        is_opted_in |= list.is_some() || takes(kind);
        let items = items(list.unwrap_or_default());
        let mut names: BTreeSet<String> = items.iter().filter_map(|it| name_of(it)).collect();
        if takes(kind) {
            let uses = specs.iter().flat_map(uses);
            names.extend(uses.filter(|it| it.0 == kind).map(|it| it.1));
        }
        let excluded: BTreeSet<_> = excluded
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
            .collect();
        names.retain(|name| Name::parse(name).is_ok() && !excluded.contains(name.as_str()));
        named.extend(names.into_iter().map(|name| (kind, name)));
    }
    let is_ignored = [keys::IGNORED, keys::DISABLED]
        .into_iter()
        .any(|key| label(key) == Some("true"));
    let spec = &object["spec"];
    let strategy = spec["updateStrategy"]["type"].as_str();
    let stall = match spec["paused"].as_bool() {
        Some(true) => Some("Paused"),
        _ => strategy.filter(|it| *it == "OnDelete"),
    };
    let opt_in = if is_opted_in { "ByUs" } else { "None" };
    let named = named.iter().map(|(kind, name)| format!("{kind} {name}"));
    Some(json!({
        "id": [text("name"), namespace, text("uid")],
        "generation": metadata["generation"].as_i64().unwrap_or_default(),
        "optIn": opt_in,
        "isOptedIn": is_opted_in && !is_ignored,
        "named": named.collect::<Vec<_>>(),
        "annotations": READ.map(|key| value(key, annotation(key))),
        "labels": LABELS.map(|key| value(key, label(key))),
        "has": [metadata["annotations"].is_object(), metadata["labels"].is_object()],
        "baseline": annotation(keys::BASELINE),
        "size": size(&metadata["annotations"]),
        "templates": templates,
        "stall": stall,
    }))
}

/// The annotations and labels that say nothing to us.
const UNREAD: [&str; 2] = ["other", "app"];

/// Returns the size of a map of texts, measured the way Kubernetes does.
fn size(annotations: &Value) -> usize {
    let annotations = annotations.as_object().into_iter().flatten();
    let sizes = annotations.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len));
    sizes.sum()
}

fn template(depth: Option<usize>, annotations: &Value) -> Value {
    json!({
        "depth": depth,
        "hash": annotations[keys::CONFIG_HASH].as_str(),
        "pins": annotations[keys::PINS].as_str(),
        "size": size(annotations),
    })
}

pub(crate) fn template_of_built_in(object: &Value) -> Value {
    let metadata = &object["spec"]["template"]["metadata"];
    let annotations = &metadata["annotations"];
    let depth = 2 + usize::from(metadata.is_object()) + usize::from(annotations.is_object());
    template(Some(depth), annotations)
}

/// Returns the state of a template. If one of its annotations is not a text, only ours count.
pub(crate) fn template_of_custom(object: &Value, path: &[&str]) -> Value {
    let path: Vec<_> = path
        .iter()
        .chain(&["metadata", "annotations"])
        .copied()
        .collect();
    let (depth, annotations) = match found(object, &path) {
        None => (None, None),
        // Whatever is there has the annotation in it.
        Some((_, Some(it))) => (it.is_object().then_some(path.len()), Some(it)),
        Some((depth, None)) => (Some(depth), None),
    };
    let mut annotations = annotations.cloned().unwrap_or_default();
    if let Value::Object(members) = &mut annotations
        && !members.values().all(Value::is_string)
    {
        let ours = [keys::CONFIG_HASH, keys::PINS];
        members.retain(|name, value| ours.contains(&name.as_str()) && value.is_string());
    }
    template(depth, &annotations)
}

/// Returns the number of fields of a path that exist, and the value at its end. `None` if one of those above is not an
/// object.
fn found<'a>(object: &'a Value, path: &[&str]) -> Option<(usize, Option<&'a Value>)> {
    let mut place = object;
    for (depth, name) in path.iter().enumerate() {
        match place.as_object()?.get(*name) {
            None | Some(Value::Null) => return Some((depth, None)),
            Some(inner) => place = inner,
        }
    }
    Some((path.len(), Some(place)))
}

/// Returns how a workload of another kind is restarted.
pub(crate) fn restart(object: &Value, kind: WorkloadKind) -> Value {
    let shape = kind.shape();
    let asks = object["metadata"]["annotations"][keys::RESTART] == "at";
    match shape.restart_at {
        Some(path) if asks || shape.templates.is_empty() => {
            let (depth, value) = found(object, path).unwrap_or((path.len(), None));
            // An annotation need not be there to be written.
            let depth = if path[0] == "metadata" {
                depth.min(2)
            } else {
                depth
            };
            json!([depth, value.and_then(Value::as_str)])
        }
        _ => json!("template"),
    }
}

/// Returns the health of a workload of another kind.
pub(crate) fn health(status: &Value, object: &Value) -> &'static str {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions =
        conditions.filter_map(|it| Some((it["type"].as_str()?, it["status"].as_str()?, it)));
    let mut first = BTreeMap::new();
    let mut is_rolling = false;
    for (name, status, condition) in conditions {
        is_rolling |= ["Reconciling", "Stalled"].contains(&name) && status == "True";
        first.entry(name).or_insert((status == "True", condition));
    }
    let number = |value: &Value| {
        let text = value.as_str().and_then(|it| it.parse().ok());
        value.as_i64().or(text)
    };
    let ready = first.get("Ready");
    let of_ready = || number(&ready?.1["observedGeneration"]);
    let Some(observed) = number(&status["observedGeneration"]).or_else(of_ready) else {
        return "Unknown";
    };
    let generation = object["metadata"]["generation"]
        .as_i64()
        .unwrap_or_default();
    if observed < generation || is_rolling {
        return "Rolling";
    }
    let by_phase = match status["phase"].as_str() {
        Some("Healthy") => Some(true),
        Some("Progressing" | "Paused" | "Degraded") => Some(false),
        _ => None,
    };
    let available = first.get("Available").map(|it| it.0);
    match ready.map(|it| it.0).or(by_phase).or(available) {
        Some(true) => "Healthy",
        Some(false) => "Rolling",
        None => "Unknown",
    }
}

/// Returns true if each value has the type that it has in the API, as far as it is read.
pub(crate) fn is_built_in(object: &Value) -> bool {
    let spec = &object["spec"];
    let template = &spec["template"];
    let strategy = &spec["updateStrategy"];
    is_metadata(&object["metadata"])
        && spec.is_object()
        && template.is_object()
        && is_null_or(&template["metadata"], Value::is_object)
        && is_null_or(&template["metadata"]["annotations"], is_map_of_texts)
        && is_null_or(&template["metadata"]["labels"], is_map_of_texts)
        && is_null_or(&spec["paused"], Value::is_boolean)
        && is_null_or(&spec["replicas"], Value::is_i64)
        && is_null_or(strategy, Value::is_object)
        && is_null_or(&strategy["type"], Value::is_string)
}

pub(crate) fn is_custom(object: &Value) -> bool {
    is_metadata(&object["metadata"]) && is_null_or(&object["apiVersion"], Value::is_string)
}

fn is_metadata(metadata: &Value) -> bool {
    let texts = ["name", "namespace", "uid", "resourceVersion"];
    let maps = ["annotations", "labels"];
    metadata.is_object()
        && texts
            .iter()
            .all(|it| is_null_or(&metadata[*it], Value::is_string))
        && maps
            .iter()
            .all(|it| is_null_or(&metadata[*it], is_map_of_texts))
        && is_null_or(&metadata["generation"], Value::is_i64)
}

fn is_null_or(value: &Value, is_meant: impl Fn(&Value) -> bool) -> bool {
    value.is_null() || is_meant(value)
}

fn is_map_of_texts(value: &Value) -> bool {
    let members = value.as_object();
    members.is_some_and(|it| it.values().all(Value::is_string))
}
