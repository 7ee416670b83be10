//! Tests reviews of every shape at the router, with an apiserver that is a function.

mod fields;
mod pins;
mod protected;
mod revisions;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use http::{Method, Request as HttpRequest, Response as HttpResponse, StatusCode};
use http_body_util::{BodyExt, Full};
use json_patch::Patch;
use k8s_openapi::ByteString;
use kube::Client;
use pod_reloader_core::digest::{Aspects, ConfigObject, Contents, Objects, Presence};
use pod_reloader_core::gate::digits;
use pod_reloader_core::name::Name;
use pod_reloader_core::sync_status::{Report, SyncStatus};
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn};

use super::body::*;
use super::*;
use crate::live::reads::Reader;
use crate::mock::{keys, keys_secret, name, reference};
use crate::runtime::budget::{BYTES, Budget};

const KEY: &str = "pod-reloader.cs.sap.com/config-hash";
const CONFIG_MAPS: &str = "pod-reloader.cs.sap.com/configmaps";

/// The state of the apiserver, apart from the hash keys, which it always has.
#[derive(Clone, Copy)]
enum Apiserver {
    /// A working apiserver that has ConfigMap `app`, and nothing else.
    Up,
    /// An apiserver that does not answer.
    Slow,
    /// An apiserver that answers with an error.
    Down,
}

#[tokio::test]
async fn a_create_gets_the_hash_and_preserves_fields_of_the_future() {
    let mut object = of_the_future(deployment("app:1"));
    let answer = reviewed(&webhook(Apiserver::Up).await, &create(&object)).await;
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], "review-1");
    assert_eq!(answer["response"]["allowed"], true);
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    let patched = patched(&answer, &object);
    // Only this is new.
    object["spec"]["template"]["metadata"]["annotations"] = json!({KEY: hash()});
    assert_eq!(patched, object);
}

#[tokio::test]
async fn a_template_of_any_shape_gets_exactly_the_annotation() {
    let router = webhook(Apiserver::Up).await;
    for metadata in [
        None,
        Some(json!(null)),
        Some(json!({})),
        Some(json!({"annotations": null})),
        Some(json!({"annotations": {}})),
        Some(json!({"annotations": {"a/b~c": "1"}, "future": [1]})),
    ] {
        let mut object = of_the_future(deployment("app:1"));
        let template = object["spec"]["template"].as_object_mut().unwrap();
        template.remove("metadata");
        if let Some(metadata) = &metadata {
            template.insert("metadata".to_owned(), metadata.clone());
        }
        let answer = reviewed(&router, &create(&object)).await;
        let operations = operations(&answer);
        assert!(
            operations.iter().all(|operation| operation["op"] == "add"),
            "{operations:?}"
        );
        let patched = patched(&answer, &object);
        object["spec"]["template"]["metadata"]["annotations"][KEY] = json!(hash());
        assert_eq!(patched, object, "{metadata:?}");
    }
}

#[tokio::test]
async fn an_update_that_leaves_the_template_alone_is_left_alone() {
    let router = webhook(Apiserver::Down).await;
    let object = of_the_future(stamped(deployment("app:1"), &hash()));
    let mut new = object.clone();
    new["spec"]["replicas"] = json!(5);
    new["spec"]["fieldOfTheFuture"] = json!({"b": 2});
    let answer = reviewed(&router, &update(&object, &new)).await;
    assert_eq!(answer["response"]["uid"], "review-1");
    assert_eq!(answer["response"]["allowed"], true);
    assert_eq!(operations(&answer), Vec::<Value>::new());
}

#[tokio::test]
async fn a_field_of_the_future_in_the_pod_spec_is_a_change_of_the_template() {
    let old = stamped(deployment("app:1"), "v1.01234567.rubbish");
    let new = of_the_future(old.clone());
    let answer = reviewed(&webhook(Apiserver::Up).await, &update(&old, &new)).await;
    let patched = patched(&answer, &new);
    assert_eq!(patched, stamped(new, &hash()));
}

