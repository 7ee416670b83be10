//! The webhook: answers admission reviews at `/mutate`, from the review and live reads alone.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use pod_reloader_core::admission::{Answer, Pending, Step, begin};
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::review::{self, Request};
use pod_reloader_core::scope::Scope;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info, warn};

use crate::error::chain;
use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::source::Source;

#[cfg(test)]
mod tests;

/// The longest review that is read, in bytes: an object of 1.4 MB makes one of 16.8 MB.
const MAX_REVIEW: usize = 32 << 20;
/// How many bytes of reviews are held at once.
const MAX_REVIEWS: usize = 96 << 20;
/// How many reviews are answered at once.
const REVIEWS_AT_ONCE: usize = 256;
/// The apiserver's own default, for a call that names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of the timeout is left to the way back.
const MARGIN: Duration = Duration::from_millis(200);

/// What reviews are answered from.
pub(crate) struct Webhook {
    pub(crate) scope: Scope,
    pub(crate) keys: Arc<Keys>,
    pub(crate) source: Source,
    pub(crate) metrics: Metrics,
    /// The user that the loop writes as, once the apiserver has told.
    pub(crate) ourselves: Arc<OnceLock<String>>,
    limits: Limits,
}

struct Limits {
    reviews: Semaphore,
    bytes: Semaphore,
}

impl Webhook {
    pub(crate) fn new(
        scope: Scope,
        keys: Arc<Keys>,
        source: Source,
        metrics: Metrics,
        ourselves: Arc<OnceLock<String>>,
    ) -> Self {
        let limits = Limits {
            reviews: Semaphore::new(REVIEWS_AT_ONCE),
            bytes: Semaphore::new(MAX_REVIEWS),
        };
        Self {
            scope,
            keys,
            source,
            metrics,
            ourselves,
            limits,
        }
    }

    /// The routes of the webhook.
    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/mutate", post(mutate))
            .with_state(Arc::new(self))
    }

    /// Answers a review whose body has arrived.
    async fn answer(&self, body: &[u8], deadline: Instant) -> Result<Response, Trouble> {
        let keys = self
            .keys
            .keyring()
            .ok_or(Trouble::NotReady("the hash keys have not been read"))?;
        let request = Request::parse(body).map_err(|error| Trouble::Invalid(error.to_string()))?;
        let ourselves = self.ourselves.get().map_or("", String::as_str);
        let step = begin(&request, &self.scope, &keys, ourselves)
            .map_err(|error| Trouble::Invalid(error.to_string()))?;
        let answer = match step {
            Step::Answer(answer) => answer,
            Step::Read(pending) => self.read(&pending, keys, deadline).await,
        };
        let namespace = request.namespace.as_deref().unwrap_or_default();
        debug!(uid = &*request.uid, namespace, outcome = ?answer.outcome, "answered");
        self.metrics.admission(Some(answer.outcome));
        let body = review::response(&request.uid, &answer.patch, &answer.warnings);
        Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
    }

    /// Reads what the answer depends on. What cannot be read in time is unknown: the loop repairs it.
    async fn read(&self, pending: &Pending, keys: Arc<Keyring>, deadline: Instant) -> Answer {
        let reads = async {
            let keys = match pending.lacks_key(&keys) {
                true => self.keys.read_since(Instant::now()).await?,
                false => keys.clone(),
            };
            Ok::<_, crate::error::Error>((self.source.contents(pending.references()).await?, keys))
        };
        match timeout_at(deadline, reads).await {
            Ok(Ok((contents, keys))) => pending.answer(Some(&contents), &keys),
            Ok(Err(error)) => {
                warn!(
                    error = chain(&error),
                    "cannot tell the config hash of a workload, the loop will"
                );
                pending.answer(None, &keys)
            }
            Err(_) => {
                warn!("cannot tell the config hash of a workload in time, the loop will");
                pending.answer(None, &keys)
            }
        }
    }

    /// Reads the body of a review, which counts against the bytes of all until it is dropped.
    async fn receive(
        &self,
        headers: &HeaderMap,
        body: Body,
        deadline: Instant,
    ) -> Result<(Bytes, SemaphorePermit<'_>), Trouble> {
        let announced = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        let length: usize = announced.unwrap_or(MAX_REVIEW);
        if length > MAX_REVIEW {
            return Err(Trouble::TooLarge);
        }
        let permits = u32::try_from(length).map_err(|_| Trouble::TooLarge)?;
        let permit = self
            .limits
            .bytes
            .try_acquire_many(permits)
            .map_err(|_| Trouble::Overloaded)?;
        let received = timeout_at(deadline, Limited::new(body, length).collect()).await;
        match received {
            Ok(Ok(body)) => Ok((body.to_bytes(), permit)),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err(Trouble::TooLarge)
            }
            Ok(Err(_)) => Err(Trouble::Invalid("the body broke off".to_owned())),
            Err(_) => Err(Trouble::Slow),
        }
    }
}

/// `?timeout=` of a call, as the apiserver gives it: a Go duration, in practice whole seconds.
#[derive(serde::Deserialize)]
struct Timeout {
    timeout: Option<String>,
}

impl Timeout {
    fn deadline(&self, now: Instant) -> Instant {
        let given = self
            .timeout
            .as_deref()
            .and_then(|text| text.parse::<jiff::SignedDuration>().ok());
        let timeout = given
            .and_then(|given| Duration::try_from(given).ok())
            .unwrap_or(DEFAULT_TIMEOUT);
        now + timeout.min(Duration::from_secs(30)).saturating_sub(MARGIN)
    }
}

/// Why a review gets no answer but an HTTP error, which the failurePolicy decides about.
#[derive(Debug)]
enum Trouble {
    Invalid(String),
    NotJson,
    TooLarge,
    Slow,
    Overloaded,
    NotReady(&'static str),
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        // The apiserver tries again after 429 and 503, but only where the answer says when.
        let later = [(header::RETRY_AFTER, "1")];
        match self {
            Self::Invalid(problem) => (StatusCode::BAD_REQUEST, problem).into_response(),
            Self::NotJson => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json").into_response()
            }
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "the review is larger than 32 MiB",
            )
                .into_response(),
            Self::Slow => (
                StatusCode::REQUEST_TIMEOUT,
                "the review did not arrive in time",
            )
                .into_response(),
            Self::Overloaded => (
                StatusCode::SERVICE_UNAVAILABLE,
                later,
                "too many reviews at once",
            )
                .into_response(),
            Self::NotReady(obstacle) => {
                (StatusCode::SERVICE_UNAVAILABLE, later, obstacle).into_response()
            }
        }
    }
}

async fn mutate(
    State(webhook): State<Arc<Webhook>>,
    Query(timeout): Query<Timeout>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let deadline = timeout.deadline(Instant::now());
    let answer = async {
        if !is_json(&headers) {
            return Err(Trouble::NotJson);
        }
        let _review = webhook
            .limits
            .reviews
            .try_acquire()
            .map_err(|_| Trouble::Overloaded)?;
        let (body, _bytes) = webhook.receive(&headers, body, deadline).await?;
        webhook.answer(&body, deadline).await
    };
    answer.await.unwrap_or_else(|trouble| {
        webhook.metrics.admission(None);
        info!(?trouble, "a review got no answer");
        trouble.into_response()
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    content_type.is_some_and(|value| {
        value
            .split(';')
            .next()
            .is_some_and(|kind| kind.trim() == "application/json")
    })
}
