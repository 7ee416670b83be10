//! The webhook: answers admission reviews at `/mutate`, from the review and live reads alone.

pub(crate) mod authority;
pub(crate) mod certificate;
pub(crate) mod error;
pub(crate) mod readiness;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use pod_reloader_core::admission::{Answer, Pending, Step, begin};
use pod_reloader_core::decision::FirstStamp;
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::review::{self, InvalidReview, Request};
use pod_reloader_core::scope::Scope;
use pod_reloader_core::standing::{Report, Standing};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, info, warn};
use webhook_certs::CurrentCertificate;

use crate::config::error::ReadError;
use crate::config::keys::Keys;
use crate::config::source::Source;
use crate::metrics::Metrics;
use crate::runtime::budget::{Budget, Share};
use pod_reloader_core::error::chain;

#[cfg(test)]
mod tests;

/// The longest review that is read, in bytes: an object of 1.4 MB makes one of 16.8 MB.
const MAX_REVIEW: usize = 32 << 20;
/// Most reviews are no longer than this, in bytes.
const SMALL_REVIEW: usize = 64 << 10;
/// A review of more bytes waits for its turn, and keeps no thread of the runtime from the others.
const LARGE_REVIEW: usize = 256 << 10;
/// So many bytes of the budget are not for large reviews.
const KEPT_FOR_OTHERS: usize = 8 << 20;
/// How many reviews are answered at once.
const REVIEWS_AT_ONCE: usize = 256;
/// How long a body may take to arrive: as long as it does it takes room from others.
const MAX_ARRIVAL: Duration = Duration::from_secs(10);
/// The apiserver's own default, for a call that names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of the timeout is left to the way back, at least; on a busy machine that is a tenth.
const MARGIN: Duration = Duration::from_millis(200);

/// What reviews are answered from.
pub(crate) struct Webhook {
    pub(crate) scope: Scope,
    pub(crate) keys: Arc<Keys>,
    pub(crate) source: Source,
    pub(crate) metrics: Metrics,
    /// The user that the loop writes as, once the apiserver has told.
    pub(crate) ourselves: Arc<OnceLock<String>>,
    told: Told,
    limits: Limits,
}

/// What is told to who asks, besides how a workload stands.
pub(crate) struct Told {
    /// What the webhook is served with.
    pub(crate) certificate: CurrentCertificate,
    /// What the loop does about a workload that has just subscribed.
    pub(crate) first_stamp: FirstStamp,
}

struct Limits {
    reviews: Semaphore,
    /// What is made of a review takes memory too: one large one is looked at at a time.
    large_reviews: Arc<Semaphore>,
    /// What the loop would do takes longer to tell than what to answer: one at a time is asked for.
    inquiries: Arc<Semaphore>,
    budget: Budget,
}