#[tokio::test]
async fn a_status_query_is_answered_and_changes_nothing() {
    let router = webhook(Apiserver::Up).await;
    let content = format!("; content {}", digits(&hash()));
    for (object, sync_status, content) in [
        (stamped(deployment("app:1"), &hash()), "current", ""),
        (
            deployment("app:1"),
            "restart due for the first hash",
            &*content,
        ),
    ] {
        let mut review = update(&object, &object);
        review["request"]["dryRun"] = json!(true);
        review["request"]["options"] = json!({"fieldManager": "pod-reloader-status-query"});
        let answer = reviewed(&router, &review).await;
        assert_eq!(operations(&answer), [] as [Value; 0]);
        let version = env!("CARGO_PKG_VERSION");
        let told = format!("pod-reloader: status: {sync_status}; version {version}{content}; data");
        let [warning] = &answer["response"]["warnings"].as_array().unwrap()[..] else {
            panic!("{answer}")
        };
        assert!(warning.as_str().unwrap().starts_with(&told), "{warning}");
        let report = reported(&answer);
        assert!(report.observed_at.is_some());
        assert_eq!((report.leads, report.waits_for), (false, None));
    }
}

/// Returns the report in the answer to a status query.
fn reported(answer: &Value) -> Report {
    let report = answer["response"]["warnings"][0].as_str().unwrap();
    report.parse().unwrap()
}

#[tokio::test]
async fn a_status_query_is_told_what_the_workload_shows_of_its_wait() {
    let router = webhook(Apiserver::Up).await;
    let mut object = deployment("app:1");
    object["metadata"]["annotations"]["pod-reloader.cs.sap.com/hold"] = json!("true");
    let report = reported(&reviewed(&router, &status_query(&object)).await);
    let waiting = report.waits_for.unwrap();
    assert_eq!(waiting.reason, "RestartPending");
    assert!(!waiting.message.is_empty());
    let current = stamped(object, &hash());
    let report = reported(&reviewed(&router, &status_query(&current)).await);
    assert_eq!(report.sync_status, SyncStatus::Current);
    assert_eq!(report.waits_for, None);
}

/// Returns a dry run that asks for the sync status of the workload.
fn status_query(object: &Value) -> Value {
    let mut review = update(object, object);
    review["request"]["dryRun"] = json!(true);
    review["request"]["options"] = json!({"fieldManager": "pod-reloader-status-query"});
    review
}

#[tokio::test]
async fn a_status_query_whose_turn_comes_too_late_gets_no_status_and_delays_no_review() {
    let (webhook, keys) = parts(Apiserver::Up);
    keys.read_since(Instant::now()).await.unwrap();
    let status_queries = webhook.limits.status_queries.clone();
    let router = webhook.router(SwitchedOn::default());
    let object = stamped(deployment("app:1"), &hash());
    let asks = || post("/mutate?timeout=1s", &status_query(&object).to_string());
    let turn = status_queries.acquire_owned().await.unwrap();
    let mut asked = std::pin::pin!(call(&router, asks()));
    let write = async { reviewed(&router, &create(&deployment("app:1"))).await };
    tokio::select! {
        biased;
        answer = &mut asked => panic!("it is not its turn: {}", answer.text()),
        answer = write => assert!(!operations(&answer).is_empty()),
    }
    let told = asked.await.json();
    let is_told = |told: &Value, sync_status| {
        told["response"]["warnings"]
            .to_string()
            .contains(sync_status)
    };
    assert!(is_told(&told, "status: unknown"), "{told}");
    drop(turn);
    let told = call(&router, asks()).await.json();
    assert!(is_told(&told, "status: current"), "{told}");
}

