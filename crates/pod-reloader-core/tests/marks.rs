//! A table of objects with the marks of synced copies, true and forged: whether they are ours, and what the policies of
//! the chart let the operator do to them. Here, the rules are asked about each row. `sync::marks` of the end-to-end tests asks
//! the apiserver, so the two cannot have different ideas of a mark.
//!
//! `fields` are what differs from an exact copy. In them, `NAME` and `NAMESPACE` stand for those of the object, `ROOT` for
//! an owner that is there, and the other words in capitals for seals.

use std::sync::Arc;

use pod_reloader_api::ClusterConfigSync;
use pod_reloader_core::config_sync::content::{Content, Object, Step};
use pod_reloader_core::config_sync::{ConfigSync, Seals};
use pod_reloader_core::hash::{HashKey, Keyring};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::seal::{Claim, Purpose};
use serde::Deserialize;
use serde_json::{Value, json};

/// An object, and what is to be done to it.
#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    /// Who has made the object: `us`, a `user` who means well, or a `tenant` who does not.
    by: String,
    #[serde(default = "secret")]
    kind: String,
    /// The end of its name.
    #[serde(default)]
    suffix: String,
    #[serde(default = "shop", rename = "in")]
    namespace: String,
    #[serde(default = "nothing")]
    fields: Value,
    /// True if its ClusterConfigSync may have copies without a seal.
    #[serde(default)]
    are_unsealed: bool,
    /// The next step where the namespace is selected.
    step: String,
    /// True if it is deleted where the namespace is not selected.
    is_removed: bool,
    /// True if the policies let the operator write the copy in its place.
    may_write: bool,
    /// True if the policies let the operator delete it.
    may_delete: bool,
}

fn secret() -> String {
    "Secret".to_owned()
}

fn shop() -> String {
    "shop".to_owned()
}

fn nothing() -> Value {
    json!({})
}

fn table() -> Vec<Row> {
    serde_json::from_str(include_str!("marks.json")).expect("the table has rows")
}

#[test]
fn the_rules_know_which_objects_are_ours_and_the_policies_allow_what_they_do() {
    let table = table();
    let forged = table.iter().filter(|row| row.by == "tenant");
    assert!(table.len() >= 30 && forged.count() >= 10);
    for row in &table {
        let name = &row.name;
        let (step, is_removed) = done_to(row);
        assert_eq!(format!("{step:?}"), row.step, "{name}");
        assert_eq!(is_removed, row.is_removed, "{name}");
        let writes = step == Step::Replace;
        let deletes = step == Step::Recreate || is_removed;
        assert!(!writes || row.may_write, "{name}: it is written");
        assert!(!deletes || row.may_delete, "{name}: it is deleted");
        let is_forged = row.by == "tenant";
        assert!(!is_forged || !(writes || deletes), "{name}: it is forged");
    }
}

/// Returns what is done to the object of a row where its namespace is selected, and whether it is deleted where not.
fn done_to(row: &Row) -> (Step, bool) {
    let parse = |text: &str| Name::parse(text).expect(text);
    let (own, namespace) = (parse("own"), parse(&row.namespace));
    let copied = format!("copy{}", row.suffix);
    let sync = sync(&row.kind, &copied);
    if sync.spares(&namespace, &own) {
        return (Step::LeaveAlone, false);
    }
    let seals = Seals {
        keys: Arc::new(keyring(&[2, 1])),
        are_complete: !row.are_unsealed,
    };
    let copy = sync.copy_in(&namespace);
    let mut object = exact(row, &copy);
    json_patch::merge(&mut object, &row.fields);
    let object = in_full(&object, &copy);
    let object = Object::parse(object.to_string().as_bytes()).expect("it is one");
    let step = sync.step(&namespace, &content(&sync, row), &object, &seals);
    (
        step,
        sync.removes(&namespace, &object.target(), None, &seals),
    )
}

fn sync(kind: &str, name: &str) -> ConfigSync {
    let object = json!({
        "apiVersion": "pod-reloader.github.io/v1alpha1",
        "kind": "ClusterConfigSync",
        "metadata": {"name": "pull", "uid": "u-1", "generation": 1},
        "spec": {
            "source": {"kind": kind, "namespace": "platform", "name": name},
            "namespaceSelector": {},
        },
    });
    let object: ClusterConfigSync = serde_json::from_value(object).expect("it is one");
    ConfigSync::try_from(&object).expect("it is valid")
}

fn content(sync: &ConfigSync, row: &Row) -> Content {
    let mut source = data(&row.kind);
    source["metadata"] = json!({"uid": "u-2", "resourceVersion": "1"});
    let source = Object::parse(source.to_string().as_bytes()).expect("it is one");
    sync.content(source).expect("it is copied")
}

fn data(kind: &str) -> Value {
    match kind {
        "Secret" => json!({"type": "Opaque", "data": {"value": "MQ=="}}),
        _ => json!({"data": {"value": "MQ=="}}),
    }
}

/// Returns the exact copy.
fn exact(row: &Row, copy: &Reference) -> Value {
    let mut object = data(&row.kind);
    object["metadata"] = json!({
        "name": copy.name.as_str(),
        "namespace": copy.namespace.as_str(),
        "uid": "u-3",
        "resourceVersion": "2",
        "labels": {"pod-reloader.github.io/copied-from": "platform"},
        "annotations": {
            "pod-reloader.github.io/copy-of": "platform/NAME@NAMESPACE",
            "pod-reloader.github.io/seal": "SEAL",
        },
        "ownerReferences": [{
            "apiVersion": "pod-reloader.github.io/v1alpha1",
            "kind": "ClusterConfigSync",
            "name": "pull",
            "uid": "u-1",
        }],
    });
    object
}

/// Returns an object with everything that its placeholders stand for.
fn in_full(object: &Value, copy: &Reference) -> Value {
    let seal = |key: u8, namespace: &str| {
        let object = Reference {
            namespace: Name::parse(namespace).expect(namespace),
            ..copy.clone()
        };
        let mark = format!("platform/{}@{namespace}", copy.name);
        keyring(&[key]).seal(&Claim {
            purpose: Purpose::Sync,
            object: &object,
            of: &mark,
        })
    };
    let here = copy.namespace.as_str();
    let root = r#"[{"apiVersion":"v1","kind":"ConfigMap","name":"kube-root-ca.crt","uid":"root"}]"#;
    let text = object
        .to_string()
        .replace("NAMESPACE", here)
        .replace("NAME", copy.name.as_str())
        .replace("SEAL", &seal(2, here))
        .replace("BEFORE", &seal(1, here))
        .replace("LOST", &seal(3, here))
        .replace("ELSEWHERE", &seal(2, "elsewhere"))
        .replace("\"ROOT\"", root);
    serde_json::from_str(&text).expect("it is JSON")
}

fn keyring(keys: &[u8]) -> Keyring {
    let keys = keys.iter().map(|key| HashKey::new([*key; 32]));
    Keyring::new(keys.collect()).expect("there are keys")
}

#[test]
fn the_table_has_both_kinds() {
    let table = table();
    for kind in ConfigKind::ALL {
        assert!(table.iter().any(|row| row.kind == kind.as_str()));
    }
}
