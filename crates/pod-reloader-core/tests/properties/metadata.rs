//! Checks what is read of the metadata of objects, against a reading of the whole metadata.

use pod_reloader_core::foreign::Foreign;
use pod_reloader_core::hash::{HashKey, KEY_LENGTH, Keyring};
use pod_reloader_core::kept::{KEPT, KeptMetadata, Role};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, ConfigMetadata, NamespaceMetadata, Reference};
use pod_reloader_core::release::{ReleaseObject, ReleaseSecret};
use pod_reloader_core::revision::{CopyMetadata, NamesCopies, Pod, ReplicaSet};
use pod_reloader_core::seal::COPY_OF;
use pod_reloader_core::stuck::SetPod;
use serde_json::{Value, json};

use crate::choices::Choices;
use crate::written::{deep, long, nowhere, spoil, written};

/// Makes metadata, reads it as that of each kind, and checks what is read.
pub(crate) fn hold(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut metadata = metadata(&mut choices);
    let others = [
        json!(null),
        json!(1),
        json!(true),
        json!("a"),
        json!({}),
        json!(1.5),
        long(),
    ];
    for _ in 5..choices.number() % 8 {
        spoil(&mut metadata, &others, &mut choices);
    }
    let spec: Value = serde_json::from_str(POD).expect("it is JSON");
    let object = json!({"future": deep(), "metadata": metadata, "spec": spec});
    let has_repeats = choices.flag();
    let repeats = |path: &str| ["/metadata/annotations", "/metadata/labels"].contains(&path);
    let text = match has_repeats {
        true => written(&object, &repeats, &mut choices),
        false => written(&object, &nowhere, &mut choices),
    };
    let read = Read {
        text: &text,
        is_readable: is_readable(&metadata),
    };
    let seen = Seen(&metadata);
    hold_of_identity(&read, &seen);
    hold_of_labels(&read, &seen);
    hold_of_owners(&read, &seen);
}

/// The spec of a pod that needs Secret `db`.
const POD: &str = r#"{"containers":[{"envFrom":[{"secretRef":{"name":"db"}}]}]}"#;

/// The text of an object, and whether its metadata has the types of the API as far as it is read.
struct Read<'a> {
    text: &'a str,
    is_readable: bool,
}

impl Read<'_> {
    /// Reads the object. Each kind refuses the same metadata, whichever parts of it are of use.
    fn of<T: Foreign>(&self) -> Option<T> {
        let read: Option<T> = serde_json::from_str(self.text).ok();
        assert_eq!(read.is_some(), self.is_readable, "{}", self.text);
        read
    }
}

/// Metadata that is built.
struct Seen<'a>(&'a Value);

impl Seen<'_> {
    fn text(&self, field: &str) -> Option<&str> {
        self.0[field].as_str()
    }

    fn or_empty(&self, field: &str) -> &str {
        self.text(field).unwrap_or_default()
    }

    fn name(&self, field: &str) -> Option<Name> {
        Name::parse(self.text(field)?).ok()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.0["labels"][key].as_str()
    }
}

