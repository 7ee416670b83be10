//! Bodies of reviews, and the limits within which they are received and answered: the same for every route.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::runtime::budget::{Budget, Share};

/// The longest review that is read, in bytes: an object of 1.4 MB makes one of 16.8 MB.
pub(super) const MAX_REVIEW: usize = 32 << 20;
/// Most reviews are no longer than this, in bytes.
pub(super) const SMALL_REVIEW: usize = 64 << 10;
/// A review of more bytes waits for its turn, and keeps no thread of the runtime from the others.
pub(super) const LARGE_REVIEW: usize = 256 << 10;
/// So many bytes of the budget are not for large reviews.
pub(super) const KEPT_FOR_OTHERS: usize = 8 << 20;
/// How many reviews are answered at once.
pub(super) const REVIEWS_AT_ONCE: usize = 256;
/// How long a body may take to arrive: as long as it does it takes room from others.
pub(super) const MAX_ARRIVAL: Duration = Duration::from_secs(10);
/// The apiserver's own default, for a call that names none.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of the timeout is left to the way back, at least; on a busy machine that is a tenth.
pub(super) const MARGIN: Duration = Duration::from_millis(200);

/// The limits of all reviews together, whichever route they come by.
pub(super) struct Limits {
    reviews: Semaphore,
    /// What is made of a review takes memory too: one large one is looked at at a time.
    pub(super) large_reviews: Arc<Semaphore>,
    /// What the loop would do takes longer to tell than what to answer: one at a time is asked for.
    pub(super) inquiries: Arc<Semaphore>,
    budget: Budget,
}

impl Limits {
    /// Limits whose bodies count against `budget`.
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            reviews: Semaphore::new(REVIEWS_AT_ONCE),
            large_reviews: Arc::new(Semaphore::new(1)),
            inquiries: Arc::new(Semaphore::new(1)),
            budget,
        }
    }

    /// Receives a review, and its turn to be answered.
    ///
    /// # Errors
    /// It is no JSON, too large or too slow, or there are too many.
    pub(super) async fn receive(
        &self,
        headers: &HeaderMap,
        body: Body,
        deadline: Instant,
    ) -> Result<(ReviewBody, SemaphorePermit<'_>), Trouble> {
        if !is_json(headers) {
            return Err(Trouble::NotJson);
        }
        let body = self.body(headers, body, deadline).await?;
        let turn = self.reviews.try_acquire();
        Ok((body, turn.map_err(|_| Trouble::Overloaded)?))
    }

    /// Reads the body of a review. It counts against the budget as it comes: what is announced and does
    /// not come keeps nobody out.
    async fn body(
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
            share: self.budget.share(),
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
pub(super) struct ReviewBody {
    pub(super) bytes: Vec<u8>,
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
pub(super) async fn beside<T: Send + 'static>(
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

/// `?timeout=` of a call, as the apiserver gives it: a Go duration, in practice whole seconds.
#[derive(serde::Deserialize)]
pub(super) struct Timeout {
    timeout: Option<String>,
}

impl Timeout {
    /// Returns the time by which the answer has to leave.
    pub(super) fn deadline(&self, now: Instant) -> Instant {
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

/// The reason why a review gets no answer but an HTTP error. The failurePolicy decides then.
#[derive(Debug)]
pub(super) enum Trouble {
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
