//! Probes and metrics, as their routers answer.

use std::sync::atomic::AtomicUsize;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::ByteString;
use pod_reloader_core::hash::KEY_LENGTH;
use pod_reloader_core::name::Name;
use serde_json::json;
use tower::ServiceExt;

use super::*;
use crate::mock;

#[tokio::test(start_paused = true)]
async fn metrics_that_a_thousand_ask_for_are_rendered_once() {
    let renderings = AtomicUsize::new(0);
    let rendered = Rendered::new(|| renderings.fetch_add(1, Ordering::Relaxed).to_string());
    for _ in 0..1000 {
        assert_eq!(rendered.text(), "0");
    }
    tokio::time::advance(FRESH).await;
    assert_eq!(rendered.text(), "1");
}

#[tokio::test]
async fn a_replica_is_ready_once_it_has_read_the_hash_keys() {
    let client = mock::client(async |_, _| {
        let key = ByteString(vec![7; KEY_LENGTH]);
        Ok(json!({"data": {"20250101T000000Z": key}}))
    });
    let name = |text| Name::parse(text).unwrap();
    let keys = Arc::new(Keys::new(client, &name("operator"), &name("hash-keys")));
    let readiness = Readiness {
        certificate: None,
        is_trusted: Arc::default(),
        keys: keys.clone(),
        ourselves: Arc::new(OnceLock::from("operator".to_owned())),
        stopping: AtomicBool::new(false),
        pulse: Arc::default(),
    };
    let router = probes(Arc::new(readiness));
    let ready = async || {
        let request = Request::get("/readyz").body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    let (status, obstacle) = ready().await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(obstacle, "the hash keys have not been read");
    keys.read_since(Instant::now()).await.unwrap();
    assert_eq!(ready().await.0, StatusCode::OK);
}