fn hold_of_identity(read: &Read<'_>, seen: &Seen<'_>) {
    if let Some(pod) = read.of::<SetPod>() {
        let own = [pod.name(), pod.uid(), pod.resource_version()];
        assert_eq!(
            own,
            ["name", "uid", "resourceVersion"].map(|it| seen.or_empty(it))
        );
    }
    if let Some(pod) = read.of::<Pod>() {
        assert_eq!(pod.name(), seen.or_empty("name"));
        let name = |text| Name::parse(text).expect("it is a name");
        let secret = Reference {
            kind: ConfigKind::Secret,
            namespace: name("any"),
            name: name("db"),
        };
        let is_deleted = seen.text("deletionTimestamp").is_some();
        assert_eq!(pod.needs(&secret), !is_deleted, "{}", read.text);
    }
    let place = seen.name("namespace").zip(seen.name("name"));
    if let Some(object) = read.of::<ConfigMetadata>() {
        assert_eq!(object.resource_version(), seen.text("resourceVersion"));
        let reference = object.reference(ConfigKind::Secret);
        assert_eq!(reference.map(|it| (it.namespace, it.name)), place);
    }
    if let Some(namespace) = read.of::<NamespaceMetadata>() {
        assert_eq!(namespace.name(), seen.name("name"));
    }
    if let Some(copy) = read.of::<CopyMetadata>() {
        assert_eq!(copy.place(), place);
        assert_eq!(copy.uid(), seen.or_empty("uid"));
        let created = seen.text("creationTimestamp");
        assert_eq!(
            copy.created(),
            created.and_then(|it| it.parse().ok()),
            "{}",
            read.text
        );
        let source = seen.0["annotations"][COPY_OF].as_str();
        let (_, name) = place.unzip();
        let is_copy = |source: &Name| {
            let digits = name
                .as_ref()
                .and_then(|it| it.as_str().strip_prefix(&format!("{source}-")));
            digits == Some("0123456789")
        };
        let source = source.and_then(|it| Name::parse(it).ok());
        assert_eq!(copy.source(), source.filter(is_copy), "{}", read.text);
    }
}

fn hold_of_labels(read: &Read<'_>, seen: &Seen<'_>) {
    if let Some(object) = read.of::<ReleaseSecret>() {
        let number = seen.label("version").and_then(|it| it.parse::<u64>().ok());
        let name = seen.label("name").zip(seen.name("namespace"));
        let version = seen
            .text("resourceVersion")
            .and_then(|it| it.parse::<u64>().ok());
        let status = seen.label("status");
        let is_pending = status.is_some_and(|it| it.starts_with("pending-"));
        let is_known = status.is_some() && (!is_pending || version.is_some());
        let expected = name.zip(number).filter(|_| is_known);
        let revision = object.revision();
        let stage = format!("{revision:?}");
        let found = revision.map(|it| ((it.release.name, it.release.namespace), it.number));
        let expected = expected.map(|((name, namespace), number)| {
            let name = Box::<str>::from(name);
            ((name, Some(namespace)), number)
        });
        assert_eq!(found, expected, "{}", read.text);
        if found.is_some() {
            let has_hook = seen.label("createdAt").is_none();
            assert_eq!(
                stage.contains("Failed"),
                status == Some("failed"),
                "{stage}"
            );
            assert_eq!(stage.contains("UnderWay"), is_pending, "{stage}");
            assert_eq!(
                stage.contains("has_hook: true"),
                is_pending && has_hook,
                "{stage}"
            );
        }
    }
    if let Some(object) = read.of::<KeptMetadata>() {
        let managers = seen.0["managedFields"].as_array().into_iter().flatten();
        let managers: Vec<_> = managers.map(|it| it["manager"].as_str()).collect();
        let is_ours = !managers.is_empty() && managers.iter().all(|it| *it == Some("pod-reloader"));
        let is_restored = is_ours && seen.label(KEPT) == Some("true");
        // The rule has further conditions.
        let keys = Keyring::new(vec![HashKey::new([1; KEY_LENGTH])]).expect("there is a key");
        if let Some(kept) = object.kept(&keys) {
            assert!(is_ours, "{}", read.text);
            assert_eq!(kept.role == Role::Restored, is_restored, "{}", read.text);
            assert_eq!(&*kept.uid, seen.or_empty("uid"));
            assert_eq!(&*kept.resource_version, seen.or_empty("resourceVersion"));
        }
    }
}

fn hold_of_owners(read: &Read<'_>, seen: &Seen<'_>) {
    if let Some(object) = read.of::<ReplicaSet>() {
        let mut owners = seen.0["ownerReferences"].as_array().into_iter().flatten();
        let controller = owners.find(|it| it["controller"].as_bool() == Some(true));
        let uid = controller.map(|it| it["uid"].as_str().unwrap_or_default());
        assert_eq!(object.owner(), uid, "{}", read.text);
    }
}