/// Each of these dry runs used to block the thread of the webhook, the Lease and the probes for 15 seconds.
#[tokio::test]
async fn reviews_are_answered_while_the_worst_dry_runs_are_under_way() {
    let router = webhook(Apiserver::Up).await;
    let key_id = hash().split('.').nth(1).unwrap().to_owned();
    let other = format!("v1.{key_id}.{}", "0".repeat(64));
    let worst = |keys: usize| {
        let keys: Vec<_> = (0..keys).map(|n| n.to_string()).collect();
        let x: Vec<_> = (1..=255).map(|n| format!("x{n}")).collect();
        let volume =
            |name: &String| json!({"name": name, "configMap": {"name": name, "optional": true}});
        let mut object = stamped(deployment("app:1"), &other);
        object["metadata"]["annotations"] = json!({
            CONFIG_MAPS: format!("app[{}],{}", keys.join(","), x.join(",")),
            "pod-reloader.cs.sap.com/restart-on": "needed",
        });
        let spec = &mut object["spec"]["template"]["spec"];
        spec["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "app"}}]);
        spec["volumes"] = x.iter().map(volume).collect();
        post("/mutate?timeout=30s", &status_query(&object).to_string())
    };
    let dry_runs = [4_000, 35_000, 600_000].map(|keys| {
        let request = worst(keys);
        let router = router.clone();
        tokio::spawn(async move { call(&router, request).await })
    });
    let mut answered = 0;
    while dry_runs.iter().any(|it| !it.is_finished()) {
        let answer = reviewed(&router, &create(&deployment("app:1"))).await;
        assert!(!operations(&answer).is_empty());
        answered += 1;
    }
    assert!(answered > 0);
    let told = futures::future::join_all(dry_runs).await.into_iter();
    let told: Vec<_> = told
        .map(|told| told.unwrap().json()["response"]["warnings"][0].to_string())
        .collect();
    assert!(told[0].contains("restart due for a change"), "{told:?}");
    // The whole object is tracked instead of its keys.
    assert!(told[1].contains("restart due for a change"), "{told:?}");
    // The apiserver refuses so many annotations, whatever we answer.
    assert!(told[2].contains("not managed"), "{told:?}");
}

#[tokio::test]
async fn a_misspelt_annotation_is_answered_with_a_warning_and_without_a_read() {
    let mut object = of_the_future(deployment("app:1"));
    object["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/config-maps": "app"});
    let answer = reviewed(&webhook(Apiserver::Down).await, &create(&object)).await;
    let warning = "pod-reloader: unknown annotation pod-reloader.cs.sap.com/config-maps; \
                   did you mean pod-reloader.cs.sap.com/configmaps?";
    assert_eq!(
        answer["response"],
        json!({"uid": "review-1", "allowed": true, "warnings": [warning]})
    );
}

