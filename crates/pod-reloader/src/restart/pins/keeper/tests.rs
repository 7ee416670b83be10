//! When namespaces are looked at, by the lists of their copies, and what is then written. The apiserver is a function,
//! and time is paused.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use pod_reloader_core::annotations::PINS;
use pod_reloader_core::digest::{Aspects, ConfigObject};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::pins::plain_copy_name;
use pod_reloader_core::scope::Scope;
use pod_reloader_core::seal::{COPY_OF, Claim, Purpose, SEAL};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::unused::REFUSED_AT_ONCE;
use super::*;
use crate::live::keys::Keys;
use crate::mock::{self, Answer, keys, name};
use crate::restart::progress::Progress;
use crate::restart::recent_writes::RecentWrites;
use crate::restart::reconcile::Reconciler;
use crate::restart::settings::Settings;
use crate::runtime::events::Events;

/// An apiserver that has copies, and what is put into it.
#[derive(Clone, Default)]
struct Apiserver(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The copies, by their paths.
    copies: BTreeMap<String, Value>,
    /// Other objects, by their paths.
    others: BTreeMap<String, Value>,
    /// The namespaces whose copies were listed.
    looks: Vec<String>,
    /// The names of the ConfigMaps that were created.
    created: Vec<String>,
    /// The names of the ConfigMaps that were read.
    read: Vec<String>,
    /// The names of the ConfigMaps whose deletion was asked for.
    deletions: Vec<String>,
    /// The beginning of the names of ConfigMaps that may not be deleted.
    never_deleted: Option<&'static str>,
}

impl Apiserver {
    /// Makes a copy that is old, and that nobody uses.
    fn makes_copy(&self, namespace: &str, name: &str) {
        let object = Reference::config_map(&self::name(namespace), &self::name(name));
        let seal = keys().seal(&Claim {
            purpose: Purpose::Pin,
            object: &object,
            of: "app",
        });
        self.makes_marked(namespace, name, &json!({"annotations": {SEAL: seal}}), "1");
    }

    /// Makes an old and immutable ConfigMap with the marks of a copy but the seal, with these fields in its metadata.
    fn makes_marked(&self, namespace: &str, name: &str, fields: &Value, content: &str) {
        let mut metadata = json!({
            "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2020-01-01T00:00:00Z",
            "labels": {COPY: "true"},
            "annotations": {COPY_OF: "app"},
        });
        json_patch::merge(&mut metadata, fields);
        let object = json!({"metadata": metadata, "immutable": true, "data": {"key": content}});
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        self.0.lock().copies.insert(path, object);
    }

    /// Makes an object of the namespace `shop`.
    fn makes(&self, group: &str, plural: &str, name: &str, fields: &Value) {
        let mut object = json!({"metadata": {
            "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1",
        }});
        json_patch::merge(&mut object, fields);
        let path = format!("/{group}/namespaces/shop/{plural}/{name}");
        self.0.lock().others.insert(path, object);
    }

    fn answer(&self, head: &Parts, body: &Bytes) -> Answer {
        let mut state = self.0.lock();
        let path = head.uri.path();
        let (parent, name) = path.rsplit_once('/').unwrap_or_default();
        if head.method == Method::DELETE {
            state.deletions.push(name.to_owned());
            if state.never_deleted.is_some_and(|it| name.starts_with(it)) {
                return Err((403, "Forbidden"));
            }
            state.copies.remove(path);
            return Ok(json!({"kind": "Status", "status": "Success"}));
        }
        if head.method == Method::POST {
            let object: Value = serde_json::from_slice(body).unwrap_or_default();
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            state.created.push(name.to_owned());
            return Ok(object);
        }
        assert_eq!(head.method, Method::GET, "{path}");
        if path == "/api/v1/namespaces/operator/secrets/keys" {
            return Ok(mock::keys_secret());
        }
        if parent.ends_with("/configmaps") {
            state.read.push(name.to_owned());
            let object = state.copies.get(path).or_else(|| state.others.get(path));
            return object.cloned().ok_or((404, "NotFound"));
        }
        let is_of_copies = name == "configmaps";
        let all = match is_of_copies {
            true => &state.copies,
            false => &state.others,
        };
        let here = all
            .iter()
            .filter(|(it, _)| it.starts_with(&format!("{path}/")));
        let items: Vec<_> = here.map(|(_, object)| object.clone()).collect();
        if is_of_copies {
            let namespace = parent.rsplit('/').next().unwrap_or_default();
            state.looks.push(namespace.to_owned());
        }
        Ok(json!({"metadata": {"resourceVersion": "1"}, "items": items}))
    }

    /// Returns how often the copies of a namespace were looked at.
    fn looks(&self, namespace: &str) -> usize {
        let state = self.0.lock();
        state.looks.iter().filter(|it| *it == namespace).count()
    }
}

