//! The deletion of a protected object: what cannot be found out, or cannot be stored, is not deleted. Anybody who reaches
//! the webhook can send a review, so only what the apiserver has counts.

use std::collections::BTreeMap;

use http::header::ACCEPT;
use jiff::Timestamp;
use kube::core::Selector;
use parking_lot::Mutex;
use pod_reloader_core::dialects::Dialects;
use pod_reloader_core::kept::{Original, stored};
use pod_reloader_core::protect::Protected;
use pod_reloader_core::scope::Labels;

use super::in_use::InUse;
use super::keep::Keep;
use super::*;
use crate::live::covered::Covered;
use crate::live::kept::KeptCalls;
use crate::live::protected::ProtectedReads;
use crate::live::users::Users;
use crate::mock::{self, Answer, Log, QUOTED};

/// What the apiserver does with one request.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Refuses,
    Fails,
    Nothing,
    /// It sends something that is no such object.
    SendsRubbish,
}

/// The method of a request that is broken: a GET of metadata only.
const METADATA: &str = "METADATA";

/// An apiserver with ConfigMap `app`, and pod `web` that uses it. It answers as usual, but for the request with this
/// method at this path.
#[derive(Clone)]
struct Cluster {
    broken: (&'static str, &'static str, Does),
    /// The label that the ConfigMap has, if any.
    protection: Option<&'static str>,
    /// The labels that the scope requires.
    labels: Labels,
    /// The resourceVersion when the content of the ConfigMap is read.
    resource_version: &'static str,
    /// The other ConfigMaps, by their names.
    others: Arc<Mutex<BTreeMap<String, Value>>>,
    /// What somebody else puts into the place of a ConfigMap just before it is created, if anything.
    faster: Option<Value>,
    writes: Arc<Mutex<Vec<Value>>>,
    /// The paths that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
    /// The ReplicaSet that owns the pod, if there is one.
    replica_set: Option<Value>,
    /// The Deployments, which do not use the ConfigMap.
    deployments: Vec<Value>,
    /// True if the pod names its owner only when it is listed for the first time.
    is_orphaned: bool,
    /// The number of pods that use other objects, which are listed before it.
    others_before: usize,
}

impl Cluster {
    fn new(method: &'static str, path: &'static str, does: Does) -> Self {
        Self {
            broken: (method, path, does),
            protection: None,
            labels: Labels::default(),
            resource_version: "5",
            others: Arc::default(),
            faster: None,
            writes: Arc::default(),
            asked: Arc::default(),
            replica_set: None,
            deployments: Vec::new(),
            is_orphaned: false,
            others_before: 0,
        }
    }

    fn healthy() -> Self {
        Self::new("GET", "nowhere", Does::Nothing)
    }

    /// Returns the cluster with this protection of the ConfigMap.
    fn with(mut self, protection: &'static str) -> Self {
        self.protection = Some(protection);
        self
    }

    async fn router(&self) -> Router {
        let this = self.clone();
        let client = mock::client(move |head, body| {
            let this = this.clone();
            async move {
                let (method, path, does) = this.broken;
                let accept = head.headers.get(ACCEPT).and_then(|it| it.to_str().ok());
                let is_metadata = accept.is_some_and(|it| it.contains("as=PartialObjectMetadata;"));
                let own = match head.method.as_str() {
                    "GET" if is_metadata => METADATA,
                    own => own,
                };
                let is_broken = own == method && head.uri.path().ends_with(path);
                match does {
                    Does::Refuses if is_broken => Err((403, "Forbidden")),
                    Does::Fails if is_broken => Err((500, "InternalError")),
                    Does::Nothing if is_broken => std::future::pending().await,
                    Does::SendsRubbish if is_broken => {
                        Ok(json!({"metadata": {"resourceVersion": "9"},
                        "items": [{"metadata": {"name": "web"}, "spec": "none"}]}))
                    }
                    _ if head.uri.path().ends_with("/pods") => {
                        Ok(this.pods(head.uri.path(), head.uri.query().unwrap_or_default()))
                    }
                    _ => this.answer(own, head.uri.path(), &body),
                }
            }
        });
        let scope = Scope::new([], own_namespace()).with(self.labels.clone(), Dialects::default());
        let (webhook, keys) = parts_of(client.clone(), scope.clone());
        keys.read_since(Instant::now()).await.unwrap();
        let budget = Budget::new();
        let covered = Covered::new(client.clone(), scope, budget.clone());
        let users = Users::new(client.clone(), budget.clone());
        let reads = ProtectedReads::new(client.clone(), budget.clone());
        let in_use = InUse {
            covered: covered.clone(),
            reads: reads.clone(),
            users: users.clone(),
            templates_protect: false,
        };
        let keep = Keep {
            covered,
            reads,
            users,
            calls: KeptCalls::new(client, budget),
            clock: now,
        };
        webhook.router(SwitchedOn {
            in_use: Some(in_use),
            keep: Some(keep),
            ..SwitchedOn::default()
        })
    }

