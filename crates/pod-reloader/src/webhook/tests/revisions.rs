//! Reviews that ask for the revisions of their workload: whatever the list brings, the hash still gets there in time.

use super::*;
use crate::mock;

/// The answer to a list of ReplicaSets.
#[derive(Clone, Copy, PartialEq)]
enum Lists {
    /// One ReplicaSet of nobody.
    One,
    /// One, and a token for more.
    Many,
    /// An error.
    Refused,
    Nothing,
}

/// Returns a Deployment with a selector, as every real one has.
fn selecting(image: &str) -> Value {
    let mut object = deployment(image);
    object["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    object
}

async fn webhook(lists: Lists) -> Router {
    let client = mock::client(move |head, _| async move {
        let path = head.uri.path();
        if path.ends_with("/secrets/hash-keys") {
            return Ok(keys_secret());
        }
        if path.ends_with("/configmaps/app") {
            return Ok(config_map());
        }
        if !path.ends_with("/replicasets") {
            return Err((404, "NotFound"));
        }
        let query = head.uri.query().unwrap_or_default().to_owned();
        assert!(query.contains("labelSelector=app%3Dweb"), "{query}");
        let template = deployment("app:1")["spec"]["template"].clone();
        let metadata = json!({"name": "web-1", "namespace": "ns", "uid": "rs"});
        let replica_set = json!({"metadata": metadata, "spec": {"template": template}});
        match lists {
            Lists::Refused => Err((403, "Forbidden")),
            Lists::Nothing => std::future::pending().await,
            Lists::One | Lists::Many => {
                let more = if lists == Lists::Many { "more" } else { "" };
                let metadata = json!({"resourceVersion": "9", "continue": more});
                Ok(json!({"metadata": metadata, "items": [replica_set]}))
            }
        }
    });
    let (webhook, keys) = parts_of(client, Scope::new([], own_namespace()));
    keys.read_since(Instant::now()).await.unwrap();
    webhook.router(SwitchedOn::default())
}

/// Returns the workload as it is stored after a review that may take three seconds.
async fn stored(lists: Lists, review: &Value) -> Value {
    let began = Instant::now();
    let request = post("/mutate?timeout=3s", &review.to_string());
    let answer = call(&webhook(lists).await, request).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert!(began.elapsed() < Duration::from_secs(3));
    patched(&answer.json(), &review["request"]["object"])
}

#[tokio::test(start_paused = true)]
async fn a_new_workload_takes_over_pods_only_if_all_revisions_are_known() {
    let review = create(&selecting("app:1"));
    let after = stored(Lists::One, &review).await;
    assert_eq!(after["spec"], review["request"]["object"]["spec"]);
    let baseline = &after["metadata"]["annotations"]["pod-reloader.cs.sap.com/baseline"];
    assert_eq!(*baseline, json!(format!("={}", hash())));
    for lists in [Lists::Many, Lists::Refused, Lists::Nothing] {
        let expected = stamped(selecting("app:1"), &hash());
        assert_eq!(stored(lists, &review).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_undo_keeps_the_settings_if_the_revisions_are_not_known() {
    const HOLD: &str = "pod-reloader.cs.sap.com/hold";
    let mut now = stamped(selecting("app:2"), &hash());
    now["metadata"]["annotations"][HOLD] = json!("true");
    let mut review = update(&now, &selecting("app:1"));
    // As kubectl rollout undo, it names no field manager.
    review["request"]["options"] = json!({"kind": "UpdateOptions"});
    for lists in [Lists::Many, Lists::Refused, Lists::Nothing] {
        let after = stored(lists, &review).await;
        assert_eq!(after["metadata"]["annotations"][HOLD], "true");
        let annotations = &after["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(annotations[KEY], hash());
    }
    // Nobody's ReplicaSet is no revision of this one, so it is no undo.
    let after = stored(Lists::One, &review).await;
    assert_eq!(after["metadata"]["annotations"][HOLD], Value::Null);
}