/// Starts to look at namespaces, as they are due.
fn start(apiserver: &Apiserver) -> Arc<Keeper> {
    let this = apiserver.clone();
    let client = mock::client(move |head: Parts, body: Bytes| {
        let answer = this.answer(&head, &body);
        async move {
            sleep(Duration::from_millis(1)).await;
            answer
        }
    });
    let (events, _) = Events::new(client.clone());
    let (metrics, operator) = (Metrics::new(), name("operator"));
    let keys = Arc::new(Keys::new(client.clone(), &operator, &name("keys")));
    let reconciler = Reconciler::new(
        Settings::plain(),
        Scope::new([], operator).and_pins(true),
        client.clone(),
        Budget::new(),
        keys,
        Progress::new(events, None, metrics.clone(), RecentWrites::default()),
        metrics.clone(),
    );
    for kind in WorkloadKind::BUILT_IN {
        reconciler.lists.is_whole(kind, None);
    }
    let pins = reconciler.pins.as_ref().unwrap();
    let grace = Duration::from_secs(300);
    let keeper = Arc::new(Keeper::new(
        client,
        Budget::new(),
        metrics,
        pins.content.clone(),
        pins.workloads.clone(),
        grace,
    ));
    let running = keeper.clone();
    tokio::spawn(async move { running.worker.run(&running).await });
    keeper
}

/// Returns the name that earlier versions gave to the copy of ConfigMap `app` with this content.
fn earlier_name(content: &str) -> String {
    let object =
        json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "data": {"key": content}});
    let object = ConfigObject::parse(object.to_string().as_bytes(), Aspects::default());
    plain_copy_name(&name("app"), &object.unwrap().digest).to_string()
}

impl Keeper {
    /// Lets the watch show that somebody has deleted a copy.
    fn sees_deletion(&self, namespace: &str) {
        self.is_gone(name(namespace), "another");
    }