    fn answer(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        if path.ends_with("/secrets/hash-keys") {
            return Ok(keys_secret());
        }
        self.asked.lock().push(path.to_owned());
        if method == "POST" {
            return self.create(body);
        }
        if path.ends_with("/configmaps/app") {
            let mut object = config_map();
            if method != METADATA {
                object["metadata"]["resourceVersion"] = json!(self.resource_version);
            }
            if let Some(protection) = self.protection {
                object["metadata"]["labels"] = json!({PROTECT: protection});
            }
            return Ok(object);
        }
        if let Some((_, name)) = path.rsplit_once("/configmaps/") {
            let object = self.others.lock().get(name).cloned();
            return object.ok_or((404, "NotFound"));
        }
        let items = match path.rsplit('/').next() {
            Some("replicasets") => self.replica_set.iter().cloned().collect(),
            Some("deployments") => self.deployments.clone(),
            _ => Vec::new(),
        };
        Ok(json!({"metadata": {"resourceVersion": "9"}, "items": items}))
    }

    /// Returns a page of pods. The one that uses the ConfigMap is the last one of all.
    fn pods(&self, path: &str, query: &str) -> Value {
        let mut asked = self.asked.lock();
        asked.push(path.to_owned());
        let times = asked.iter().filter(|path| path.ends_with("/pods")).count();
        let token = query.split('&').find_map(|it| it.strip_prefix("continue="));
        let from = token.map_or(0, |token| token.parse().unwrap());
        let to = self.others_before.min(from + PODS_OF_A_PAGE);
        let others = from..to;
        let mut items: Vec<_> = others
            .map(|at| pod(&format!("other-{at}"), "other"))
            .collect();
        let mut metadata = json!({"resourceVersion": "9"});
        if to < self.others_before {
            metadata["continue"] = json!(to.to_string());
            return json!({"metadata": metadata, "items": items});
        }
        let mut user = pod("web", "app");
        if self.replica_set.is_some() && !(self.is_orphaned && times > 1) {
            user["metadata"]["ownerReferences"] = owned_by("ReplicaSet", "rs");
        }
        items.push(user);
        json!({"metadata": metadata, "items": items})
    }

    fn create(&self, body: &[u8]) -> Answer {
        let mut object: Value = serde_json::from_slice(body).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut others = self.others.lock();
        if let Some(faster) = &self.faster {
            others.insert(name.clone(), faster.clone());
        }
        if others.contains_key(&name) {
            return Err((409, "AlreadyExists"));
        }
        self.writes.lock().push(object.clone());
        let more = json!({
            "namespace": "ns", "uid": name, "resourceVersion": "8",
            "managedFields": [{"manager": "pod-reloader"}],
        });
        json_patch::merge(&mut object["metadata"], &more);
        others.insert(name, object.clone());
        Ok(object)
    }

    /// Deletes ConfigMap `app`, which has this protection. Returns the reason why it is not deleted.
    async fn deletes(&self, protection: &'static str, dry_run: bool) -> Option<String> {
        let cluster = self.clone().with(protection);
        cluster.reviews(protection, dry_run, &json!({})).await.0
    }

    /// Reviews the deletion of ConfigMap `app`, or of what these fields make of it, which claims to have this protection.
    /// Returns the reason why it is not deleted, and the warnings.
    async fn reviews(
        &self,
        protection: &str,
        dry_run: bool,
        fields: &Value,
    ) -> (Option<String>, Value) {
        let review = claims(protection, dry_run, fields);
        let path = format!("/{protection}?timeout=3s");
        let answer = call(&self.router().await, post(&path, &review.to_string())).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let response = &answer.json()["response"];
        let message = response["status"]["message"].as_str().map(str::to_owned);
        assert_eq!(response["allowed"], message.is_none(), "{response}");
        (message, response["warnings"].clone())
    }
}