#[tokio::test]
async fn a_body_that_is_not_a_review_is_refused() {
    let router = webhook(Apiserver::Up).await;
    let object = deployment("app:1");
    let without = |member: &str| {
        let mut review = create(&object);
        review["request"].as_object_mut().unwrap().remove(member);
        review.to_string()
    };
    let with = |member: &str, value: Value| {
        let mut review = create(&object);
        review["request"][member] = value;
        review.to_string()
    };
    let mut beta = create(&object);
    beta["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let whole = create(&object).to_string();
    for body in [
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        "{\"request\":".to_owned(),
        whole[..whole.len() - 1].to_owned(),
        format!("{whole}{whole}"),
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string(),
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": null})
            .to_string(),
        beta.to_string(),
        without("uid"),
        with("uid", json!("")),
        with("uid", json!(7)),
        without("object"),
        with("object", Value::Null),
        with("object", json!("Deployment")),
        with(
            "object",
            json!({"metadata": {"annotations": {CONFIG_MAPS: 1}}}),
        ),
        with("operation", json!("UPDATE")),
        without("kind"),
        "[".repeat(100_000),
        "\u{0}".to_owned(),
    ] {
        let answer = call(&router, post("/mutate", &body)).await;
        assert_eq!(
            answer.status,
            StatusCode::BAD_REQUEST,
            "{}: {}",
            &body[..body.len().min(200)],
            answer.text()
        );
    }
    let whole_answer = call(&router, post("/mutate", &whole)).await;
    assert_eq!(whole_answer.status, StatusCode::OK, "it goes on");
}

#[tokio::test]
async fn bytes_that_are_not_text_are_refused() {
    let router = webhook(Apiserver::Up).await;
    let request = HttpRequest::post("/mutate").header("content-type", "application/json");
    let answer = call(&router, request.body(Body::from(vec![0xff; 64])).unwrap()).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_refusal_quotes_nothing_of_the_review() {
    let router = webhook(Apiserver::Up).await;
    let body = create(&json!({"data": {"password": "hunter2"}})).to_string() + "hunter2";
    let answer = call(&router, post("/mutate", &body)).await;
    assert!(answer.status.is_client_error());
    assert!(!answer.text().contains("hunter2"), "{}", answer.text());
}

#[tokio::test]
async fn other_content_types_methods_and_paths_are_refused() {
    let router = webhook(Apiserver::Up).await;
    let body = create(&deployment("app:1")).to_string();
    for content_type in [None, Some("text/plain"), Some("application/yaml"), Some("")] {
        let mut request = post("/mutate", &body);
        request.headers_mut().remove(header::CONTENT_TYPE);
        if let Some(content_type) = content_type {
            let value = content_type.parse().unwrap();
            request.headers_mut().insert(header::CONTENT_TYPE, value);
        }
        let answer = call(&router, request).await;
        assert_eq!(
            answer.status,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "{content_type:?}"
        );
    }
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let mut request = post("/mutate", &body);
        *request.method_mut() = method.clone();
        let answer = call(&router, request).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method}");
    }
    let elsewhere = call(&router, post("/validate", &body)).await;
    assert_eq!(elsewhere.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_content_type_may_name_its_charset() {
    let mut request = post("/mutate", &create(&deployment("app:1")).to_string());
    let value = "application/json; charset=utf-8".parse().unwrap();
    request.headers_mut().insert(header::CONTENT_TYPE, value);
    let answer = call(&webhook(Apiserver::Up).await, request).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn a_review_of_17_megabytes_is_answered() {
    let mut old = stamped(deployment("app:1"), &hash());
    old["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "LARGE", "value": "x".repeat(8_400_000)}]);
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"team": "blue"});
    let review = update(&old, &new);
    assert!(review.to_string().len() > 16_800_000);
    let answer = reviewed(&webhook(Apiserver::Up).await, &review).await;
    assert_eq!(operations(&answer), Vec::<Value>::new());
}

#[tokio::test]
async fn a_review_that_announces_more_than_32_mebibytes_is_refused_unread() {
    let mut request = post("/mutate", "");
    *request.body_mut() = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let length = (MAX_REVIEW + 1).into();
    request.headers_mut().insert(header::CONTENT_LENGTH, length);
    let answer = call(&webhook(Apiserver::Up).await, request).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn an_unannounced_review_of_more_than_32_mebibytes_is_refused() {
    let chunk = Bytes::from(vec![b' '; 1 << 20]);
    let chunks = stream::iter((0..33).map(move |_| Ok::<_, Infallible>(chunk.clone())));
    let mut request = post("/mutate", "");
    *request.body_mut() = Body::from_stream(chunks);
    let answer = call(&webhook(Apiserver::Up).await, request).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn an_unannounced_review_is_answered() {
    let body = create(&deployment("app:1")).to_string();
    let pieces: Vec<_> = body
        .as_bytes()
        .chunks(100)
        .map(|piece| Ok::<_, Infallible>(Bytes::copy_from_slice(piece)))
        .collect();
    let mut request = post("/mutate", "");
    *request.body_mut() = Body::from_stream(stream::iter(pieces));
    let answer = call(&webhook(Apiserver::Up).await, request).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused() {
    let pieces = [Ok(Bytes::from("{")), Err(std::io::Error::other("reset"))];
    let mut request = post("/mutate", "");
    *request.body_mut() = Body::from_stream(stream::iter(pieces));
    let answer = call(&webhook(Apiserver::Up).await, request).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_review_that_comes_before_the_hash_keys_are_read_waits_for_them() {
    let (webhook, keys) = parts(Apiserver::Up);
    let request = post("/mutate", &create(&deployment("app:1")).to_string());
    let mut waiting = begun([webhook.router(SwitchedOn::default()).oneshot(request)].into_iter());
    keys.read_since(Instant::now()).await.unwrap();
    let answer = waiting.remove(0).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn without_hash_keys_a_review_is_asked_to_come_again_before_its_timeout() {
    let began = Instant::now();
    let (webhook, _) = parts(Apiserver::Up);
    let review = create(&deployment("app:1")).to_string();
    let answer = call(
        &webhook.router(SwitchedOn::default()),
        post("/mutate?timeout=3s", &review),
    )
    .await;
    assert!(answer.says_later(), "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn reads_end_within_the_timeout_and_the_hash_stays() {
    let router = webhook(Apiserver::Slow).await;
    let old = stamped(deployment("app:1"), &hash());
    let new = deployment("app:2");
    for (timeout, longest) in [("1s", 1), ("3s", 3), ("1m0s", 30)] {
        let began = Instant::now();
        let body = update(&old, &new).to_string();
        let answer = call(&router, post(&format!("/mutate?timeout={timeout}"), &body)).await;
        assert!(began.elapsed() < Duration::from_secs(longest), "{timeout}");
        assert_eq!(answer.status, StatusCode::OK);
        let patched = patched(&answer.json(), &new);
        assert_eq!(patched, stamped(new.clone(), &hash()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_cannot_be_read_is_the_usual_one() {
    let router = webhook(Apiserver::Slow).await;
    let body = create(&deployment("app:1")).to_string();
    for query in ["", "?timeout=", "?timeout=soon", "?timeout=-1s", "?other=1"] {
        let began = Instant::now();
        let answer = call(&router, post(&format!("/mutate{query}"), &body)).await;
        assert_eq!(answer.status, StatusCode::OK, "{query}");
        assert!(began.elapsed() < DEFAULT_TIMEOUT, "{query}");
        assert_eq!(
            operations(&answer.json()),
            Vec::<Value>::new(),
            "it goes without a hash"
        );
    }
}

#[tokio::test]
async fn an_apiserver_in_trouble_leaves_the_hash_unchanged() {
    let old = stamped(deployment("app:1"), &hash());
    let new = stamped(deployment("app:2"), "stale");
    let answer = reviewed(&webhook(Apiserver::Down).await, &update(&old, &new)).await;
    assert_eq!(patched(&answer, &new), stamped(new, &hash()));
    let warnings = answer["response"]["warnings"].to_string();
    assert!(warnings.contains("remove"), "{warnings}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_ends_within_the_timeout() {
    let began = Instant::now();
    let router = webhook(Apiserver::Up).await;
    let mut request = post("/mutate?timeout=3s", "");
    *request.body_mut() = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
    let answer = call(&router, request).await;
    assert_eq!(answer.status, StatusCode::REQUEST_TIMEOUT);
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn too_many_reviews_at_once_are_asked_to_come_again() {
    let router = webhook(Apiserver::Slow).await;
    let create = create(&deployment("app:1")).to_string();
    let review = || post("/mutate", &create);
    let waiting = begun((0..REVIEWS_AT_ONCE).map(|_| router.clone().oneshot(review())));
    let answer = call(&router, review()).await;
    assert!(answer.says_later(), "{answer:?}");
    drop(waiting);
    begun([router.clone().oneshot(review())].into_iter());
}

#[tokio::test]
async fn bodies_that_do_not_arrive_keep_nobody_out() {
    let router = webhook(Apiserver::Up).await;
    let slow = |announced: bool| {
        let mut request = post("/mutate", "");
        *request.body_mut() = Body::from_stream(begin_of_a_body(1));
        if announced {
            let length = MAX_REVIEW.into();
            request.headers_mut().insert(header::CONTENT_LENGTH, length);
        }
        request
    };
    let calls = (0..4 * REVIEWS_AT_ONCE).map(|number| slow(number % 2 == 0));
    let _waiting = begun(calls.map(|request| router.clone().oneshot(request)));
    let answer = call(
        &router,
        post("/mutate", &create(&deployment("app:1")).to_string()),
    )
    .await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn large_reviews_that_do_not_fit_are_asked_to_come_again_and_small_ones_fit() {
    let router = webhook(Apiserver::Up).await;
    let begin = |length| {
        let mut request = post("/mutate", "");
        *request.body_mut() = Body::from_stream(begin_of_a_body(length));
        router.clone().oneshot(request)
    };
    // With what becomes of them.
    let rest = (BYTES - RESERVED_FOR_OTHERS) / WEIGHT - MAX_REVIEW;
    let waiting = begun([MAX_REVIEW, rest].map(begin).into_iter());
    let mut large = post("/mutate", "");
    *large.body_mut() = Body::from_stream(begin_of_a_body(LARGE_REVIEW + 1));
    let answer = call(&router, large).await;
    assert!(answer.says_later(), "{answer:?}");
    let review = post("/mutate", &create(&deployment("app:1")).to_string());
    assert_eq!(call(&router, review).await.status, StatusCode::OK);
    drop(waiting);
    begun([begin(MAX_REVIEW)].into_iter());
}

#[tokio::test]
async fn a_review_that_waits_for_reads_holds_no_bytes() {
    let router = webhook(Apiserver::Slow).await;
    let mut object = deployment("app:1");
    object["spec"]["fieldOfTheFuture"] = json!("x".repeat(LARGE_REVIEW - 10_000));
    let review = create(&object).to_string();
    let reviews = (0..100).map(|_| router.clone().oneshot(post("/mutate", &review)));
    let _waiting = begun(reviews);
}

#[tokio::test]
async fn a_new_pod_uses_the_copies_that_its_annotation_names() {
    let router = webhook(Apiserver::Down).await;
    let mut pod = of_the_future(pod("app=app-0123456789"));
    let answer = pods_answer(&router, &create_pod(&pod)).await;
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["response"]["uid"], "review-1");
    assert_eq!(answer["response"]["allowed"], true);
    let patched = patched(&answer, &pod);
    pod["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"] = json!("app-0123456789");
    assert_eq!(patched, pod);
}

#[tokio::test]
async fn a_pod_that_cannot_be_pinned_is_allowed_as_it_is() {
    let router = webhook(Apiserver::Down).await;
    for pins in [
        "",
        "garbage",
        "app=app-0123456789,app=app-9876543210",
        "app=app-0123456789,garbage",
        "app=prod-db",
        "other=other-0123456789",
    ] {
        let answer = pods_answer(&router, &create_pod(&pod(pins))).await;
        let allowed = json!({"uid": "review-1", "allowed": true});
        assert_eq!(answer["response"], allowed, "{pins}");
    }
}

#[tokio::test]
async fn only_new_pods_are_pinned() {
    let router = webhook(Apiserver::Down).await;
    let whole = create_pod(&pod("app=app-0123456789"));
    assert!(!operations(&pods_answer(&router, &whole).await).is_empty());
    for (member, value) in [
        ("operation", json!("UPDATE")),
        ("subResource", json!("ephemeralcontainers")),
        ("kind", json!({"group": "apps", "kind": "Deployment"})),
        ("kind", json!({"group": "example.com", "kind": "Pod"})),
    ] {
        let mut review = whole.clone();
        review["request"][member] = value;
        let answer = pods_answer(&router, &review).await;
        assert_eq!(operations(&answer), [] as [Value; 0], "{member}");
    }
}

#[tokio::test]
async fn pods_are_answered_before_the_hash_keys_are_read() {
    let (webhook, _keys) = parts(Apiserver::Slow);
    let answer = pods_answer(
        &webhook.router(SwitchedOn::default()),
        &create_pod(&pod("app=app-0123456789")),
    )
    .await;
    assert!(!operations(&answer).is_empty());
}

#[tokio::test]
async fn a_large_pod_is_answered_too() {
    let mut pod = pod("app=app-0123456789");
    let variables = json!([{"name": "LARGE", "value": "x".repeat(2 * LARGE_REVIEW)}]);
    pod["spec"]["containers"][0]["env"] = variables;
    let answer = pods_answer(&webhook(Apiserver::Down).await, &create_pod(&pod)).await;
    assert_eq!(operations(&answer).len(), 1);
}

#[tokio::test]
async fn what_is_no_review_of_a_pod_is_refused() {
    let router = webhook(Apiserver::Up).await;
    let mut without_object = create_pod(&Value::Null);
    let request = without_object["request"].as_object_mut().unwrap();
    request.remove("object");
    for body in ["", "{}", "[]", "{\"request\":", &without_object.to_string()] {
        let answer = call(&router, post("/pods", body)).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
    }
    let mut text = post("/pods", &create_pod(&pod("app=app-0123456789")).to_string());
    text.headers_mut().remove(header::CONTENT_TYPE);
    let answer = call(&router, text).await;
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let got = HttpRequest::get("/pods").body(Body::empty()).unwrap();
    let answer = call(&router, got).await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    let mut large = post("/pods", "");
    let length = (MAX_REVIEW + 1).into();
    large.headers_mut().insert(header::CONTENT_LENGTH, length);
    let answer = call(&router, large).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn reviews_of_workloads_and_of_pods_share_their_limits() {
    let router = webhook(Apiserver::Slow).await;
    let create = create(&deployment("app:1")).to_string();
    let review = || router.clone().oneshot(post("/mutate", &create));
    let waiting = begun((0..REVIEWS_AT_ONCE).map(|_| review()));
    let pod = create_pod(&pod("app=app-0123456789")).to_string();
    let answer = call(&router, post("/pods", &pod)).await;
    assert!(answer.says_later(), "{answer:?}");
    drop(waiting);
    let answer = call(&router, post("/pods", &pod)).await;
    assert_eq!(answer.status, StatusCode::OK);
}

/// Returns a body that brings so many bytes, and then neither more nor its end.
fn begin_of_a_body(length: usize) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::iter([Ok(Bytes::from(vec![b' '; length]))]).chain(stream::pending())
}

fn deployment(image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "web",
            "namespace": "ns",
            "uid": "uid-1",
            "annotations": {CONFIG_MAPS: "app, absent"},
        },
        "spec": {"template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": image}]},
        }},
    })
}

/// Returns a pod that reads ConfigMap `app`.
fn pod(pins: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-1", "annotations": {"pod-reloader.cs.sap.com/pins": pins}},
        "spec": {"containers": [
            {"name": "main", "image": "app:1", "envFrom": [{"configMapRef": {"name": "app"}}]},
        ]},
    })
}

fn stamped(mut object: Value, hash: &str) -> Value {
    object["spec"]["template"]["metadata"]["annotations"][KEY] = json!(hash);
    object
}

/// Adds fields that no Kubernetes has yet, at every level.
fn of_the_future(mut object: Value) -> Value {
    let future = json!({"z": [1, {"a": null}], "n": 1.5e300, "b": 12345678901234567890_u64});
    for path in [
        "",
        "/metadata",
        "/spec",
        "/spec/template",
        "/spec/template/metadata",
        "/spec/template/spec",
        "/spec/template/spec/containers/0",
    ] {
        if let Some(place) = object.pointer_mut(path) {
            place["fieldOfTheFuture"] = future.clone();
        }
    }
    object
}

fn create(object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "fieldOfTheFuture": {"a": 1},
        "request": {
            "uid": "review-1",
            "kind": {"group": "apps", "version": "v1", "kind": "Deployment", "future": 1},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "name": "web",
            "namespace": "ns",
            "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters"], "future": 1},
            "object": object,
            "oldObject": null,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "fieldManager": "kubectl", "future": [1]},
            "fieldOfTheFuture": [1],
        },
    })
}

