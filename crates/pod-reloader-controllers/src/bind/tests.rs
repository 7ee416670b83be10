//! Ten minutes of changes: fields follow at once, and against somebody who works against us they are not written again and
//! again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use k8s_openapi::ByteString;
use parking_lot::Mutex;
use pod_reloader_api::FieldBinding;
use pod_reloader_core::field_binding::BindingId;
use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::reference::ConfigKind;
use pod_reloader_core::scope::Scope;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::sleep;

use super::binder::Binder;
use super::metrics::BindMetrics;
use super::state::{ObjectName, Watched, What};
pub(super) use crate::mock::name;
use crate::mock::{self, Answer};
use crate::runtime::own::Serves;

const A_TENTH: Duration = Duration::from_millis(100);
const TEN_MINUTES: u32 = 6_000;
/// The time that a change takes to arrive by a watch.
const WATCH: Duration = Duration::from_millis(5);

#[tokio::test(start_paused = true)]
async fn each_new_value_of_a_key_is_in_its_field_within_a_second() {
    let cluster = Cluster::new();
    let value = |tenth: u32| format!("of round {}", tenth / 1000);
    let counted = cluster
        .play(&[json!({})], |tenth| match tenth % 1000 {
            500 => cluster.change(SECRET, |it| it["data"]["key"] = encoded(&value(tenth))),
            509 => assert_eq!(cluster.field(), json!(value(tenth)), "{tenth}"),
            _ => {}
        })
        .await;
    assert_eq!(counted.writes, 7, "{counted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_field_that_somebody_resets_all_the_time_is_written_once_a_minute_and_the_rival_named() {
    let cluster = Cluster::new();
    let reset = |store: &mut Value| {
        store["spec"]["password"] = json!("placeholder");
        store["metadata"]["managedFields"] =
            json!([{"manager": "argocd", "fieldsV1": {"f:spec": {"f:password": {}}}}]);
    };
    let counted = cluster
        .play(&[json!({})], |_| cluster.change(STORE, reset))
        .await;
    assert!((10..=12).contains(&counted.writes), "{counted:?}");
    assert!(counted.statuses <= 2, "{counted:?}");
    assert!(counted.reads < 50, "{counted:?}");
    let field = cluster.status(0)["fields"][0].clone();
    assert_eq!(field["state"], "Contended");
    let message = field["message"].as_str().unwrap_or_default();
    assert!(message.contains("argocd"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_field_that_is_left_alone_at_last_is_applied_again() {
    let cluster = Cluster::new();
    let reset = |store: &mut Value| store["spec"]["password"] = json!("placeholder");
    let counted = cluster
        .play(&[json!({})], |tenth| {
            if tenth < TEN_MINUTES / 2 {
                cluster.change(STORE, reset);
            }
        })
        .await;
    assert!((5..=8).contains(&counted.writes), "{counted:?}");
    assert_eq!(cluster.field(), json!("first"));
    assert_eq!(cluster.reason(0), "Applied");
}

#[tokio::test(start_paused = true)]
async fn an_owner_who_answers_each_write_with_another_value_is_followed_less_and_less() {
    let cluster = Cluster::new();
    let counted = cluster
        .play(&[json!({})], |tenth| {
            let field = cluster.field();
            let value = format!("after {tenth}");
            if field == cluster.secret() {
                cluster.change(SECRET, |secret| secret["data"]["key"] = encoded(&value));
            }
        })
        .await;
    assert!((5..20).contains(&counted.writes), "{counted:?}");
    assert!(counted.statuses < 10, "{counted:?}");
    assert_eq!(cluster.reason(0), "Contended");
}

#[tokio::test(start_paused = true)]
async fn other_keys_and_the_status_of_the_target_cost_no_write() {
    let cluster = Cluster::new();
    let counted = cluster
        .play(&[json!({})], |tenth| {
            let other = encoded(&tenth.to_string());
            if tenth % 10 == 0 {
                cluster.change(SECRET, |secret| secret["data"]["other"] = other);
            }
            cluster.change(STORE, |store| store["status"] = json!({"at": tenth}));
        })
        .await;
    assert_eq!((counted.writes, counted.statuses), (1, 1), "{counted:?}");
    // The Secret, once a second.
    assert!(counted.reads < 650, "{counted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_changes_each_write_on_its_way_is_written_once_a_minute() {
    let cluster = Cluster::new();
    cluster.0.lock().changes_writes = true;
    let counted = cluster.play(&[json!({})], |_| {}).await;
    assert!((10..=14).contains(&counted.writes), "{counted:?}");
    assert!(counted.statuses <= 3, "{counted:?}");
    assert_eq!(cluster.reason(0), "Contended");
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_refused_is_tried_once_a_minute_and_a_better_one_at_once() {
    let cluster = Cluster::new();
    cluster.0.lock().refuses = Some("bad");
    cluster.change(SECRET, |secret| secret["data"]["key"] = encoded("bad"));
    let noticed = Mutex::new(None);
    let counted = cluster
        .play(&[json!({})], |tenth| {
            match tenth {
                3000 => assert_eq!(cluster.reason(0), "Rejected"),
                3010 => cluster.change(SECRET, |it| it["data"]["key"] = encoded("good")),
                _ => {}
            }
            if cluster.field() == "good" {
                noticed.lock().get_or_insert(tenth);
            }
        })
        .await;
    assert!((8..=13).contains(&counted.writes), "{counted:?}");
    assert!(noticed.lock().is_some_and(|at| at <= 3012));
    assert_eq!(cluster.reason(0), "Applied");
}

#[tokio::test(start_paused = true)]
async fn neither_a_status_that_is_written_meanwhile_nor_a_failure_holds_up_a_repair() {
    let cluster = Cluster::new();
    let reset = |store: &mut Value| store["spec"]["password"] = json!("placeholder");
    cluster
        .play(&[json!({})], |tenth| {
            match tenth {
                1000 => cluster.0.lock().races = 2,
                2000 => cluster.0.lock().lost = 1,
                3000 => cluster.0.lock().races = 3,
                _ => {}
            }
            match tenth % 1000 {
                0 => cluster.change(STORE, reset),
                20 => assert_eq!(cluster.field(), "first", "{tenth}"),
                30 => assert_eq!(cluster.reason(0), "Applied", "{tenth}"),
                _ => {}
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_field_is_found_in_an_object_that_is_too_deep_to_be_built() {
    let cluster = Cluster::new();
    let deep = (0..200).fold(json!(0), |inner, _| json!([inner]));
    cluster.change(STORE, |store| store["spec"]["deep"] = deep);
    let counted = cluster.play(&[json!({})], |_| {}).await;
    assert_eq!(counted.writes, 1, "{counted:?}");
    assert_eq!(cluster.field(), json!("first"));
    assert_eq!(cluster.reason(0), "Applied");
}

#[tokio::test(start_paused = true)]
async fn of_two_for_one_field_the_older_has_it() {
    let cluster = Cluster::new();
    let newer = json!({
        "metadata": {"creationTimestamp": "2026-02-01T00:00:00Z"},
        "spec": {"fields": [{"key": "other", "path": "spec.password"}]},
    });
    let counted = cluster
        .play(&[newer, json!({})], |tenth| {
            if tenth % 600 == 0 {
                let value = encoded(&tenth.to_string());
                cluster.change(SECRET, |secret| secret["data"]["other"] = value);
            }
        })
        .await;
    assert_eq!(cluster.field(), json!("first"));
    // The newer one is listed first.
    assert_eq!(counted.writes, 1, "{counted:?}");
    assert_eq!(
        (cluster.reason(0), cluster.reason(1)),
        ("Conflict".into(), "Applied".into())
    );
}

#[tokio::test(start_paused = true)]
async fn more_bindings_of_an_object_than_may_write_say_so() {
    let cluster = Cluster::new();
    let of_second = |second: usize| {
        let created = format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60);
        let field = json!({"key": "key", "path": format!("spec.f{second}")});
        json!({"metadata": {"creationTimestamp": created}, "spec": {"fields": [field]}})
    };
    let bindings: Vec<_> = (0..65).map(of_second).collect();
    cluster.play(&bindings, |_| {}).await;
    assert_eq!(cluster.reason(63), "Applied");
    assert_eq!(cluster.reason(64), "TooManyBindings");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_hangs_holds_up_no_other_kind() {
    let cluster = Cluster::new();
    let mut bindings = vec![json!({"spec": {"target": {"kind": "Hanging"}}}); 15];
    bindings.push(json!({}));
    cluster
        .play(&bindings, |tenth| {
            match tenth {
                // Both places were taken for as long as a call may take.
                120 => assert_eq!(cluster.field(), "first"),
                3000 => cluster.change(SECRET, |it| it["data"]["key"] = encoded("second")),
                3005 => assert_eq!(cluster.field(), "second"),
                _ => {}
            }
            let hung = cluster.0.lock().hung;
            assert!(hung <= if tenth < 120 { 2 } else { 1 }, "{hung} at {tenth}");
        })
        .await;
    assert_eq!(cluster.reason(15), "Applied");
    assert_eq!(cluster.reason(0), "Failed");
}

const SECRET: &str = "/api/v1/namespaces/ns/secrets/creds";
const STORE: &str = "/apis/example.com/v1/namespaces/ns/stores/store";

/// An apiserver that is a function. It has a Secret and a custom resource. Clones share their state.
#[derive(Clone)]
struct Cluster(Arc<Mutex<Stored>>);

struct Stored {
    /// The objects, by path.
    objects: HashMap<&'static str, Value>,
    /// The status of each FieldBinding.
    statuses: HashMap<String, Value>,
    version: u64,
    /// The value that a policy refuses.
    refuses: Option<&'static str>,
    /// True if a webhook changes each write of the operator.
    changes_writes: bool,
    /// The number of writes of the operator before which somebody else writes the status.
    races: u64,
    /// The number of writes of the operator that nobody answers.
    lost: usize,
    /// The number of calls that hang now.
    hung: usize,
    counted: Counted,
    watch: Option<UnboundedSender<&'static str>>,
}

/// The requests of the operator.
#[derive(Clone, Debug, Default)]
struct Counted {
    reads: usize,
    writes: usize,
    statuses: usize,
}

impl Cluster {
    fn new() -> Self {
        let secret = json!({"metadata": {"namespace": "ns"}, "data": {"key": encoded("first"), "other": encoded("x")}});
        let store =
            json!({"metadata": {"namespace": "ns", "uid": "u"}, "spec": {"password": "old"}});
        let cluster = Self(Arc::new(Mutex::new(Stored {
            objects: HashMap::new(),
            statuses: HashMap::new(),
            version: 0,
            refuses: None,
            changes_writes: false,
            races: 0,
            lost: 0,
            hung: 0,
            counted: Counted::default(),
            watch: None,
        })));
        cluster.0.lock().put(SECRET, secret);
        cluster.0.lock().put(STORE, store);
        cluster
    }

    /// Plays ten minutes with FieldBindings of these fields, and calls `act` ten times a second. What lists and watches
    /// bring is told once a minute, and at each change.
    async fn play(&self, bindings: &[Value], act: impl Fn(u32)) -> Counted {
        let (sender, changes) = mpsc::unbounded_channel();
        self.0.lock().watch = Some(sender);
        let binder = self.binder();
        let acts = async {
            for tenth in 0..TEN_MINUTES {
                if tenth % 600 == 0 {
                    self.list(&binder, bindings).await;
                }
                act(tenth);
                sleep(A_TENTH).await;
            }
        };
        tokio::select! {
            () = acts => {}
            () = binder.worker.run(&binder) => {}
            () = self.tell(&binder, changes) => {}
        }
        self.0.lock().counted.clone()
    }

    fn binder(&self) -> Arc<Binder> {
        let this = self.clone();
        let client = mock::client(move |head, body| {
            let this = this.clone();
            async move {
                if head.uri.path().contains("/hangings/") {
                    let _hung = Hung::new(&this);
                    return std::future::pending().await;
                }
                let answer = this.0.lock().answer(&head, &body);
                sleep(Duration::from_millis(1)).await;
                answer
            }
        });
        let kit = mock::kit(&client, "bind");
        let metrics = BindMetrics::registered(&mut Registry::default());
        let scope = Scope::new([], name("operator"));
        let kinds = Arc::new([stores(), hanging()]);
        Arc::new(Binder::new(kit, metrics, scope, kinds))
    }

    /// Brings what lists would.
    async fn list(&self, binder: &Binder, bindings: &[Value]) {
        for (index, fields) in bindings.iter().enumerate() {
            let called = format!("binding-{index}");
            let mut fields = fields.clone();
            if let Some(status) = self.0.lock().statuses.get(&called) {
                fields["status"] = status.clone();
            }
            let (id, object) = binding(&called, &fields);
            binder.seen(id, object);
            sleep(WATCH).await;
        }
        binder.all_listed(None, 0);
        for path in [SECRET, STORE] {
            let version = self.0.lock().version_of(path);
            let (watched, object) = watched(path);
            let list = binder.state.lock().objects.listing();
            binder.objects_listed(&watched, list, HashMap::from([(object, version)]));
        }
    }

    /// Brings what a watch would.
    async fn tell(&self, binder: &Binder, mut changes: UnboundedReceiver<&'static str>) {
        while let Some(path) = changes.recv().await {
            sleep(WATCH).await;
            let version = self.0.lock().version_of(path);
            let (watched, object) = watched(path);
            binder.object_seen(&watched, &object, Some(version));
        }
    }

    /// Changes an object, as somebody else would.
    fn change(&self, path: &'static str, change: impl FnOnce(&mut Value)) {
        let mut stored = self.0.lock();
        let mut object = stored.objects[path].clone();
        change(&mut object);
        stored.put(path, object);
    }

    /// Returns the value of the field.
    fn field(&self) -> Value {
        self.0.lock().objects[STORE]["spec"]["password"].clone()
    }

    /// Returns the value of the key.
    fn secret(&self) -> Value {
        let value = self.0.lock().objects[SECRET]["data"]["key"].clone();
        let value: ByteString = serde_json::from_value(value).unwrap();
        String::from_utf8(value.0).unwrap().into()
    }

    fn status(&self, binding: usize) -> Value {
        self.0.lock().statuses[&format!("binding-{binding}")].clone()
    }

    fn reason(&self, binding: usize) -> String {
        let reason = self.status(binding)["conditions"][0]["reason"].clone();
        reason.as_str().unwrap_or_default().to_owned()
    }
}

/// A call that hangs, until it is given up.
struct Hung(Cluster);

impl Hung {
    fn new(cluster: &Cluster) -> Self {
        cluster.0.lock().hung += 1;
        Self(cluster.clone())
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.0.0.lock().hung -= 1;
    }
}

impl Stored {
    fn put(&mut self, path: &'static str, mut object: Value) -> Value {
        let before = self.objects.get(path);
        if before == Some(&object) {
            return object;
        }
        if before.is_none_or(|before| before["spec"] != object["spec"]) {
            let generation = object["metadata"]["generation"]
                .as_i64()
                .unwrap_or_default();
            object["metadata"]["generation"] = json!(generation + 1);
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path, object.clone());
        if let Some(watch) = &self.watch {
            watch.send(path).expect("it is watched");
        }
        object
    }

    /// Returns what a watch of an object tells about it.
    fn version_of(&self, path: &str) -> Box<str> {
        let metadata = &self.objects[path]["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        match path {
            SECRET => text("resourceVersion").into(),
            _ => format!("{}/{}", text("uid"), metadata["generation"]).into(),
        }
    }

    fn answer(&mut self, head: &Parts, body: &Bytes) -> Answer {
        let path = head.uri.path();
        if let Some(binding) = path.strip_suffix("/status") {
            self.counted.statuses += 1;
            let binding = binding.rsplit('/').next().unwrap_or_default();
            let patch: Value = serde_json::from_slice(body).unwrap();
            let status = patch["status"].clone();
            self.statuses.insert(binding.to_owned(), status);
            return Ok(json!({}));
        }
        let path = [SECRET, STORE].into_iter().find(|it| *it == path).unwrap();
        let mut object = self.objects[path].clone();
        if head.method == "GET" {
            self.counted.reads += 1;
            return Ok(object);
        }
        self.counted.writes += 1;
        if self.lost > 0 {
            self.lost -= 1;
            return Err((503, "ServiceUnavailable"));
        }
        if self.races > 0 {
            object["status"] = json!({"races": self.races});
            self.races -= 1;
            object = self.put(STORE, object);
        }
        assert_eq!((head.method.as_str(), path), ("PATCH", STORE));
        let query = head.uri.query().unwrap_or_default();
        assert_eq!(query, "&fieldManager=pod-reloader&fieldValidation=Strict");
        let patch: json_patch::Patch = serde_json::from_slice(body).unwrap();
        if json_patch::patch(&mut object, &patch).is_err() {
            return Err((422, "Invalid"));
        }
        if self
            .refuses
            .is_some_and(|it| object["spec"]["password"] == it)
        {
            return Err((400, "BadRequest"));
        }
        if self.changes_writes {
            object["spec"]["password"] = json!("changed");
        }
        Ok(self.put(path, object))
    }
}

/// Returns a FieldBinding of the Secret and the custom resource, with some fields of its own.
pub(super) fn binding(called: &str, fields: &Value) -> (BindingId, FieldBinding) {
    let mut object = json!({
        "apiVersion": "pod-reloader.github.io/v1alpha1",
        "kind": "FieldBinding",
        "metadata": {"name": called, "namespace": "ns", "uid": called, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "source": {"kind": "Secret", "name": "creds"},
            "target": {"apiVersion": "example.com/v1", "kind": "Store", "name": "store"},
            "fields": [{"key": "key", "path": "spec.password"}],
        },
    });
    json_patch::merge(&mut object, fields);
    let id = BindingId {
        namespace: name("ns"),
        name: name(called),
    };
    (id, serde_json::from_value(object).unwrap())
}

/// Returns an object, and the watch that brings it.
fn watched(path: &str) -> (Watched, ObjectName) {
    let (what, called) = match path {
        SECRET => (What::Source(ConfigKind::Secret), "creds"),
        _ => (What::Target(stores()), "store"),
    };
    let object = ObjectName {
        namespace: name("ns"),
        name: name(called),
    };
    (Watched { what, place: None }, object)
}

pub(super) fn stores() -> BoundKind {
    BoundKind {
        group: "example.com",
        version: "v1",
        resource: "stores",
        kind: "Store",
        fill_on_create: false,
    }
}

/// Returns a kind whose calls nobody answers.
pub(super) fn hanging() -> BoundKind {
    BoundKind {
        resource: "hangings",
        kind: "Hanging",
        ..stores()
    }
}

fn encoded(value: &str) -> Value {
    serde_json::to_value(ByteString(value.into())).unwrap()
}
