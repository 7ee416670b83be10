//! When namespaces are looked at, by the lists of their copies. The apiserver is a function, and time is paused.

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use pod_reloader_core::decision::FirstStamp;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::limit::Limits;
use pod_reloader_core::pins::COPY_OF;
use pod_reloader_core::scope::Scope;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::config::keys::Keys;
use crate::metrics::Metrics;
use crate::mock;
use crate::restart::brakes::Brakes;
use crate::restart::progress::Progress;
use crate::restart::reconcile::Settings;
use crate::runtime::events::Events;

/// An apiserver that has copies, and nothing else.
#[derive(Clone, Default)]
struct Apiserver(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The copies, by their paths.
    copies: BTreeMap<String, Value>,
    /// The namespaces whose copies were listed.
    looks: Vec<String>,
}

impl Apiserver {
    /// Makes a copy that is old, and that nobody uses.
    fn makes_copy(&self, namespace: &str, name: &str) {
        let object = json!({"metadata": {
            "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2020-01-01T00:00:00Z",
            "annotations": {COPY_OF: "app"},
        }});
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        self.0.lock().copies.insert(path, object);
    }

    fn answer(&self, head: &Parts) -> Value {
        let mut state = self.0.lock();
        let path = head.uri.path();
        if head.method == Method::DELETE {
            state.copies.remove(path);
            return json!({"kind": "Status", "status": "Success"});
        }
        assert_eq!(head.method, Method::GET, "{path}");
        let mut items = Vec::new();
        if let Some(all) = path.strip_suffix("/configmaps") {
            let copies = state.copies.iter();
            let here = copies.filter(|(copy, _)| copy.starts_with(&format!("{path}/")));
            items.extend(here.map(|(_, object)| object.clone()));
            let namespace = all.rsplit('/').next().unwrap_or_default();
            state.looks.push(namespace.to_owned());
        }
        json!({"metadata": {"resourceVersion": "1"}, "items": items})
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
    let client = mock::client(move |head: Parts, _: Bytes| {
        let answer = this.answer(&head);
        async move {
            sleep(Duration::from_millis(1)).await;
            Ok(answer)
        }
    });
    let (events, _) = Events::new(client.clone());
    let (metrics, operator) = (Metrics::new(), name("operator"));
    let keys = Arc::new(Keys::new(client.clone(), &operator, &name("keys")));
    let settings = Settings {
        settle_period: Duration::from_secs(5),
        max_restarts: 5,
        first_stamp: FirstStamp::Rollout,
        release_wait: Duration::ZERO,
        observe: false,
        run_cron_jobs: false,
        unstick_after: Duration::ZERO,
        namespace_memory: usize::MAX,
        limits: Limits::default(),
        clock: Timestamp::now,
    };
    let reconciler = Reconciler::new(
        settings,
        Scope::new([], operator).and_pins(true),
        client.clone(),
        Budget::new(),
        keys,
        Progress::new(events, None, metrics.clone(), Brakes::default()),
        metrics,
    );
    for kind in WorkloadKind::BUILT_IN {
        reconciler.list_is_whole(kind, None);
    }
    let grace = Duration::from_secs(300);
    let keeper = Arc::new(Keeper::new(
        client,
        Budget::new(),
        Arc::new(reconciler),
        grace,
    ));
    let running = keeper.clone();
    tokio::spawn(async move { running.worker.run(&running).await });
    keeper
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

impl Keeper {
    /// Lets the watch show that somebody has deleted a copy.
    fn sees_deletion(&self, namespace: &str) {
        let place = (name(namespace), name("app-0000000000"));
        self.is_gone(&mut self.known.lock(), place, "another");
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
