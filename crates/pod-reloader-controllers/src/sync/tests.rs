//! Ten minutes with somebody who changes copies: they are exact again at once, and against somebody who keeps on they are
//! not written again and again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use parking_lot::Mutex;
use pod_reloader_core::config_sync::{Target, TargetMetadata};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::sleep;

use super::metrics::SyncMetrics;
use super::state::tests::{key_of_pull, namespaces, sync};
use super::syncer::{Own, Syncer};
use crate::live::keys::Keys;
use crate::mock::{self, Answer, name};
use crate::runtime::own::Serves;

const A_TENTH: Duration = Duration::from_millis(100);
const TEN_MINUTES: u32 = 6_000;
/// A key of 32 bytes, in base64.
const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
/// The time that a change takes to arrive by a watch.
const WATCH: Duration = Duration::from_millis(5);

#[tokio::test(start_paused = true)]
async fn whatever_is_done_to_a_copy_at_rest_it_is_exact_again_within_a_second() {
    // A copy is at rest after a minute.
    const EVERY: u32 = 700;
    let cluster = Cluster::default();
    let of_metadata = |fields: Value| Some(json!({"metadata": fields}));
    let changes = [
        Some(json!({"data": {"from": "somebody", "more": "x"}})),
        Some(json!({"data": null})),
        of_metadata(json!({"labels": null})),
        of_metadata(json!({"annotations": {"pod-reloader.cs.sap.com/seal": null}})),
        of_metadata(json!({"ownerReferences": null})),
        Some(json!({"immutable": true})),
        Some(json!({"type": "example.com/other"})),
        // It is deleted.
        None,
    ];
    let exact = Mutex::new(Value::Null);
    let checks = Mutex::new(0);
    cluster
        .play(&[json!({})], |tenth| {
            let Some(change) = changes.get((tenth / EVERY) as usize) else {
                return;
            };
            match (tenth % EVERY, change) {
                (90, _) => *exact.lock() = cluster.content("a"),
                (100, Some(fields)) => {
                    cluster.change("a", |copy| json_patch::merge(copy, fields));
                }
                (100, None) => cluster.delete("a"),
                (109, _) => {
                    assert_eq!(cluster.content("a"), *exact.lock(), "{change:?}");
                    *checks.lock() += 1;
                }
                _ => {}
            }
        })
        .await;
    assert_eq!(*checks.lock(), changes.len());
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_somebody_changes_or_deletes_all_the_time_is_repaired_less_and_less() {
    let cluster = Cluster::default();
    let counted = cluster
        .play(&[json!({})], |tenth| {
            cluster.change("a", |copy| copy["data"] = json!({"at": tenth.to_string()}));
            cluster.delete("b");
        })
        .await;
    for namespace in ["a", "b"] {
        let writes = counted.writes[namespace];
        assert!((5..20).contains(&writes), "{namespace}: {counted:?}");
    }
    assert!(counted.statuses < 40, "{counted:?}");
    assert!(counted.reads < 100, "{counted:?}");
}

#[tokio::test(start_paused = true)]
async fn of_two_rivals_one_has_the_copy_for_ever_whatever_their_sources_are_labelled_with() {
    let cluster = Cluster::default();
    let elsewhere = json!({"spec": {"source": {"namespace": "elsewhere"}}});
    let counted = cluster
        .play(&[json!({}), elsewhere], |tenth| {
            if tenth % 10 == 0 {
                for source in ["platform", "elsewhere"] {
                    cluster.change(source, |it| {
                        it["metadata"]["labels"] = json!({"at": tenth.to_string()});
                    });
                }
            }
        })
        .await;
    assert_eq!(
        counted.writes,
        BTreeMap::from([("a".into(), 1), ("b".into(), 1)])
    );
    assert_eq!(cluster.data("a"), json!({"from": "platform"}));
    assert!(counted.statuses < 10, "{counted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_changes_each_copy_on_its_way_costs_no_further_write() {
    let cluster = Cluster::default();
    cluster.0.lock().has_policy = true;
    let changes = 4;
    let counted = cluster
        .play(&[json!({})], |tenth| {
            if tenth % 10 == 0 {
                let part = tenth / (TEN_MINUTES / changes);
                cluster.change("platform", |source| {
                    source["metadata"]["labels"] = json!({"at": tenth.to_string()});
                    source["data"] = json!({"part": part.to_string()});
                });
            }
        })
        .await;
    let each = changes as usize;
    assert_eq!(
        counted.writes,
        BTreeMap::from([("a".into(), each), ("b".into(), each)])
    );
}

/// An apiserver that is a function. It has Secret `pull` in some namespaces. Clones share their state.
#[derive(Clone, Default)]
struct Cluster(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    secrets: BTreeMap<String, Value>,
    /// The status of each ClusterConfigSync.
    statuses: BTreeMap<String, Value>,
    version: u64,
    /// True if a policy labels each object that the operator writes.
    has_policy: bool,
    counted: Counted,
    watch: Option<UnboundedSender<String>>,
}

/// The requests of the operator.
#[derive(Clone, Debug, Default)]
struct Counted {
    reads: usize,
    /// The writes of copies, by namespace.
    writes: BTreeMap<String, usize>,
    statuses: usize,
}

impl Cluster {
    /// Plays ten minutes with ClusterConfigSyncs of these fields, the oldest first, and calls `act` ten times a second.
    /// What lists and watches bring is told once a minute, and at each change.
    async fn play(&self, syncs: &[Value], act: impl Fn(u32)) -> Counted {
        let (sender, changes) = mpsc::unbounded_channel();
        self.0.lock().watch = Some(sender);
        for source in ["platform", "elsewhere"] {
            let data =
                json!({"data": {"from": source}, "type": "Opaque", "metadata": {"uid": source}});
            self.0.lock().put(source, data);
        }
        let syncer = self.syncer();
        let acts = async {
            for tenth in 0..TEN_MINUTES {
                if tenth % 600 == 0 {
                    self.list(&syncer, syncs);
                }
                act(tenth);
                sleep(A_TENTH).await;
            }
        };
        tokio::select! {
            () = acts => {}
            () = syncer.worker.run(&syncer) => {}
            () = self.tell(&syncer, changes) => {}
        }
        self.0.lock().counted.clone()
    }

    fn syncer(&self) -> Arc<Syncer> {
        let this = self.clone();
        let client = mock::client(move |head, body| {
            let answer = this.0.lock().answer(&head, &body);
            async move {
                sleep(Duration::from_millis(1)).await;
                answer
            }
        });
        let own = Own {
            namespace: name("operator"),
            keys: self.keys(),
        };
        let kit = mock::kit(&client, "sync");
        let metrics = SyncMetrics::registered(&mut Registry::default());
        Arc::new(Syncer::new(kit, metrics, own))
    }

    /// Returns the keys of seals, which somebody reads now and then.
    fn keys(&self) -> Arc<Keys> {
        let client = mock::client(|_, _| async {
            Ok(json!({"metadata": {}, "data": {"20260101T000000Z": KEY}}))
        });
        let keys = Arc::new(Keys::new(client, &name("operator"), &name("keys")));
        let reading = keys.clone();
        tokio::spawn(async move {
            let read = reading.read_since(tokio::time::Instant::now()).await;
            read.expect("the keys are there");
        });
        keys
    }

    /// Brings what lists would.
    fn list(&self, syncer: &Syncer, syncs: &[Value]) {
        for (index, fields) in syncs.iter().enumerate() {
            let called = format!("sync-{index}");
            let mut fields = fields.clone();
            let a_and_b = json!([{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}]);
            fields["spec"]["namespaceSelector"] = json!({"matchExpressions": a_and_b});
            if let Some(status) = self.0.lock().statuses.get(&called) {
                fields["status"] = status.clone();
            }
            syncer.seen(name(&called), sync(&called, index as u8 + 1, fields));
        }
        syncer.namespaces_listed(namespaces(&["a", "b", "elsewhere", "platform"]));
        let secrets = self.0.lock().secrets.clone();
        let all = secrets
            .into_iter()
            .map(|(namespace, secret)| (name(&namespace), target(secret)));
        syncer.targets_listed(&key_of_pull(), all.collect());
    }

    /// Brings what a watch would.
    async fn tell(&self, syncer: &Syncer, mut changes: UnboundedReceiver<String>) {
        while let Some(namespace) = changes.recv().await {
            sleep(WATCH).await;
            let secret = self.0.lock().secrets.get(&namespace).cloned();
            syncer.target_seen(&key_of_pull(), &name(&namespace), secret.map(target));
        }
    }

    /// Changes a Secret, as somebody else would. If it is not there, nothing happens.
    fn change(&self, namespace: &str, change: impl FnOnce(&mut Value)) {
        let mut stored = self.0.lock();
        if let Some(mut secret) = stored.secrets.get(namespace).cloned() {
            change(&mut secret);
            stored.put(namespace, secret);
        }
    }

    fn delete(&self, namespace: &str) {
        self.0.lock().remove(namespace);
    }

    fn data(&self, namespace: &str) -> Value {
        self.0.lock().secrets[namespace]["data"].clone()
    }

    /// Returns a Secret without the fields that are new each time it is written or created.
    fn content(&self, namespace: &str) -> Value {
        let mut secret = self.0.lock().secrets[namespace].clone();
        if let Some(metadata) = secret["metadata"].as_object_mut() {
            metadata.retain(|field, _| !["resourceVersion", "uid"].contains(&field.as_str()));
        }
        secret
    }
}

impl Stored {
    fn put(&mut self, namespace: &str, mut secret: Value) -> Value {
        let is_same = self.secrets.get(namespace) == Some(&secret);
        if !is_same {
            self.version += 1;
            secret["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.secrets.insert(namespace.to_owned(), secret.clone());
            self.changed(namespace);
        }
        secret
    }

    fn remove(&mut self, namespace: &str) {
        if self.secrets.remove(namespace).is_some() {
            self.changed(namespace);
        }
    }

    fn changed(&self, namespace: &str) {
        let watch = self.watch.as_ref().expect("it is watched");
        watch.send(namespace.to_owned()).expect("it is watched");
    }

    fn answer(&mut self, head: &Parts, body: &Bytes) -> Answer {
        let path = head.uri.path();
        if let Some(sync) = path.strip_suffix("/status") {
            self.counted.statuses += 1;
            let sync = sync.rsplit('/').next().unwrap_or_default();
            let patch: Value = serde_json::from_slice(body).unwrap();
            self.statuses
                .insert(sync.to_owned(), patch["status"].clone());
            return Ok(json!({}));
        }
        let rest = path.strip_prefix("/api/v1/namespaces/").unwrap();
        let namespace = rest.split('/').next().unwrap();
        let secret = self.secrets.get(namespace).cloned();
        if head.method == "GET" {
            self.counted.reads += 1;
            return secret.ok_or((404, "NotFound"));
        }
        *self.counted.writes.entry(namespace.to_owned()).or_default() += 1;
        let mut written: Value = serde_json::from_slice(body).unwrap_or_default();
        if self.has_policy {
            written["metadata"]["labels"]["policy"] = json!("x");
        }
        let version = |secret: &Value| secret["metadata"]["resourceVersion"].clone();
        match (head.method.as_str(), secret) {
            ("POST", None) => {
                written["metadata"]["uid"] = json!(format!("uid-{}", self.version));
                Ok(self.put(namespace, written))
            }
            ("PUT", Some(secret)) if version(&secret) == version(&written) => {
                Ok(self.put(namespace, written))
            }
            ("DELETE", Some(_)) => {
                self.remove(namespace);
                Ok(json!({}))
            }
            ("PUT", None) => Err((404, "NotFound")),
            ("POST" | "PUT", _) => Err((409, "Conflict")),
            (method, _) => panic!("{method} {path}"),
        }
    }
}

fn target(secret: Value) -> Target {
    let secret: TargetMetadata = serde_json::from_value(secret).unwrap();
    secret.into()
}
