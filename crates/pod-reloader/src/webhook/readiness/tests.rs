//! Tests readiness through its probe.

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::time::Instant;
use tower::ServiceExt;

use super::*;
use crate::mock::{self, name};
use crate::runtime::admin::probes;

#[tokio::test]
async fn a_replica_is_ready_once_it_has_read_the_hash_keys() {
    let client = mock::client(async |_, _| Ok(mock::keys_secret()));
    let keys = Arc::new(Keys::new(client, &name("operator"), &name("hash-keys")));
    let readiness = Arc::new(Readiness {
        certificate: None,
        is_trusted: Arc::default(),
        keys: keys.clone(),
        ourselves: Arc::new(OnceLock::from("operator".to_owned())),
        stopping: AtomicBool::new(false),
    });
    let router = probes(Arc::default(), move || {
        readiness.obstacle(SystemTime::now())
    });
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
