//! Serves probes and metrics, on ports of their own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::response::IntoResponse;
use axum::routing::get;
use http::{StatusCode, header};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::error::StartError;
use crate::heartbeat::Heartbeat;

/// Returns the routes of the probes. `obstacle` names the reason why this replica should get no calls, if
/// any.
pub fn probes(
    heartbeat: Arc<Heartbeat>,
    obstacle: impl Fn() -> Option<&'static str> + Clone + Send + Sync + 'static,
) -> Router {
    // Restarting because the apiserver is down would help nobody, so liveness does not depend on it.
    let alive = move || async move {
        match heartbeat.is_stuck() {
            false => (StatusCode::OK, "ok"),
            true => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the reconcile loop is stuck",
            ),
        }
    };
    let ready = move || async move {
        match obstacle() {
            None => (StatusCode::OK, "ok"),
            Some(obstacle) => (StatusCode::SERVICE_UNAVAILABLE, obstacle),
        }
    };
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
}

/// Returns the route of the metrics, which answers with `text`.
pub fn metrics(text: impl Fn() -> String + Send + Sync + 'static) -> Router {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let rendered = Arc::new(Rendered::new(text));
    let text = move || async move {
        ([(header::CONTENT_TYPE, OPEN_METRICS)], rendered.text()).into_response()
    };
    Router::new().route("/metrics", get(text))
}

/// A text that is rendered once for everyone who asks within [`FRESH`]. Rendering uses the thread of the
/// webhook, the Lease and the probes, so its cost must not grow with the number of requests.
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
pub async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })
}

/// The time for which a rendered text is served again. Rendering takes some milliseconds at worst, so it
/// costs a few hundredths of a processor at most.
const FRESH: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