fn create_pod(pod: &Value) -> Value {
    let mut review = create(pod);
    review["request"]["kind"] = json!({"group": "", "version": "v1", "kind": "Pod"});
    review
}

fn update(old: &Value, new: &Value) -> Value {
    let mut review = create(new);
    review["request"]["operation"] = json!("UPDATE");
    review["request"]["oldObject"] = old.clone();
    review
}

/// Returns the config hash of [`deployment`] from the objects of the apiserver.
fn hash() -> String {
    let app = ConfigObject::parse(config_map().to_string().as_bytes(), Aspects::default()).unwrap();
    let objects = Objects::from([
        (reference("app"), Presence::Present(app)),
        (reference("absent"), Presence::Absent),
    ]);
    keys().hash(&Contents::whole(&objects)).to_string()
}

fn config_map() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "app", "namespace": "ns", "uid": "uid-2", "resourceVersion": "5"},
        "data": {"key": "1"},
    })
}

/// Returns a webhook that is ready.
async fn webhook(apiserver: Apiserver) -> Router {
    let (webhook, keys) = parts(apiserver);
    keys.read_since(Instant::now()).await.unwrap();
    webhook.router(SwitchedOn::default())
}

fn parts(apiserver: Apiserver) -> (Webhook, Arc<Keys>) {
    parts_of(client(apiserver), Scope::new([], own_namespace()))
}