    /// Looks twice at a namespace, so that its unused copies are deleted.
    async fn deletes_copies_in(&self, namespace: &str) {
        for _ in 0..2 {
            self.worker.push(name(namespace), Instant::now());
            sleep(Duration::from_secs(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deletions_in_one_namespace_do_not_keep_another_from_its_second_look() {
    let apiserver = Apiserver::default();
    apiserver.makes_copy("shop", "app-0123456789");
    let keeper = start(&apiserver);
    keeper.deletes_copies_in("shop").await;
    assert!(apiserver.0.lock().copies.is_empty());
    assert_eq!(apiserver.looks("shop"), 2);
    for deletions in 1..=3 {
        keeper.sees_deletion("eve");
        sleep(Duration::from_secs(25)).await;
        assert_eq!(apiserver.looks("eve"), deletions);
    }
    assert_eq!(apiserver.looks("shop"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_look_because_of_a_deletion_does_not_replace_the_second_look() {
    let apiserver = Apiserver::default();
    apiserver.makes_copy("shop", "app-0123456789");
    let keeper = start(&apiserver);
    keeper.deletes_copies_in("shop").await;
    keeper.sees_deletion("shop");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(apiserver.looks("shop"), 3);
    sleep(LOOK_AGAIN).await;
    assert_eq!(apiserver.looks("shop"), 4);
    sleep(LOOK_AGAIN * 10).await;
    assert_eq!(apiserver.looks("shop"), 4);
}

#[tokio::test(start_paused = true)]
async fn many_deletions_are_one_look_and_namespaces_take_turns() {
    let apiserver = Apiserver::default();
    let keeper = start(&apiserver);
    for namespace in ["eve", "shop", "eve", "bank", "eve"] {
        keeper.sees_deletion(namespace);
        sleep(Duration::from_millis(100)).await;
    }
    sleep(PAUSE).await;
    assert_eq!(apiserver.0.lock().looks, ["eve", "shop", "bank"]);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_outside_of_the_scope_is_not_followed() {
    let apiserver = Apiserver::default();
    let keeper = start(&apiserver);
    for namespace in ["kube-system", "operator", "shop"] {
        keeper.sees_deletion(namespace);
    }
    sleep(LOOK_AGAIN).await;
    assert_eq!(apiserver.0.lock().looks, ["shop"]);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_a_workload_names_is_brought_back_and_one_that_a_pod_names_is_not() {
    let apiserver = Apiserver::default();
    apiserver.makes(
        "api/v1",
        "configmaps",
        "app",
        &json!({"data": {"key": "1"}}),
    );
    let named = |copy: &str| json!({"annotations": {PINS: format!("app={copy}")}});
    let template = json!({"metadata": named("app-0000000001")});
    let web = json!({"spec": {"template": template}});
    apiserver.makes("apis/apps/v1", "deployments", "web", &web);
    for at in 2..=300 {
        let pod = json!({"metadata": named(&format!("app-{at:010}")), "spec": {}});
        apiserver.makes("api/v1", "pods", &format!("p{at}"), &pod);
    }
    let keeper = start(&apiserver);
    keeper.sees_deletion("shop");
    sleep(LOOK_AGAIN).await;
    assert_eq!(apiserver.looks("shop"), 1);
    assert_eq!(apiserver.0.lock().created, ["app-0000000001"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_copy_is_counted_until_its_namespace_is_looked_at_no_more() {
    let apiserver = Apiserver::default();
    let pins = json!({PINS: "app=app-0000000001"});
    let web = json!({"spec": {"template": {"metadata": {"annotations": pins}}}});
    apiserver.makes("apis/apps/v1", "deployments", "web", &web);
    let keeper = start(&apiserver);
    let counted = || keeper.metrics.lost_copies.get();
    keeper.sees_deletion("shop");
    sleep(LOOK_AGAIN).await;
    assert_eq!(counted(), 1);
    // No watch has shown a workload or a copy.
    assert!(keeper.namespaces().is_empty());
    assert_eq!(counted(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_a_pod_names_is_not_deleted() {
    let apiserver = Apiserver::default();
    apiserver.makes_copy("shop", "app-0000000001");
    apiserver.makes_copy("shop", "app-0000000002");
    let pod = json!({"metadata": {"annotations": {PINS: "app=app-0000000001"}}, "spec": {}});
    apiserver.makes("api/v1", "pods", "web-1", &pod);
    start(&apiserver).deletes_copies_in("shop").await;
    assert_eq!(apiserver.0.lock().deletions, ["app-0000000002"]);
}

#[tokio::test(start_paused = true)]
async fn deletions_that_are_refused_hold_up_no_others_and_are_not_tried_all_the_time() {
    let apiserver = Apiserver::default();
    for at in 0..5 {
        apiserver.makes_copy("shop", &format!("app-000000000{at}"));
    }
    apiserver.makes_copy("shop", "app-1000000000");
    apiserver.0.lock().never_deleted = Some("app-0");
    let keeper = start(&apiserver);
    keeper.deletes_copies_in("shop").await;
    assert_eq!(apiserver.0.lock().deletions.len(), 6);
    assert_eq!(apiserver.0.lock().copies.len(), 5);
    // The one that was deleted has it looked at once more.
    sleep(LOOK_AGAIN * 20).await;
    assert_eq!(apiserver.looks("shop"), 3);

    for at in 0..50 {
        apiserver.makes_copy("shop", &format!("app-00000001{at:02}"));
    }
    apiserver.0.lock().deletions.clear();
    keeper.deletes_copies_in("shop").await;
    let deletions = apiserver.0.lock().deletions.clone();
    assert_eq!(deletions.len(), REFUSED_AT_ONCE, "in two looks");
    keeper.deletes_copies_in("shop").await;
    let more = apiserver.0.lock().deletions[REFUSED_AT_ONCE..].to_vec();
    assert_eq!(more.len(), 2 * REFUSED_AT_ONCE);
    assert!(
        more.iter().all(|it| !deletions.contains(it)),
        "a refusal is an end: {more:?}"
    );
}

/// Whoever may write labels and annotations of an object that they may not delete would otherwise have us do it.
#[tokio::test(start_paused = true)]
async fn an_object_of_somebody_else_with_the_marks_of_a_copy_is_left_alone() {
    let apiserver = Apiserver::default();
    let always = json!({"labels": {"pod-reloader.cs.sap.com/protect": "always"}});
    // As kustomize names what it generates, if it has ten digits.
    apiserver.makes_marked("shop", "app-0123456789", &always, "1");
    let forged = json!({"annotations": {SEAL: "0".repeat(32)}});
    apiserver.makes_marked("shop", "app-1123456789", &forged, "1");
    apiserver.makes_copy("shop", "app-2123456789");
    let keeper = start(&apiserver);
    for _ in 0..5 {
        keeper.deletes_copies_in("shop").await;
    }
    let state = apiserver.0.lock();
    assert_eq!(state.deletions, ["app-2123456789"]);
    assert_eq!(state.read, ["app-0123456789"], "once");
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_an_earlier_version_has_made_is_deleted_when_nobody_uses_it() {
    let apiserver = Apiserver::default();
    let bare = json!({});
    let (unused, used) = (earlier_name("1"), earlier_name("2"));
    apiserver.makes_marked("shop", &unused, &bare, "1");
    apiserver.makes_marked("shop", &used, &bare, "2");
    let pod = json!({"metadata": {"annotations": {PINS: format!("app={used}")}}, "spec": {}});
    apiserver.makes("api/v1", "pods", "web-1", &pod);
    start(&apiserver).deletes_copies_in("shop").await;
    assert_eq!(apiserver.0.lock().deletions, [unused]);
}
