//! Changes JSON, mostly where the rules look.

use pod_reloader_core::annotations;
use serde_json::Value;

use crate::choices::Choices;

/// Changes one member of `request`, somewhere in it.
pub(crate) fn mutate(request: &mut Value, values: &[Value], choices: &mut Choices<'_>) {
    let start = choices.one(&PLACES);
    let Some(place) = request.pointer_mut(start) else {
        return;
    };
    let place = below(place, choices);
    let value = choices.one(values).clone();
    match (choices.number() % 3, place) {
        (0, Value::Object(members)) => {
            members.insert((*choices.one(&MEMBERS)).to_owned(), value);
        }
        (1, Value::Object(members)) => {
            let name = members.keys().nth(choices.number() % members.len().max(1));
            if let Some(name) = name.cloned() {
                members.remove(&name);
            }
        }
        (_, place) => *place = value,
    }
}

/// Returns `value`, or something in it.
fn below<'a>(value: &'a mut Value, choices: &mut Choices<'_>) -> &'a mut Value {
    let number = match &*value {
        Value::Object(members) => members.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    if number == 0 || choices.is_empty() || !choices.number().is_multiple_of(3) {
        return value;
    }
    let at = choices.number() % number;
    let child = match value {
        Value::Object(members) => members.values_mut().nth(at),
        Value::Array(items) => items.get_mut(at),
        _ => None,
    };
    below(child.expect("there are more than that"), choices)
}

const PLACES: [&str; 10] = [
    "",
    "/object",
    "/oldObject",
    "/object/metadata",
    "/object/metadata/annotations",
    "/oldObject/metadata/annotations",
    "/object/spec/template",
    "/oldObject/spec/template",
    "/object/spec/template/metadata/annotations",
    "/oldObject/spec/template/metadata/annotations",
];

const MEMBERS: [&str; 17] = [
    annotations::CONFIG_HASH,
    annotations::BASELINE,
    annotations::PIN,
    annotations::PINS,
    annotations::UNDONE,
    annotations::CONFIG_MAPS,
    annotations::SECRETS,
    annotations::SETTLE_PERIOD,
    annotations::IGNORED,
    "pod-reloader.cs.sap.com/config-maps",
    "annotations",
    "labels",
    "metadata",
    "managedFields",
    "subResource",
    "namespace",
    "fieldOfTheFuture",
];
