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
