//! What is done with ConfigMaps that are ours, and not with those that only look like it. The apiserver is a function,
//! and time is paused.

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use pod_reloader_core::kept::KEPT_OBJECT;
use pod_reloader_core::seal::{Claim, Purpose, SEAL};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::known::TRIES;
use super::*;
use crate::mock::{self, Answer, Log, QUOTED, name};

const HOUR: Duration = Duration::from_secs(3600);

/// An apiserver that has ConfigMaps in the namespace `shop`, and nothing that uses them.
#[derive(Clone, Default)]
struct Apiserver(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The ConfigMaps, by their names.
    objects: BTreeMap<String, Value>,
    /// The names of those that were created.
    created: Vec<String>,
    /// The names of those whose deletion was asked for.
    deletions: Vec<String>,
    /// The status with which no ConfigMap can be created, if any.
    failing_creates: Option<u16>,
    /// The one that may not be deleted.
    never_deleted: &'static str,
}

impl Apiserver {
    fn answer(&self, head: &Parts, body: &Bytes) -> Answer {
        let mut state = self.0.lock();
        let path = head.uri.path();
        if path.ends_with("/secrets/keys") {
            return Ok(mock::keys_secret());
        }
        if head.method == Method::POST {
            if let Some(code) = state.failing_creates {
                return Err((code, "Failing"));
            }
            let object: Value = serde_json::from_slice(body).unwrap_or_default();
            let name = name_of(&object);
            let mut stored = object.clone();
            stored["metadata"]["uid"] = json!("new");
            state.objects.insert(name.clone(), stored);
            state.created.push(name);
            return Ok(object);
        }
        let Some((_, name)) = path.rsplit_once("/configmaps/") else {
            return Ok(json!({"metadata": {"resourceVersion": "1"}, "items": []}));
        };
        let object = state.objects.get(name).cloned();
        if head.method == Method::DELETE {
            state.deletions.push(name.to_owned());
            if name == state.never_deleted {
                return Err((403, "Forbidden"));
            }
            if object.as_ref().is_some_and(|it| !is_meant(it, body)) {
                return Err((409, "Conflict"));
            }
            state.objects.remove(name);
        }
        object.ok_or((404, "NotFound"))
    }

    /// Returns how often the deletion of a ConfigMap was asked for.
    fn deletions(&self, name: &str) -> usize {
        let state = self.0.lock();
        state.deletions.iter().filter(|it| *it == name).count()
    }
}

/// Returns true if an object meets the preconditions of a deletion.
fn is_meant(object: &Value, deletion: &Bytes) -> bool {
    let deletion: Value = serde_json::from_slice(deletion).unwrap_or_default();
    ["uid", "resourceVersion"].into_iter().all(|field| {
        let expected = &deletion["preconditions"][field];
        expected.is_null() || object["metadata"][field] == *expected
    })
}

fn name_of(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str();
    name.unwrap_or_default().to_owned()
}

async fn start(apiserver: &Apiserver) -> Arc<Keeper> {
    let this = apiserver.clone();
    let client = mock::client(move |head: Parts, body: Bytes| {
        let answer = this.answer(&head, &body);
        async move { answer }
    });
    let operator = name("operator");
    let keys = Arc::new(Keys::new(client.clone(), &operator, &name("keys")));
    keys.read_since(Instant::now()).await.unwrap();
    let kit = mock::kit(&client, "keep");
    let (scope, period) = (Scope::new([], operator), Duration::from_secs(300));
    let keeper = Arc::new(Keeper::new(kit, scope, keys, period));
    let running = keeper.clone();
    tokio::spawn(async move { running.worker.run(&running).await });
    keeper
}

impl Keeper {
    /// Lets the watch show a ConfigMap that the apiserver has.
    fn sees(&self, apiserver: &Apiserver, object: &Value) {
        let name = name_of(object);
        apiserver.0.lock().objects.insert(name, object.clone());
        let metadata = json!({"metadata": object["metadata"]});
        let metadata: KeptMetadata = serde_json::from_value(metadata).unwrap();
        if let Some((object, role)) = self.seen(&metadata) {
            self.push(object, &role);
        }
    }
}

/// Returns a ConfigMap that is ours, with some fields of its own.
fn ours(name: &str, role: &str, fields: &Value) -> Value {
    let mut object = json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "resourceVersion": "8",
            "labels": {KEPT: role},
            "managedFields": [{"manager": "pod-reloader"}],
        },
        "data": {"a": "1"},
    });
    json_patch::merge(&mut object["metadata"], fields);
    object
}

