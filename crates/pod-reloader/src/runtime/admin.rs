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

use crate::runtime::error::StartError;
use crate::runtime::heartbeat::Heartbeat;

/// The routes of the probes. `obstacle` names the reason why no call should be sent here, if there is one.
pub(crate) fn probes(
    heartbeat: Arc<Heartbeat>,
    obstacle: impl Fn() -> Option<&'static str> + Clone + Send + Sync + 'static,
) -> Router {
    // An apiserver that is down is no reason to restart us: it would help nobody.
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

/// The route of the metrics, of which `text` is the answer.
pub(crate) fn metrics(text: impl Fn() -> String + Send + Sync + 'static) -> Router {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let rendered = Arc::new(Rendered::new(text));
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
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Listen { address, source })
}

/// How long a text that was rendered is the answer: rendering takes some milliseconds at worst, and so a
/// few hundredths of a processor.
const FRESH: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
