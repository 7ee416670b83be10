//! Tests which certificates of a directory are used, and what readiness and metrics show.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use tempfile::TempDir;
use tokio::time::Instant;
use tower::ServiceExt;
use webhook_certs::testing::write_pair;

use super::*;
use crate::live::keys::Keys;
use crate::mock;
use crate::runtime::admin::probes;
use crate::webhook::readiness::Readiness;

const HOUR: Duration = Duration::from_secs(60 * 60);

#[tokio::test(start_paused = true)]
async fn readiness_and_the_metric_report_a_certificate_that_serves_nobody() {
    let mounted = Mounted::new().await;
    let now = SystemTime::now();
    assert_eq!(mounted.readiness().await, "there is no serving certificate");
    for (from, until, readiness) in [
        (now - HOUR, now + HOUR, "ok"),
        (
            now - 2 * HOUR,
            now - HOUR,
            "the serving certificate has expired",
        ),
        (
            now + HOUR,
            now + 2 * HOUR,
            "the serving certificate is not valid yet",
        ),
        (now - HOUR, now + 2 * HOUR, "ok"),
    ] {
        write_pair(mounted.directory.path(), "webhook.test.svc", from, until);
        tokio::time::sleep(INTERVAL + MISSING_INTERVAL).await;
        assert_eq!(mounted.readiness().await, readiness);
        assert_eq!(mounted.not_after(), seconds(until));
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_pair_leaves_the_last_good_one_in_force_and_readiness_unchanged() {
    let mounted = Mounted::new().await;
    let until = SystemTime::now() + HOUR;
    write_pair(
        mounted.directory.path(),
        "webhook.test.svc",
        SystemTime::now(),
        until,
    );
    tokio::time::sleep(INTERVAL).await;
    for (file, broken) in [
        ("tls.crt", ""),
        ("tls.key", "rubbish"),
        ("tls.crt", "rubbish"),
    ] {
        std::fs::write(mounted.directory.path().join(file), broken).unwrap();
        tokio::time::sleep(INTERVAL).await;
        assert_eq!(mounted.readiness().await, "ok");
        assert_eq!(mounted.not_after(), seconds(until));
    }
}

/// A directory whose certificate is in use.
struct Mounted {
    directory: TempDir,
    readiness: Arc<Readiness>,
    metrics: Metrics,
}

impl Mounted {
    async fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let (certificate, metrics) = (CurrentCertificate::new(), Metrics::new());
        let files = CertificateDirectory::new(Path::new(directory.path()));
        tokio::spawn(reload(files, certificate.clone(), metrics.clone()));
        let readiness = Readiness {
            certificate: Some(certificate),
            is_trusted: Arc::new(AtomicBool::new(true)),
            keys: keys().await,
            ourselves: Arc::default(),
            stopping: AtomicBool::new(false),
        };
        readiness.ourselves.get_or_init(String::new);
        Self {
            directory,
            readiness: Arc::new(readiness),
            metrics,
        }
    }

    /// Returns the answer of `/readyz`.
    async fn readiness(&self) -> String {
        let request = Request::get("/readyz").body(Body::empty()).unwrap();
        let Ok(answer) = {
            let readiness = self.readiness.clone();
            let obstacle = move || readiness.obstacle(SystemTime::now());
            probes(Arc::default(), obstacle).oneshot(request)
        }
        .await;
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    /// Returns the value of the metric.
    fn not_after(&self) -> String {
        let text = self.metrics.text();
        let name = "pod_reloader_webhook_certificate_not_after_seconds ";
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.expect("the metric").to_owned()
    }
}

/// Returns keys that have been read.
async fn keys() -> Arc<Keys> {
    let client = mock::client(|_, _| async { Ok(mock::keys_secret()) });
    let name = mock::name("operator");
    let keys = Arc::new(Keys::new(client, &name, &name));
    keys.read_since(Instant::now()).await.unwrap();
    keys
}

fn seconds(time: SystemTime) -> String {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    format!("{}.0", since_1970.as_secs())
}