/// Returns a ConfigMap that stores `app`, with some fields of its own.
fn stored(fields: &Value) -> Value {
    let place = Reference::config_map(&name("shop"), &name("app-kept-0123456789"));
    let keys = mock::keys();
    let of = "app/gone/7";
    let seal = keys.seal(&Claim {
        purpose: Purpose::Store,
        object: &place,
        of,
    });
    let mut all = json!({"annotations": {KEPT_OBJECT: of, SEAL: seal}});
    json_patch::merge(&mut all, fields);
    ours("app-kept-0123456789", "stored", &all)
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_deleted_is_left_alone_until_it_changes() {
    let apiserver = Apiserver::default();
    apiserver.0.lock().never_deleted = "app-kept-0123456789";
    let keeper = start(&apiserver).await;
    keeper.sees(&apiserver, &stored(&json!({})));
    sleep(HOUR).await;
    assert_eq!(apiserver.0.lock().created, ["app"]);
    let tries = apiserver.deletions("app-kept-0123456789");
    assert_eq!(tries, TRIES as usize);
    // A list shows it again.
    keeper.sees(&apiserver, &stored(&json!({})));
    sleep(HOUR).await;
    assert_eq!(apiserver.deletions("app-kept-0123456789"), tries);
    keeper.sees(&apiserver, &stored(&json!({"resourceVersion": "9"})));
    sleep(HOUR).await;
    assert_eq!(apiserver.deletions("app-kept-0123456789"), 2 * tries);
}

#[tokio::test(start_paused = true)]
async fn what_only_looks_like_ours_is_neither_touched_nor_remembered() {
    let apiserver = Apiserver::default();
    let keeper = start(&apiserver).await;
    for fields in [
        json!({"labels": {"more": "x"}}),
        json!({"annotations": {"more": "x"}}),
        json!({"annotations": {KEPT_OBJECT: format!("app/{}/1", "u".repeat(240_000))}}),
        json!({"name": "fake"}),
        // What somebody else has made in the same form: it has no seal, or the one of another object.
        json!({"annotations": {SEAL: null}}),
        json!({"annotations": {KEPT_OBJECT: "other/gone/7"}}),
        json!({"name": "app-kept-9876543210"}),
        json!({"annotations": {SEAL: "0".repeat(32)}}),
    ] {
        keeper.sees(&apiserver, &stored(&fields));
    }
    sleep(HOUR).await;
    assert_eq!(keeper.known.lock().all(None).count(), 0);
    let state = apiserver.0.lock();
    assert!(state.created.is_empty() && state.deletions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_has_written_is_forgotten() {
    let apiserver = Apiserver::default();
    let keeper = start(&apiserver).await;
    keeper.sees(&apiserver, &ours("app", "true", &json!({})));
    assert_eq!(keeper.known.lock().all(None).count(), 1);
    let theirs = json!({"labels": {"more": "x"}, "resourceVersion": "9"});
    keeper.sees(&apiserver, &ours("app", "true", &theirs));
    assert_eq!(keeper.known.lock().all(None).count(), 0);
    sleep(HOUR).await;
    assert_eq!(apiserver.deletions("app"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unused_one_that_somebody_has_just_written_is_not_deleted() {
    let apiserver = Apiserver::default();
    let keeper = start(&apiserver).await;
    keeper.sees(&apiserver, &ours("app", "true", &json!({})));
    // The watch has not shown this yet.
    let theirs = ours("app", "true", &json!({"resourceVersion": "9"}));
    apiserver.0.lock().objects.insert("app".to_owned(), theirs);
    sleep(HOUR).await;
    assert!(apiserver.deletions("app") > 0);
    assert!(apiserver.0.lock().objects.contains_key("app"));
}

#[tokio::test(start_paused = true)]
async fn one_that_may_not_be_deleted_keeps_no_other_from_it() {
    let apiserver = Apiserver::default();
    apiserver.0.lock().never_deleted = "app";
    let keeper = start(&apiserver).await;
    for name in ["app", "other"] {
        keeper.sees(&apiserver, &ours(name, "true", &json!({})));
    }
    sleep(HOUR).await;
    let left: Vec<_> = apiserver.0.lock().objects.keys().cloned().collect();
    assert_eq!(left, ["app"]);
    assert_eq!(apiserver.deletions("app"), TRIES as usize);
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_version_has_stored_is_told_once_and_left_alone() {
    let log = Log::begin();
    let apiserver = Apiserver::default();
    let keeper = start(&apiserver).await;
    for name in ["app-kept-0123456789", "app-kept-9876543210"] {
        let unsealed = json!({"name": name, "annotations": {SEAL: null}});
        keeper.sees(&apiserver, &stored(&unsealed));
    }
    sleep(HOUR).await;
    let log = log.text();
    assert_eq!(log.matches("without a seal").count(), 1, "{log}");
    let state = apiserver.0.lock();
    assert!(state.created.is_empty() && state.deletions.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_log_has_no_words_of_the_apiserver() {
    for code in [403, 500] {
        let log = Log::begin();
        let apiserver = Apiserver::default();
        apiserver.0.lock().failing_creates = Some(code);
        let keeper = start(&apiserver).await;
        keeper.sees(&apiserver, &stored(&json!({})));
        sleep(HOUR).await;
        let log = log.text();
        assert!(log.contains("cannot bring"), "{log}");
        assert!(!log.contains(QUOTED), "{log}");
    }
}