fn own_namespace() -> Name {
    Name::parse("operator").unwrap()
}

fn parts_of(client: Client, scope: Scope) -> (Webhook, Arc<Keys>) {
    let operator = own_namespace();
    let secret = Name::parse("hash-keys").unwrap();
    let keys = Arc::new(Keys::new(client.clone(), &operator, &secret));
    let (budget, metrics) = (Budget::new(), Metrics::new());
    let source = Source::new(
        client,
        Duration::from_secs(60),
        budget.clone(),
        &scope,
        metrics.config_reads.by(Reader::Admission),
    );
    let webhook = Webhook {
        scope,
        keys: keys.clone(),
        source,
        metrics,
        ourselves: Arc::default(),
        certificate: CurrentCertificate::new(),
        first_stamp: FirstStamp::Rollout,
        loop_status: LoopStatus::default(),
        limits: Limits::new(budget),
    };
    (webhook, keys)
}

fn client(apiserver: Apiserver) -> Client {
    let service = service_fn(move |request: HttpRequest<kube::client::Body>| async move {
        let path = request.uri().path();
        let (status, body) = match (path, apiserver) {
            ("/api/v1/namespaces/operator/secrets/hash-keys", _) => (StatusCode::OK, keys_secret()),
            ("/api/v1/namespaces/ns/configmaps/app", Apiserver::Up) => {
                (StatusCode::OK, config_map())
            }
            ("/api/v1/namespaces/ns/configmaps/absent", Apiserver::Up) => failure(404, "NotFound"),
            (path, Apiserver::Up) if path.starts_with("/api/v1/namespaces/ns/configmaps/x") => {
                failure(404, "NotFound")
            }
            (_, Apiserver::Slow) => std::future::pending().await,
            (_, Apiserver::Down) => failure(500, "InternalError"),
            (_, Apiserver::Up) => panic!("nobody asks for {path}"),
        };
        let answer = HttpResponse::builder().status(status);
        let body = Full::new(Bytes::from(body.to_string()));
        Ok::<_, Infallible>(answer.body(body).unwrap())
    });
    Client::new(service, "operator")
}