const PROTECT: &str = "pod-reloader.cs.sap.com/protect";
const PODS_OF_A_PAGE: usize = 500;

/// Returns a pod that uses the ConfigMap and the Secret of a name.
fn pod(called: &str, name: &str) -> Value {
    let env_from = json!([{"configMapRef": {"name": name}}, {"secretRef": {"name": name}}]);
    json!({"metadata": {"name": called}, "spec": {"containers": [{"envFrom": env_from}]}})
}

fn owned_by(kind: &str, uid: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": uid, "controller": true}])
}

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// Returns a review which says that ConfigMap `app`, or what these fields make of it, has this protection.
fn claims(protection: &str, dry_run: bool, fields: &Value) -> Value {
    let mut object = config_map();
    object["metadata"]["labels"] = json!({PROTECT: protection});
    json_patch::merge(&mut object, fields);
    let mut review = review("DELETE", &object);
    review["request"]["dryRun"] = json!(dry_run);
    review["request"]["kind"]["kind"] = object["kind"].clone();
    review
}

#[tokio::test(start_paused = true)]
async fn what_may_be_in_use_is_not_deleted() {
    let reason = Cluster::healthy().deletes("in-use", false).await.unwrap();
    assert!(reason.contains("is in use by Pod web."), "{reason}");
    let all = [
        Does::Refuses,
        Does::Fails,
        Does::Nothing,
        Does::SendsRubbish,
    ];
    for (method, path) in [
        (METADATA, "/configmaps/app"),
        ("GET", "/pods"),
        ("GET", "/deployments"),
        ("GET", "/cronjobs"),
    ] {
        for does in all {
            for protection in ["in-use", "keep"] {
                let is_unnamed =
                    does == Does::Refuses && method == METADATA && protection == "in-use";
                let cluster = Cluster::new(method, path, does);
                let reason = cluster.deletes(protection, false).await.unwrap();
                let expected = match is_unnamed {
                    true => "is in use. It",
                    false => "cannot tell who uses ConfigMap ns/app, so it is not deleted",
                };
                assert!(reason.contains(expected), "{path} {protection}: {reason}");
                assert!(cluster.writes.lock().is_empty());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_one_of_five_thousand_pods_keeps_what_it_uses() {
    let cluster = Cluster {
        others_before: 5_000,
        ..Cluster::healthy()
    };
    let reason = cluster.deletes("in-use", false).await.unwrap();
    assert!(reason.contains("is in use by Pod web."), "{reason}");
    let asked = cluster.asked.lock();
    let pages = asked.iter().filter(|path| path.ends_with("/pods")).count();
    assert_eq!(pages, 10, "each page once");
}

#[tokio::test]
async fn pods_that_have_outlived_their_deployment_keep_nothing() {
    let owner = owned_by("Deployment", "web");
    let replica_set = json!({"metadata": {"name": "web-1", "uid": "rs", "ownerReferences": owner}});
    let deployment = json!({"metadata": {"name": "web", "uid": "web"}});
    let mut cluster = Cluster::healthy();
    cluster.replica_set = Some(replica_set);
    assert_eq!(cluster.deletes("in-use", false).await, None);
    let lists = cluster.asked.lock().clone();
    let place = |kind: &str| lists.iter().rposition(|path| path.ends_with(kind)).unwrap();
    assert!(place("/pods") < place("/replicasets"), "{lists:?}");
    assert!(place("/replicasets") < place("/deployments"), "{lists:?}");

    cluster.deployments = vec![deployment];
    let reason = cluster.deletes("in-use", false).await.unwrap();
    assert!(reason.contains("is in use by Pod web."), "{reason}");
    let unknown = Cluster {
        broken: ("GET", "/replicasets", Does::Fails),
        ..cluster.clone()
    };
    let reason = unknown.deletes("in-use", false).await.unwrap();
    assert!(reason.contains("cannot tell who uses"), "{reason}");

    // Its Deployment is gone when it is looked for, because the pod has been orphaned since it was listed.
    let orphaned = Cluster {
        is_orphaned: true,
        deployments: Vec::new(),
        asked: Arc::default(),
        ..cluster
    };
    let reason = orphaned.deletes("in-use", false).await.unwrap();
    assert!(reason.contains("is in use by Pod web."), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn what_is_in_use_and_cannot_be_stored_is_not_deleted() {
    for (method, path) in [("GET", "/configmaps/app"), ("POST", "/configmaps")] {
        for does in [Does::Refuses, Does::Fails, Does::Nothing] {
            let cluster = Cluster::new(method, path, does);
            let reason = cluster.deletes("keep", false).await.unwrap();
            assert!(reason.contains("ConfigMap ns/app"), "{method}: {reason}");
            assert!(
                !reason.contains("cannot tell who uses"),
                "{method}: {reason}"
            );
        }
    }
    let mut changed = Cluster::healthy();
    changed.resource_version = "6";
    assert!(changed.deletes("keep", false).await.is_some());
    assert!(changed.writes.lock().is_empty());
}

#[tokio::test]
async fn what_is_in_use_is_stored_before_it_goes_but_not_in_a_dry_run() {
    let cluster = Cluster::healthy();
    assert_eq!(cluster.deletes("keep", true).await, None);
    assert!(cluster.writes.lock().is_empty());
    assert_eq!(cluster.deletes("keep", false).await, None);
    let writes = cluster.writes.lock();
    assert_eq!(writes.len(), 1);
    assert_eq!(writes[0]["data"], config_map()["data"]);
    assert_eq!(writes[0]["immutable"], true);
}

#[tokio::test]
async fn a_review_of_something_else_asks_the_apiserver_for_nothing() {
    let cluster = Cluster::healthy();
    let router = cluster.router().await;
    let update = review("UPDATE", &config_map());
    for path in ["/in-use", "/keep"] {
        let answer = call(&router, post(path, &update.to_string())).await;
        assert_eq!(answer.json()["response"]["allowed"], true);
        let rubbish = call(&router, post(path, "{}")).await;
        assert_eq!(rubbish.status, StatusCode::BAD_REQUEST);
    }
    assert!(cluster.asked.lock().is_empty());
}

#[tokio::test]
async fn a_review_of_a_namespace_out_of_scope_names_nobody_and_reads_nothing() {
    for namespace in ["kube-system", "operator"] {
        for protection in ["in-use", "keep"] {
            let cluster = Cluster::healthy().with(protection);
            let elsewhere = json!({"metadata": {"namespace": namespace}});
            let (reason, warnings) = cluster.reviews(protection, false, &elsewhere).await;
            assert_eq!((reason, warnings), (None, Value::Null), "{namespace}");
            assert!(cluster.asked.lock().is_empty());
        }
    }
}

#[tokio::test]
async fn a_review_of_a_namespace_without_the_labels_of_the_scope_names_nobody() {
    for protection in ["in-use", "keep"] {
        let namespace = Some(Selector::from_iter([(
            "managed".to_owned(),
            "x".to_owned(),
        )]));
        let labels = Labels {
            namespace,
            ..Labels::default()
        };
        let cluster = Cluster {
            labels,
            ..Cluster::healthy().with(protection)
        };
        let (reason, warnings) = cluster.reviews(protection, false, &json!({})).await;
        assert_eq!((reason, warnings), (None, Value::Null));
        assert_eq!(*cluster.asked.lock(), ["/api/v1/namespaces"]);
        assert!(cluster.writes.lock().is_empty());
    }
}

#[tokio::test]
async fn a_review_of_an_object_without_the_label_names_nobody_and_stores_nothing() {
    let other = json!({"metadata": {"uid": "another"}});
    let gone = json!({"metadata": {"name": "gone"}});
    for (protection, claimed, fields) in [
        (None, "in-use", &json!({})),
        (None, "keep", &json!({})),
        (Some("always"), "in-use", &json!({})),
        (Some("in-use"), "keep", &json!({})),
        (Some("in-use"), "in-use", &other),
        (Some("keep"), "keep", &other),
        (Some("in-use"), "in-use", &gone),
        (Some("keep"), "keep", &gone),
    ] {
        let cluster = Cluster {
            protection,
            ..Cluster::healthy()
        };
        let (reason, warnings) = cluster.reviews(claimed, false, fields).await;
        assert_eq!((reason, warnings), (None, Value::Null), "{fields}");
        assert_eq!(cluster.asked.lock().len(), 1, "nobody asks who uses it");
        assert!(cluster.writes.lock().is_empty());
    }
}

/// With `ignoreSecrets`, we have no right to read them.
#[tokio::test]
async fn nobody_is_named_who_uses_an_object_that_may_not_be_read() {
    let cluster = Cluster::new(METADATA, "/secrets/app", Does::Refuses);
    let secret = json!({"kind": "Secret"});
    let (reason, _) = cluster.reviews("in-use", false, &secret).await;
    let reason = reason.unwrap();
    assert!(reason.contains("Secret ns/app is in use. It"), "{reason}");
}

#[tokio::test]
async fn reviews_of_one_version_store_it_once_whatever_they_say() {
    let cluster = Cluster::healthy().with("keep");
    let router = cluster.router().await;
    for number in 0..100 {
        let version = json!({"metadata": {"resourceVersion": number.to_string()}});
        let mut review = claims("keep", false, &version);
        review["request"]["uid"] = json!(format!("review-{number}"));
        let answer = call(&router, post("/keep?timeout=3s", &review.to_string())).await;
        let response = &answer.json()["response"];
        assert_eq!(response["allowed"], true, "{response}");
    }
    let writes = cluster.writes.lock();
    assert_eq!(writes.len(), 1);
    let annotations = &writes[0]["metadata"]["annotations"];
    let of = &annotations["pod-reloader.cs.sap.com/kept-object"];
    assert_eq!(of, "app/uid-2/5", "as it is, and not as reviews say");
}

#[tokio::test]
async fn what_somebody_else_has_put_in_the_place_does_not_count_as_stored() {
    let cluster = Cluster::healthy().with("keep");
    let object = reference("app");
    let original = Original::from(&Protected {
        object: object.clone(),
        uid: "uid-2".into(),
        resource_version: "5".into(),
    });
    let place = stored(&object, &original, now()).name.to_string();
    let theirs = json!({
        "metadata": {
            "name": place, "namespace": "ns", "uid": "u", "resourceVersion": "8",
            "labels": {"pod-reloader.cs.sap.com/kept": "stored"},
            "annotations": {
                "pod-reloader.cs.sap.com/kept-object": "app/uid-2/5",
                "pod-reloader.cs.sap.com/seal": "0".repeat(32),
            },
            "managedFields": [{"manager": "pod-reloader"}],
        },
        "immutable": true,
    });
    cluster.others.lock().insert(place, theirs);
    let (reason, _) = cluster.reviews("keep", false, &json!({})).await;
    let reason = reason.unwrap();
    assert!(reason.contains("cannot store it now"), "{reason}");
    assert!(cluster.writes.lock().is_empty());
}

#[tokio::test]
async fn what_somebody_puts_in_the_place_meanwhile_counts_only_if_another_review_has_stored_it() {
    let review = Cluster::healthy();
    assert_eq!(review.deletes("keep", false).await, None);
    let ours = review.others.lock().values().next().cloned().unwrap();
    let mut theirs = ours.clone();
    theirs["metadata"]["managedFields"] = json!([{"manager": "kubectl"}]);
    for (faster, is_stored) in [(ours, true), (theirs, false)] {
        let cluster = Cluster {
            faster: Some(faster),
            ..Cluster::healthy()
        };
        let reason = cluster.deletes("keep", false).await;
        assert_eq!(reason.is_none(), is_stored, "{reason:?}");
        assert!(cluster.writes.lock().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn neither_an_answer_nor_the_log_has_the_words_of_the_apiserver() {
    let log = Log::begin();
    for (method, path) in [
        (METADATA, "/configmaps/app"),
        ("GET", "/pods"),
        ("GET", "/configmaps/app"),
        ("POST", "/configmaps"),
    ] {
        for does in [Does::Refuses, Does::Fails] {
            for protection in ["in-use", "keep"] {
                let cluster = Cluster::new(method, path, does);
                let reason = cluster.deletes(protection, false).await;
                let reason = reason.unwrap_or_default();
                assert!(!reason.contains(QUOTED), "{path}: {reason}");
            }
        }
    }
    let log = log.text();
    assert!(log.contains("unavailable"), "{log}");
    assert!(!log.contains(QUOTED), "{log}");
}

fn review(operation: &str, object: &Value) -> Value {
    let mut review = create(object);
    let request = &mut review["request"];
    request["kind"] = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    request["operation"] = json!(operation);
    request["oldObject"] = object.clone();
    review
}
