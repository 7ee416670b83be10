//! A table of objects with marks of ours, true and forged: whether they are ours, and what the policies of the chart let
//! pod-reloader do to them. Here, the rules are asked about each row. `marks` of the end-to-end tests asks the
//! apiserver, so the two cannot have different ideas of a mark.
//!
//! `exact` has an object of ours for each purpose, and `fields` are what differs from it. In them, `NAME` and
//! `NAMESPACE` stand for those of the object, `OWNER` for a ClusterConfigSync, and `ROOT` for another owner that is
//! there. `PLAIN` stands for the digits that earlier versions gave the name of the exact pinned copy, and the other words
//! in capitals for seals.

use std::collections::BTreeMap;
use std::sync::Arc;

use pod_reloader_api::ClusterConfigSync;
use pod_reloader_core::config_sync::content::{Content, Object, Step};
use pod_reloader_core::config_sync::{ConfigSync, Seals};
use pod_reloader_core::copies::is_of_earlier_version;
use pod_reloader_core::digest::{Aspects, ConfigObject};
use pod_reloader_core::hash::{HashKey, Keyring};
use pod_reloader_core::kept::{KeptMetadata, Role};
use pod_reloader_core::name::Name;
use pod_reloader_core::pins::plain_copy_name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::revision::{CopyMetadata, Origin};
use pod_reloader_core::seal::{Claim, Purpose};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Debug, Deserialize)]
struct Table {
    /// An object as we make it, by its purpose.
    exact: BTreeMap<String, Value>,
    rows: Vec<Row>,
}

/// An object, and what is to be done to it.
#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    /// Who has made the object: `us`, a `user` who means well, or a `tenant` who does not.
    by: String,
    /// What its marks say that it is for: `sync` or `pin` for a copy, and `store` or `restore` for what is deleted in use.
    #[serde(default = "sync_purpose")]
    purpose: String,
    #[serde(default = "shop", rename = "in")]
    namespace: String,
    /// Who has written it, in this order.
    #[serde(default = "us")]
    managers: Vec<String>,
    #[serde(default = "nothing")]
    fields: Value,
    /// True if its ClusterConfigSync may have copies without a seal.
    #[serde(default)]
    are_unsealed: bool,
    /// The next step where the namespace of a synced copy is selected, or what another object is.
    verdict: String,
    /// True if it is deleted once nobody wants it any more, so a synced copy where the namespace is not selected.
    is_removed: bool,
    /// True if the policies let us write the copy in its place. Only synced copies are ever written again.
    may_write: Option<bool>,
    /// True if the policies let us delete it.
    may_delete: bool,
}

fn sync_purpose() -> String {
    "sync".to_owned()
}

fn shop() -> String {
    "shop".to_owned()
}

fn us() -> Vec<String> {
    vec!["pod-reloader".to_owned()]
}

fn nothing() -> Value {
    json!({})
}

fn table() -> Table {
    serde_json::from_str(include_str!("marks.json")).expect("it is a table")
}

#[test]
fn the_rules_know_which_objects_are_ours_and_the_policies_allow_what_they_do() {
    let table = table();
    let forged = table.rows.iter().filter(|row| row.by == "tenant");
    assert!(table.rows.len() >= 50 && forged.count() >= 15);
    for row in &table.rows {
        let name = &row.name;
        let object = object_of(&table, row);
        let (verdict, is_removed) = match &*row.purpose {
            "sync" => done_to_synced(row, &object),
            "pin" => done_to_pinned(&object),
            "store" | "restore" => done_to_kept(&object),
            other => panic!("{name}: {other} is not a purpose"),
        };
        assert_eq!(verdict, row.verdict, "{name}");
        assert_eq!(is_removed, row.is_removed, "{name}");
        assert_eq!(row.may_write.is_some(), row.purpose == "sync", "{name}");
        let writes = verdict == "Replace";
        let deletes = verdict == "Recreate" || is_removed;
        assert!(!writes || row.may_write == Some(true), "{name}: is written");
        assert!(!deletes || row.may_delete, "{name}: is deleted");
        let is_forged = row.by == "tenant";
        assert!(!is_forged || !(writes || deletes), "{name}: is forged");
    }
}