fn failure(code: u16, reason: &str) -> (StatusCode, Value) {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "as the test asks for",
        "reason": reason, "code": code,
    });
    (StatusCode::from_u16(code).unwrap(), status)
}

fn post(uri: &str, body: &str) -> HttpRequest<Body> {
    let request = HttpRequest::post(uri).header("content-type", "application/json");
    request.body(Body::from(body.to_owned())).unwrap()
}

#[derive(Debug)]
struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answered {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", self.text()))
    }

    /// Returns true for an answer that the apiserver tries again: it must say when.
    fn says_later(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE && self.headers[header::RETRY_AFTER] == "1"
    }
}

async fn call(router: &Router, request: HttpRequest<Body>) -> Answered {
    let Ok(response) = router.clone().oneshot(request).await;
    let (head, body) = response.into_parts();
    Answered {
        status: head.status,
        headers: head.headers,
        body: body.collect().await.unwrap().to_bytes(),
    }
}

/// Begins calls that get as far as they can, and then wait. Dropping them ends them.
fn begun<F: Future>(calls: impl Iterator<Item = F>) -> Vec<Pin<Box<F>>> {
    let mut context = Context::from_waker(Waker::noop());
    let mut calls: Vec<_> = calls.map(Box::pin).collect();
    for call in &mut calls {
        assert!(call.as_mut().poll(&mut context).is_pending());
    }
    calls
}

/// Returns the answer to a review, and panics if there is none.
async fn reviewed(router: &Router, review: &Value) -> Value {
    let mut request = post("/mutate?timeout=3s", &review.to_string());
    let length = review.to_string().len().into();
    request.headers_mut().insert(header::CONTENT_LENGTH, length);
    let answer = call(router, request).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/json");
    answer.json()
}

/// Returns the answer to a review of a pod, and panics if there is none.
async fn pods_answer(router: &Router, review: &Value) -> Value {
    let answer = call(router, post("/pods?timeout=3s", &review.to_string())).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()
}

/// Returns the JSON Patch of an answer, as sent over the wire.
fn operations(answer: &Value) -> Vec<Value> {
    match &answer["response"]["patch"] {
        Value::Null => Vec::new(),
        patch => {
            let patch: ByteString = serde_json::from_value(patch.clone()).unwrap();
            serde_json::from_slice(&patch.0).unwrap()
        }
    }
}

/// Returns `object` as the apiserver changes it according to the answer.
fn patched(answer: &Value, object: &Value) -> Value {
    let patch: Patch = serde_json::from_value(Value::Array(operations(answer))).unwrap();
    let mut object = object.clone();
    json_patch::patch(&mut object, &patch).unwrap();
    object
}