/// Returns true if each value has the type that it has in the API.
fn is_readable(metadata: &Value) -> bool {
    let texts = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
    ];
    let is_map = |value: &Value| {
        let members = value.as_object();
        members.is_some_and(|it| it.values().all(Value::is_string))
    };
    let has = |object: &Value, field: &str, is_meant: &dyn Fn(&Value) -> bool| {
        object[field].is_null() || is_meant(&object[field])
    };
    let is_list = |value: &Value, is_meant: &dyn Fn(&Value) -> bool| {
        value.as_array().is_some_and(|it| it.iter().all(is_meant))
    };
    // An owner is always written with all of them.
    let is_owner = |it: &Value| {
        let is_absent_or_text = |field: &&str| it.get(*field).is_none_or(Value::is_string);
        it.is_object()
            && ["kind", "name", "uid"].iter().all(is_absent_or_text)
            && has(it, "controller", &Value::is_boolean)
    };
    let is_entry = |it: &Value| it.is_object() && has(it, "manager", &Value::is_string);
    metadata.is_object()
        && texts
            .into_iter()
            .all(|it| has(metadata, it, &Value::is_string))
        && has(metadata, "generation", &Value::is_i64)
        && has(metadata, "labels", &is_map)
        && has(metadata, "annotations", &is_map)
        && has(metadata, "ownerReferences", &|it| is_list(it, &is_owner))
        && has(metadata, "managedFields", &|it| is_list(it, &is_entry))
}

/// Returns metadata, with some fields or without.
fn metadata(choices: &mut Choices<'_>) -> Value {
    let mut metadata = json!({
        "name": "one-0123456789",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "5",
        "generation": 3,
        "future": [null, deep(), long()],
    });
    let mut put = |field: &str, values: &[Value], choices: &mut Choices<'_>| {
        if choices.flag() {
            metadata[field] = choices.one(values).clone();
        }
    };
    put(
        "name",
        &[json!("web"), json!("one-0123456789"), json!("A")],
        choices,
    );
    let times = [
        json!("2026-01-01T00:00:00Z"),
        json!("10000-01-01T00:00:00Z"),
        json!("x"),
    ];
    put("creationTimestamp", &times, choices);
    put("deletionTimestamp", &times, choices);
    let copies = [
        json!({COPY_OF: "one", "other": "x"}),
        json!({COPY_OF: "One"}),
        json!({"a": "b"}),
    ];
    put("annotations", &copies, choices);
    let release =
        |status: &str| json!({"status": status, "name": "web", "version": "2", "createdAt": "1"});
    let labels = [
        release("failed"),
        release("deployed"),
        release("pending-upgrade"),
        json!({"status": "pending-install", "name": "web", "version": "1"}),
        json!({"status": "deployed", "name": "web", "version": "x"}),
        json!({KEPT: "true"}),
        json!({KEPT: "stored", "other": "x"}),
    ];
    put("labels", &labels, choices);
    let owner = |uid: &str, controller: Value| json!({"kind": "Deployment", "name": "web", "uid": uid, "controller": controller});
    let owners = [
        json!([
            owner("a", json!(null)),
            owner("b", json!(true)),
            owner("c", json!(true))
        ]),
        json!([owner("a", json!(false)), {"uid": "b"}]),
        json!([{"controller": true}]),
        json!([null]),
        json!([]),
    ];
    put("ownerReferences", &owners, choices);
    let own = json!({"manager": "pod-reloader", "time": "x", "fieldsV1": {"f:data": {}}});
    let managers = [
        json!([own]),
        json!([own, own]),
        json!([own, {"manager": "kubectl"}]),
        json!([own, {}]),
        json!([null]),
        json!([]),
    ];
    put("managedFields", &managers, choices);
    metadata
}
