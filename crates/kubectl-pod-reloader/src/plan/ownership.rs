//! Tells by the managed fields of an object who applies it, and what disappears when that one leaves a field out.

use std::collections::BTreeMap;

use pod_reloader_core::annotations::FIELD_MANAGER;
use serde_json::{Map, Value};

/// Returns the field manager that has written most of what a manifest says: whoever applies the manifest again. If
/// nobody has written any of it, that is the one that has written most of the object.
pub(super) fn applier(object: &Value, manifest: &Value) -> Option<String> {
    let mut shares: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (manager, fields) in entries(object, None) {
        if manager != FIELD_MANAGER {
            let (of_manifest, of_object) = shares.entry(manager).or_default();
            *of_manifest += shared(fields, manifest);
            *of_object += shared(fields, object);
        }
    }
    let largest = shares.into_iter().max_by_key(|(_, share)| *share);
    largest.map(|(manager, _)| manager.to_owned())
}

/// Returns the fields that a manager has written by other means than a server-side apply, if there are any. The
/// apiserver does not remove those when the manager applies a manifest without them, but clients like Helm 3 and
/// `kubectl apply` do.
pub(super) fn updated<'a>(object: &'a Value, manager: &str) -> Option<&'a Value> {
    let mut updated = entries(object, Some("Update"));
    updated
        .find(|(own, _)| *own == manager)
        .map(|(_, fields)| fields)
}

/// Removes those of `fields` from an object that another one lacks, which has all that is wanted.
pub(super) fn remove_unwanted(object: &mut Value, fields: &Value, wanted: Option<&Value>) {
    for (element, below) in fields.as_object().into_iter().flatten() {
        let is_leaf = below.as_object().is_some_and(Map::is_empty);
        let place = Place::of(element);
        let wanted = wanted.and_then(|it| place.of_value(it));
        let Some(own) = place.of_value_mut(object) else {
            continue;
        };
        if !is_leaf {
            remove_unwanted(own, below, wanted);
        }
        if wanted.is_none() && (is_leaf || is_empty(own)) {
            place.remove(object);
        }
    }
}

/// Returns the managers of an object's own fields, not of its status, with the fields of each.
fn entries<'a>(
    object: &'a Value,
    operation: Option<&str>,
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries.into_iter().flatten().filter(move |entry| {
        entry.get("subresource").is_none_or(|it| it == "")
            && operation.is_none_or(|operation| entry["operation"] == operation)
    });
    entries.filter_map(|entry| Some((entry["manager"].as_str()?, entry.get("fieldsV1")?)))
}

/// Returns the number of `fields` that an object has.
fn shared(fields: &Value, object: &Value) -> usize {
    let mut shares = 0;
    for (element, below) in fields.as_object().into_iter().flatten() {
        if let Some(own) = Place::of(element).of_value(object) {
            shares += match below.as_object() {
                Some(below) if !below.is_empty() => shared(&Value::Object(below.clone()), own),
                _ => 1,
            };
        }
    }
    shares
}

/// A place below a value, as an element of a path of managed fields names it.
enum Place<'a> {
    /// `f:name`: a field.
    Field(&'a str),
    /// `k:{"name":"web"}`: the item of a list that has these fields.
    Item(Map<String, Value>),
    /// `v:"text"`: an item of a set.
    Member(Value),
    /// `.`, which is the value itself, or a form that is not known.
    Nowhere,
}

impl<'a> Place<'a> {
    fn of(element: &'a str) -> Self {
        let place = match element.split_once(':') {
            Some(("f", name)) => Some(Self::Field(name)),
            Some(("k", keys)) => serde_json::from_str(keys).ok().map(Self::Item),
            Some(("v", value)) => serde_json::from_str(value).ok().map(Self::Member),
            _ => None,
        };
        place.unwrap_or(Self::Nowhere)
    }

    /// Returns the position in a list.
    fn position(&self, list: &[Value]) -> Option<usize> {
        list.iter().position(|item| match self {
            Self::Item(keys) => keys.iter().all(|(key, value)| item.get(key) == Some(value)),
            Self::Member(value) => item == value,
            Self::Field(_) | Self::Nowhere => false,
        })
    }