#[test]
fn the_table_has_synced_copies_of_both_kinds() {
    let table = table();
    let synced = table.rows.iter().filter(|row| row.purpose == "sync");
    let kinds: Vec<_> = synced.map(|row| kind_of(&object_of(&table, row))).collect();
    for kind in ConfigKind::ALL {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

/// Returns the next step for the object of a row where its namespace is selected, and whether it is deleted where not.
fn done_to_synced(row: &Row, object: &Value) -> (String, bool) {
    let (own, namespace) = (parse("own"), parse(&row.namespace));
    let kind = kind_of(object);
    let sync = sync(kind, text_at(object, "/metadata/name"));
    if sync.spares(&namespace, &own) {
        return (format!("{:?}", Step::LeaveAlone), false);
    }
    let seals = Seals {
        keys: Arc::new(known_keys()),
        are_complete: !row.are_unsealed,
    };
    let object = Object::parse(object.to_string().as_bytes()).expect("it is one");
    let step = sync.step(&namespace, &content(&sync), &object, &seals);
    let is_removed = sync.removes(&namespace, &object.target(), None, &seals);
    (format!("{step:?}"), is_removed)
}

/// Returns where an object comes from that has the label of pinned copies, and whether it is deleted once nobody uses it.
fn done_to_pinned(object: &Value) -> (String, bool) {
    let text = object.to_string();
    let metadata: CopyMetadata = serde_json::from_str(&text).expect("it has metadata");
    let (verdict, is_removed) = match metadata.origin(&known_keys()) {
        Origin::Sealed => ("Sealed", true),
        Origin::Unsealed(source) => {
            let (_, name) = metadata.place().expect("it has a name");
            let object = ConfigObject::parse(text.as_bytes(), Aspects::default());
            let object = object.expect("it is one");
            ("Unsealed", is_of_earlier_version(&object, &source, &name))
        }
        Origin::Foreign => ("Foreign", false),
    };
    (verdict.to_owned(), is_removed)
}

/// Returns what an object is for that is stored or restored, and whether it is deleted once nobody needs it.
fn done_to_kept(object: &Value) -> (String, bool) {
    let metadata: KeptMetadata =
        serde_json::from_str(&object.to_string()).expect("it has metadata");
    let kept = metadata.kept(&known_keys());
    let verdict = match kept.map(|it| it.role) {
        Some(Role::Stored(_)) => "Stored",
        Some(Role::Restored) => "Restored",
        None => "None",
    };
    (verdict.to_owned(), verdict != "None")
}

fn sync(kind: ConfigKind, name: &str) -> ConfigSync {
    let object = json!({
        "apiVersion": "pod-reloader.github.io/v1alpha1",
        "kind": "ClusterConfigSync",
        "metadata": {"name": "pull", "uid": "u-1", "generation": 1},
        "spec": {
            "source": {"kind": kind.as_str(), "namespace": "platform", "name": name},
            "namespaceSelector": {},
        },
    });
    let object: ClusterConfigSync = serde_json::from_value(object).expect("it is one");
    ConfigSync::try_from(&object).expect("it is valid")
}

/// Returns the content of the exact copy.
fn content(sync: &ConfigSync) -> Content {
    let table = table();
    let exact = &table.exact["sync"];
    let mut source = json!({
        "metadata": {"uid": "u-2", "resourceVersion": "1"},
        "data": exact["data"],
    });
    if sync.source.kind == ConfigKind::Secret {
        source["type"] = exact["type"].clone();
    }
    let source = Object::parse(source.to_string().as_bytes()).expect("it is one");
    sync.content(source).expect("it is copied")
}

/// Returns the object of a row, as the apiserver sends it.
fn object_of(table: &Table, row: &Row) -> Value {
    let mut object = table.exact[&row.purpose].clone();
    json_patch::merge(&mut object, &row.fields);
    let managers = row.managers.iter();
    let managers: Vec<_> = managers.map(|it| json!({"manager": it})).collect();
    json_patch::merge(&mut object, &as_stored(&row.namespace));
    object["metadata"]["managedFields"] = json!(managers);
    in_full(row, &object, &plain_digits(&table.exact["pin"]))
}

/// Returns what the apiserver adds to an object.
fn as_stored(namespace: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "uid": "u-3", "resourceVersion": "2"}})
}

/// Returns the digits in the name that earlier versions gave a pinned copy with this content.
fn plain_digits(copy: &Value) -> String {
    let mut copy = copy.clone();
    json_patch::merge(&mut copy, &as_stored("shop"));
    let object = ConfigObject::parse(copy.to_string().as_bytes(), Aspects::default());
    let name = plain_copy_name(&parse("app"), &object.expect("it is one").digest);
    let digits = name.as_str().strip_prefix("app-");
    digits.expect("it begins with its source").to_owned()
}

/// Returns an object with everything that its placeholders stand for.
fn in_full(row: &Row, object: &Value, plain: &str) -> Value {
    let here = &*row.namespace;
    let name = text_at(object, "/metadata/name")
        .replace("NAME", "copy")
        .replace("PLAIN", plain);
    let seal = |key: u8, namespace: &str| {
        let (purpose, of) = match &*row.purpose {
            "sync" => (Purpose::Sync, format!("platform/{name}@{namespace}")),
            "pin" => (Purpose::Pin, "app".to_owned()),
            _ => (Purpose::Store, "app/u/7".to_owned()),
        };
        let sealed = Reference {
            kind: kind_of(object),
            namespace: parse(namespace),
            name: parse(&name),
        };
        keyring(&[key]).seal(&Claim {
            purpose,
            object: &sealed,
            of: &of,
        })
    };
    let root = r#"[{"apiVersion":"v1","kind":"ConfigMap","name":"kube-root-ca.crt","uid":"root"}]"#;
    let owner = r#"[{"apiVersion":"pod-reloader.github.io/v1alpha1","kind":"ClusterConfigSync","name":"pull","uid":"u-1"}]"#;
    let text = object
        .to_string()
        .replace("NAMESPACE", here)
        .replace("NAME", "copy")
        .replace("PLAIN", plain)
        .replace("SEAL", &seal(2, here))
        .replace("BEFORE", &seal(1, here))
        .replace("LOST", &seal(3, here))
        .replace("ELSEWHERE", &seal(2, "elsewhere"))
        .replace("ZEROS", &"0".repeat(32))
        .replace("\"OWNER\"", owner)
        .replace("\"ROOT\"", root);
    serde_json::from_str(&text).expect("it is JSON")
}

fn kind_of(object: &Value) -> ConfigKind {
    let mut kinds = ConfigKind::ALL.into_iter();
    let kind = kinds.find(|kind| object["kind"] == kind.as_str());
    kind.expect("it is a ConfigMap or a Secret")
}

fn text_at<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).expect(path)
}

fn parse(name: &str) -> Name {
    Name::parse(name).expect(name)
}

/// Returns the keys that are known: the second one, and the first one from before.
fn known_keys() -> Keyring {
    keyring(&[2, 1])
}

fn keyring(keys: &[u8]) -> Keyring {
    let keys = keys.iter().map(|key| HashKey::new([*key; 32]));
    Keyring::new(keys.collect()).expect("there are keys")
}