impl Webhook {
    pub(crate) fn new(
        scope: Scope,
        keys: Arc<Keys>,
        source: Source,
        metrics: Metrics,
        ourselves: Arc<OnceLock<String>>,
        told: Told,
        budget: Budget,
    ) -> Self {
        let limits = Limits {
            reviews: Semaphore::new(REVIEWS_AT_ONCE),
            large_reviews: Arc::new(Semaphore::new(1)),
            inquiries: Arc::new(Semaphore::new(1)),
            budget,
        };
        Self {
            scope,
            keys,
            source,
            metrics,
            ourselves,
            told,
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
    async fn answer(
        self: &Arc<Self>,
        body: ReviewBody,
        deadline: Instant,
    ) -> Result<Response, Trouble> {
        // A Service may send us reviews before we are ready.
        let keys = timeout_at(deadline, self.keys.first_read()).await;
        let keys = keys.map_err(|_| Trouble::NotReady("the hash keys have not been read"))?;
        let Begun {
            uid,
            namespace,
            step,
        } = self.begin(body, keys.clone(), deadline).await?;
        let mut answer = match step {
            Step::Answer(answer) => answer,
            Step::Read(pending) => self.read(pending, keys, deadline).await,
        };
        if let Some(standing) = answer.standing {
            // First: the apiserver cuts off what is too long in all.
            answer.warnings.insert(0, self.report(standing).to_string());
        }
        debug!(uid, namespace, outcome = ?answer.outcome, "answered");
        self.metrics.admission(Some(answer.outcome));
        let body = review::response(&uid, &answer.patch, &answer.warnings);
        Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
    }

    /// What who asks is told.
    fn report(&self, standing: Standing) -> Report {
        let certificate = self.told.certificate.current();
        Report {
            standing,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            not_after: certificate.and_then(|it| Timestamp::try_from(it.not_after()).ok()),
        }
    }

    /// Takes in a review, and gives back what its body took up: reads may have to wait for that.
    async fn begin(
        self: &Arc<Self>,
        body: ReviewBody,
        keys: Arc<Keyring>,
        deadline: Instant,
    ) -> Result<Begun, Trouble> {
        if body.bytes.len() <= LARGE_REVIEW {
            return self.parse(&body, &keys);
        }
        let webhook = self.clone();
        let parse = move || webhook.parse(&body, &keys);
        let parsed = beside(&self.limits.large_reviews, deadline, parse).await;
        parsed.ok_or(Trouble::Overloaded)?
    }

    fn parse(&self, body: &ReviewBody, keys: &Keyring) -> Result<Begun, Trouble> {
        let invalid = |error: InvalidReview| Trouble::Invalid(error.to_string());
        let request = Request::parse(&body.bytes).map_err(invalid)?;
        let ourselves = self.ourselves.get().map_or("", String::as_str);
        let step = begin(&request, &self.scope, keys, ourselves).map_err(invalid)?;
        Ok(Begun {
            uid: request.uid.into_owned(),
            namespace: request.namespace.unwrap_or_default(),
            step,
        })
    }

    /// Reads what the answer depends on. What cannot be read in time is unknown: the loop repairs it.
    async fn read(&self, pending: Box<Pending>, keys: Arc<Keyring>, deadline: Instant) -> Answer {
        let reads = async {
            let keys = match pending.lacks_key(&keys) {
                true => self.keys.read_since(Instant::now()).await?,
                false => keys.clone(),
            };
            let objects = self.source.objects(pending.workload()).await?;
            Ok::<_, ReadError>((objects, keys))
        };
        let first_stamp = self.told.first_stamp;
        match timeout_at(deadline, reads).await {
            Ok(Ok((objects, newest))) if pending.is_inquiry() => {
                let pending = Arc::new(*pending);
                let asked = pending.clone();
                let answer = move || asked.answer(Some(&objects), &newest, first_stamp);
                let answer = beside(&self.limits.inquiries, deadline, answer).await;
                answer.unwrap_or_else(|| pending.answer(None, &keys, first_stamp))
            }
            Ok(Ok((objects, keys))) => pending.answer(Some(&objects), &keys, first_stamp),
            Ok(Err(error)) => {
                warn!(
                    error = chain(&error),
                    "cannot tell the config hash of a workload, the loop will"
                );
                pending.answer(None, &keys, first_stamp)
            }
            Err(_) => {
                warn!("cannot tell the config hash of a workload in time, the loop will");
                pending.answer(None, &keys, first_stamp)
            }
        }
    }

    /// Reads the body of a review. It counts against the budget as it comes: what is announced and does
    /// not come keeps nobody out.
    async fn receive(
        &self,
        headers: &HeaderMap,
        body: Body,
        deadline: Instant,
    ) -> Result<ReviewBody, Trouble> {
        let announced = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        let length: usize = announced.unwrap_or(MAX_REVIEW);
        if length > MAX_REVIEW {
            return Err(Trouble::TooLarge);
        }
        let mut received = ReviewBody {
            bytes: Vec::new(),
            share: self.limits.budget.share(),
        };
        // The apiserver sends it at once, however long it waits for the answer.
        let deadline = deadline.min(Instant::now() + MAX_ARRIVAL);
        match timeout_at(deadline, received.fill(body, length)).await {
            Ok(outcome) => outcome.map(|()| received),
            Err(_) => Err(Trouble::Slow),
        }
    }
}

/// The body of a review, which counts against the budget until it is dropped.
struct ReviewBody {
    bytes: Vec<u8>,
    share: Share,
}

impl ReviewBody {
    async fn fill(&mut self, mut body: Body, length: usize) -> Result<(), Trouble> {
        while let Some(frame) = body.frame().await {
            let broken = |_| Trouble::Invalid("the body broke off".to_owned());
            let Ok(part) = frame.map_err(broken)?.into_data() else {
                continue;
            };
            let so_far = self.bytes.len() + part.len();
            if so_far > length {
                return Err(Trouble::TooLarge);
            }
            let rest = match so_far > LARGE_REVIEW {
                true => KEPT_FOR_OTHERS,
                false => 0,
            };
            let grown = self.share.grow_leaving(rest, part.len());
            grown.map_err(|_| Trouble::Overloaded)?;
            if so_far > self.bytes.capacity() {
                self.make_room(so_far)?;
            }
            self.bytes.extend_from_slice(&part);
        }
        Ok(())
    }

    /// Makes room for `length` bytes. glibc gives every piece of 32 MiB a mapping of its own, which goes
    /// back to the system as it is dropped; a smaller one may come from a heap, which keeps it. What is
    /// not written to takes up nothing.
    fn make_room(&mut self, length: usize) -> Result<(), Trouble> {
        let capacity = if length > SMALL_REVIEW {
            MAX_REVIEW
        } else {
            SMALL_REVIEW
        };
        let more = capacity - self.bytes.len();
        let reserved = self.bytes.try_reserve_exact(more);
        reserved.map_err(|_| Trouble::Overloaded)
    }
}

/// Runs `work` on a thread of its own when its turn has come: it keeps no other review, probe or renewal of
/// the Lease waiting. `None` where it has not ended by the deadline. Then it goes on for nobody, and keeps
/// its turn until it ends.
async fn beside<T: Send + 'static>(
    turns: &Arc<Semaphore>,
    deadline: Instant,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let computed = async {
        let turn = turns.clone().acquire_owned().await;
        let work = move || {
            let _turn = turn;
            work()
        };
        let computed = tokio::task::spawn_blocking(work).await;
        computed.expect("nothing ends it but a panic, which goes on here")
    };
    timeout_at(deadline, computed).await.ok()
}

/// A review, taken in.
struct Begun {
    uid: String,
    namespace: String,
    step: Step,
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
            .unwrap_or(DEFAULT_TIMEOUT)
            .min(Duration::from_secs(30));
        now + timeout.saturating_sub(MARGIN.max(timeout / 10))
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
    let began = Instant::now();
    let deadline = timeout.deadline(began);
    let answer = async {
        if !is_json(&headers) {
            return Err(Trouble::NotJson);
        }
        let body = webhook.receive(&headers, body, deadline).await?;
        let _review = webhook
            .limits
            .reviews
            .try_acquire()
            .map_err(|_| Trouble::Overloaded)?;
        webhook.answer(body, deadline).await
    };
    let answer = answer.await.unwrap_or_else(|trouble| {
        webhook.metrics.admission(None);
        info!(?trouble, "a review got no answer");
        trouble.into_response()
    });
    webhook.metrics.admission_took(began.elapsed());
    answer
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
