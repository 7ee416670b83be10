//! Serves probes and metrics, on ports of their own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::response::IntoResponse;
use axum::routing::get;
use http::{StatusCode, header};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::time::Instant;
use webhook_certs::CurrentCertificate;

use crate::error::Error;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::pulse::Pulse;

/// Whether calls should be sent here.
pub(crate) struct Readiness {
    /// The webhook's certificate, where a webhook is served.
    pub(crate) certificate: Option<CurrentCertificate>,
    /// The apiserver was told to trust it, if that is for us to do.
    pub(crate) is_trusted: Arc<AtomicBool>,
    /// The keys of the config hash.
    pub(crate) keys: Arc<Keys>,
    /// The user that we are to the apiserver.
    pub(crate) ourselves: Arc<OnceLock<String>>,
    /// Set once we are about to stop.
    pub(crate) stopping: AtomicBool,
    /// Whether the reconcile loop turns, where it runs.
    pub(crate) pulse: Arc<Pulse>,
}

impl Readiness {
    /// What keeps us from being ready, if anything does.
    fn obstacle(&self, now: SystemTime) -> Option<&'static str> {
        if self.stopping.load(Ordering::Relaxed) {
            return Some("stopping");
        }
        if self.keys.keyring().is_none() {
            return Some("the hash keys have not been read");
        }
        if self.ourselves.get().is_none() {
            return Some("the apiserver has not told who we are");
        }
        let certificate = match &self.certificate {
            None => return None,
            Some(current) => current.current(),
        };
        match certificate {
            None => Some("there is no serving certificate"),
            Some(certificate) if certificate.not_after() <= now => {
                Some("the serving certificate has expired")
            }
            Some(certificate) if certificate.not_before() > now => {
                Some("the serving certificate is not valid yet")
            }
            Some(_) if !self.is_trusted.load(Ordering::Relaxed) => {
                Some("the webhook configuration has not been seen with our CA")
            }
            Some(_) => None,
        }
    }
}

/// The routes of the probes.
pub(crate) fn probes(readiness: Arc<Readiness>) -> Router {
    let pulse = readiness.pulse.clone();
    // An apiserver that is down is no reason to restart us: it would help nobody.
    let alive = move || async move {
        match pulse.is_stuck() {
            false => (StatusCode::OK, "ok"),
            true => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the reconcile loop is stuck",
            ),
        }
    };
    let ready = move || async move {
        match readiness.obstacle(SystemTime::now()) {
            None => (StatusCode::OK, "ok"),
            Some(obstacle) => (StatusCode::SERVICE_UNAVAILABLE, obstacle),
        }
    };
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
}

/// The route of the metrics.
pub(crate) fn metrics(metrics: Metrics) -> Router {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let rendered = Arc::new(Rendered::new(move || metrics.text()));
    let text = move || async move {
        ([(header::CONTENT_TYPE, OPEN_METRICS)], rendered.text()).into_response()
    };
    Router::new().route("/metrics", get(text))
}

/// A text that is rendered for all who ask for it within a moment: it takes the thread of webhook, Lease
/// and probes, however many ask.
struct Rendered<F> {
    render: F,
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl<F: Fn() -> String> Rendered<F> {
    fn new(render: F) -> Self {
        Self {
            render,
            last: Mutex::default(),
        }
    }

    fn text(&self) -> Bytes {
        let mut last = self.last.lock();
        match &*last {
            Some((at, text)) if at.elapsed() < FRESH => text.clone(),
            _ => {
                let text = Bytes::from((self.render)());
                *last = Some((Instant::now(), text.clone()));
                text
            }
        }
    }
}

/// Listens on `address`.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address)
        .await
        .map_err(|source| Error::Listen { address, source })
}

/// How long a text that was rendered is the answer: rendering takes some milliseconds at worst, and so a
/// few hundredths of a processor.
const FRESH: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