    fn of_value<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => fields.get(*name),
            (_, Value::Array(list)) => self.position(list).map(|at| &list[at]),
            _ => None,
        }
    }

    fn of_value_mut<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => fields.get_mut(*name),
            (_, Value::Array(list)) => self.position(list).map(|at| &mut list[at]),
            _ => None,
        }
    }

    fn remove(&self, value: &mut Value) {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => drop(fields.remove(*name)),
            (Self::Item(_), Value::Array(list)) => {
                // Its key fields have gone by now.
                list.retain(|item| !is_empty(item));
            }
            (_, Value::Array(list)) => {
                let at = self.position(list);
                at.into_iter().for_each(|at| drop(list.remove(at)));
            }
            _ => {}
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment() -> Value {
        json!({
            "metadata": {
                "annotations": {"a": "1", "by-others": "1"},
                "managedFields": [
                    {"manager": "helm", "operation": "Update", "fieldsV1": {
                        "f:metadata": {"f:annotations": {".": {}, "f:a": {}}},
                        "f:spec": {"f:containers": {
                            "k:{\"name\":\"main\"}": {
                                ".": {}, "f:name": {}, "f:image": {},
                                "f:env": {".": {}, "k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}},
                                "f:policy": {},
                            },
                            "k:{\"name\":\"side\"}": {".": {}, "f:name": {}, "f:image": {}},
                        }},
                    }},
                    {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {
                        "f:metadata": {"f:annotations": {"f:by-others": {}}},
                    }},
                    {"manager": "controller", "operation": "Update", "subresource": "status", "fieldsV1": {
                        "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {"f:image": {}, "f:name": {}}}},
                    }},
                    {"manager": FIELD_MANAGER, "operation": "Update", "fieldsV1": {
                        "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {"f:image": {}, "f:name": {}}}},
                    }},
                ],
            },
            "spec": {"containers": [
                {"name": "main", "image": "i", "env": [{"name": "A", "value": "1"}], "policy": "default", "injected": 1},
                {"name": "side", "image": "i"},
            ]},
        })
    }

    #[test]
    fn whoever_has_written_most_of_a_manifest_applies_it() {
        let containers = json!([{"name": "main", "image": "new"}]);
        let manifest = json!({"spec": {"containers": containers}, "metadata": {"annotations": {"by-others": "1"}}});
        assert_eq!(applier(&deployment(), &manifest).as_deref(), Some("helm"));
        let edited = json!({"metadata": {"annotations": {"by-others": "1"}}});
        assert_eq!(
            applier(&deployment(), &edited).as_deref(),
            Some("kubectl-edit")
        );
        let disjoint = applier(&deployment(), &json!({"data": {}}));
        assert_eq!(disjoint.as_deref(), Some("helm"));
        assert_eq!(applier(&json!({}), &manifest), None);
    }

    #[test]
    fn what_a_manifest_leaves_out_goes_if_its_applier_has_written_it() {
        let mut object = deployment();
        let fields = updated(&deployment(), "helm").cloned().unwrap();
        let wanted = json!({
            "metadata": {"annotations": {}},
            "spec": {"containers": [{"name": "main", "image": "i", "policy": "default"}]},
        });
        remove_unwanted(&mut object, &fields, Some(&wanted));
        let annotations = json!({"by-others": "1"});
        assert_eq!(object["metadata"]["annotations"], annotations);
        let containers =
            json!([{"name": "main", "image": "i", "policy": "default", "injected": 1}]);
        assert_eq!(object["spec"]["containers"], containers);
    }

    #[test]
    fn items_of_sets_and_whole_lists_go_too() {
        let mut object = json!({"finalizers": ["a", "b"], "args": ["x"], "ports": [{"port": 1}]});
        let fields = json!({"f:finalizers": {"v:\"a\"": {}}, "f:args": {}, "f:ports": {"k:{\"port\":1}": {".": {}, "f:port": {}}}, "i:0": {}});
        remove_unwanted(&mut object, &fields, Some(&json!({"finalizers": []})));
        assert_eq!(object, json!({"finalizers": ["b"]}));
    }

    #[test]
    fn only_fields_written_by_an_update_need_to_be_removed_here() {
        let mut object = deployment();
        object["metadata"]["managedFields"][0]["operation"] = json!("Apply");
        assert_eq!(updated(&object, "helm"), None);
    }
}
