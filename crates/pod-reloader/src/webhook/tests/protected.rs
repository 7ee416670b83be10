//! The deletion of a protected object: what cannot be found out, or cannot be stored, is not deleted.

use parking_lot::Mutex;

use super::in_use::InUse;
use super::keep::Keep;
use super::*;
use crate::config::kept::KeptCalls;
use crate::config::users::Users;
use crate::mock::{self, Answer};

/// What the apiserver does with one request.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Refuses,
    Fails,
    Nothing,
    /// It sends something that is no such object.
    SendsRubbish,
}

/// An apiserver with ConfigMap `app`, and pod `web` that uses it. It answers as usual, but for the request with this
/// method at this path.
#[derive(Clone)]
struct Cluster {
    broken: (&'static str, &'static str, Does),
    resource_version: &'static str,
    writes: Arc<Mutex<Vec<Value>>>,
}

impl Cluster {
    fn new(method: &'static str, path: &'static str, does: Does) -> Self {
        Self {
            broken: (method, path, does),
            resource_version: "5",
            writes: Arc::default(),
        }
    }

    fn router(&self) -> Router {
        let this = self.clone();
        let client = mock::client(move |head, body| {
            let this = this.clone();
            async move {
                let (method, path, does) = this.broken;
                let is_broken = head.method == method && head.uri.path().ends_with(path);
                match does {
                    Does::Refuses if is_broken => Err((403, "Forbidden")),
                    Does::Fails if is_broken => Err((500, "InternalError")),
                    Does::Nothing if is_broken => std::future::pending().await,
                    Does::SendsRubbish if is_broken => {
                        Ok(json!({"metadata": {"resourceVersion": "9"},
                        "items": [{"metadata": {"name": "web"}, "spec": "none"}]}))
                    }
                    _ => this.answer(&head.method, head.uri.path(), &body),
                }
            }
        });
        let (webhook, _keys) = parts_of(client.clone(), Scope::new([], own_namespace()));
        let budget = Budget::new();
        let users = Users::new(client.clone(), budget.clone());
        let in_use = InUse {
            users: users.clone(),
            templates_protect: false,
        };
        let calls = KeptCalls::new(client, budget);
        webhook.router(SwitchedOn {
            in_use: Some(in_use),
            keep: Some(Keep { users, calls }),
            ..SwitchedOn::default()
        })
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Answer {
        if method == Method::POST {
            let written: Value = serde_json::from_slice(body).unwrap();
            self.writes.lock().push(written.clone());
            return Ok(written);
        }
        if path.ends_with("/configmaps/app") {
            let mut object = config_map();
            object["metadata"]["resourceVersion"] = json!(self.resource_version);
            return Ok(object);
        }
        let env_from = json!([{"configMapRef": {"name": "app"}}]);
        let pod =
            json!({"metadata": {"name": "web"}, "spec": {"containers": [{"envFrom": env_from}]}});
        let pods = path.ends_with("/pods").then_some(pod);
        let items: Vec<_> = pods.into_iter().collect();
        Ok(json!({"metadata": {"resourceVersion": "9"}, "items": items}))
    }

    /// Deletes ConfigMap `app`, which has this protection. Returns the reason why it is not deleted.
    async fn deletes(&self, protection: &str, dry_run: bool) -> Option<String> {
        let mut object = config_map();
        object["metadata"]["labels"] = json!({"pod-reloader.github.io/protect": protection});
        let mut review = review("DELETE", &object);
        review["request"]["dryRun"] = json!(dry_run);
        let path = format!("/{protection}?timeout=3s");
        let answer = call(&self.router(), post(&path, &review.to_string())).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let response = &answer.json()["response"];
        let message = response["status"]["message"].as_str().map(str::to_owned);
        assert_eq!(response["allowed"], message.is_none(), "{response}");
        message
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_be_in_use_is_not_deleted() {
    let healthy = Cluster::new("GET", "nowhere", Does::Nothing);
    let reason = healthy.deletes("in-use", false).await.unwrap();
    assert!(reason.contains("is in use by Pod web."), "{reason}");
    for path in ["/pods", "/deployments", "/cronjobs"] {
        for does in [
            Does::Refuses,
            Does::Fails,
            Does::Nothing,
            Does::SendsRubbish,
        ] {
            let cluster = Cluster::new("GET", path, does);
            for protection in ["in-use", "keep"] {
                let reason = cluster.deletes(protection, false).await.unwrap();
                let expected = "cannot tell who uses ConfigMap ns/app, so it is not deleted";
                assert!(reason.contains(expected), "{path} {protection}: {reason}");
            }
            assert!(cluster.writes.lock().is_empty());
        }
    }
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
    let mut changed = Cluster::new("GET", "nowhere", Does::Nothing);
    changed.resource_version = "6";
    assert!(changed.deletes("keep", false).await.is_some());
    assert!(changed.writes.lock().is_empty());
}

#[tokio::test]
async fn what_is_in_use_is_stored_before_it_goes_but_not_in_a_dry_run() {
    let cluster = Cluster::new("GET", "nowhere", Does::Nothing);
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
    let cluster = Cluster::new("GET", "", Does::Nothing);
    let router = cluster.router();
    let update = review("UPDATE", &config_map());
    for path in ["/in-use", "/keep"] {
        let answer = call(&router, post(path, &update.to_string())).await;
        assert_eq!(answer.json()["response"]["allowed"], true);
        let rubbish = call(&router, post(path, "{}")).await;
        assert_eq!(rubbish.status, StatusCode::BAD_REQUEST);
    }
}

fn review(operation: &str, object: &Value) -> Value {
    let mut review = create(object);
    let request = &mut review["request"];
    request["kind"] = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    request["operation"] = json!(operation);
    request["oldObject"] = object.clone();
    review
}
