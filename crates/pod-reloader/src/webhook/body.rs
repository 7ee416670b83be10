//! Receives the bodies of reviews, within limits that are the same for every route.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::Webhook;
use super::error::Trouble;
use crate::runtime::budget::{Budget, Share};

/// The maximum length of a request that an apiserver takes, in bytes.
const MAX_REQUEST: usize = 3 << 20;
/// The maximum length of an object that etcd stores, in bytes, unless it is configured to store larger ones.
const MAX_STORED: usize = 3 << 19;
/// The maximum number of bytes that become of one byte in JSON, as of `<`.
const ESCAPED: usize = 6;
/// The maximum length of a review, in bytes: the object as it was sent, and the one that is stored.
pub(super) const MAX_REVIEW: usize = (MAX_REQUEST + MAX_STORED) * ESCAPED;
/// The memory that a large review takes while it is read, as a multiple of its length: its body, and what is kept of
/// it. `tests/weight.rs` of the rules measures that.
pub(super) const WEIGHT: usize = 2;
/// The length from which on glibc gives every block a mapping of its own, in bytes.
const MAPPED: usize = 32 << 20;
/// The length that most reviews do not exceed, in bytes.
pub(super) const SMALL_REVIEW: usize = 64 << 10;
/// The length above which a review waits for its turn, and is parsed on a thread of its own, in bytes.
pub(super) const LARGE_REVIEW: usize = 256 << 10;
/// The number of bytes of the budget that large reviews leave to others.
pub(super) const RESERVED_FOR_OTHERS: usize = 8 << 20;
/// The maximum number of reviews that are answered at once.
pub(super) const REVIEWS_AT_ONCE: usize = 256;
/// The maximum number of reviews that wait for the revisions of their workloads at once.
pub(super) const SETTLING_AT_ONCE: usize = 64;
/// The maximum time that a body may take to arrive, because it takes room from others all that time.
pub(super) const MAX_ARRIVAL: Duration = Duration::from_secs(10);
/// The apiserver's own default, for a call without a timeout.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// The minimum part of the timeout that is left for the way back. A tenth of the timeout is left if that is
/// more, because the way back takes that long on a busy machine.
pub(super) const MARGIN: Duration = Duration::from_millis(200);

/// The limits of all reviews together, on any route.
pub(crate) struct Limits {
    reviews: Semaphore,
    /// The turns of reviews that wait for the revisions of their workloads.
    pub(super) settling: Semaphore,
    /// The turn of large reviews. Parsing takes memory too, so they are parsed one at a time.
    large_reviews: Arc<Semaphore>,
    /// The turn of status queries. Finding out what the loop would do takes longer than answering a write,
    /// so they are answered one at a time.
    pub(super) status_queries: Arc<Semaphore>,
    budget: Budget,
}

impl Limits {
    /// Returns limits whose bodies are taken from `budget`.
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            reviews: Semaphore::new(REVIEWS_AT_ONCE),
            settling: Semaphore::new(SETTLING_AT_ONCE),
            large_reviews: Arc::new(Semaphore::new(1)),
            status_queries: Arc::new(Semaphore::new(1)),
            budget,
        }
    }

    /// Receives a review, and its turn to be answered.
    ///
    /// # Errors
    ///
    /// Returns an error if the review is not JSON, is too large or too slow, or if there are too many
    /// reviews.
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

    /// Reads the body of a review. Its bytes are taken from the budget as they arrive, so a body that is
    /// announced but does not arrive keeps nobody out.
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
            return Err(Trouble::TooLarge { limit: MAX_REVIEW });
        }
        let mut received = ReviewBody {
            bytes: Vec::new(),
            share: self.budget.share(),
        };
        // The apiserver sends the body at once, however long it waits for the answer.
        let deadline = deadline.min(Instant::now() + MAX_ARRIVAL);
        match timeout_at(deadline, received.fill(body, length)).await {
            Ok(outcome) => outcome.map(|()| received),
            Err(_) => Err(Trouble::Slow),
        }
    }
}

/// A review whose body has arrived.
pub(super) struct Received {
    pub(super) webhook: Arc<Webhook>,
    pub(super) body: Arc<ReviewBody>,
    /// The time by which it needs an answer.
    pub(super) deadline: Instant,
}

impl Received {
    /// Does something with the body. If it is large, it waits for its turn, on a thread of its own.
    ///
    /// # Errors
    ///
    /// Returns [`Trouble::Overloaded`] if it has not been done by the deadline.
    pub(super) async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> Result<T, Trouble> {
        if self.body.bytes.len() <= LARGE_REVIEW {
            return Ok(work(&self.body.bytes));
        }
        let body = self.body.clone();
        let work = move || work(&body.bytes);
        let turns = &self.webhook.limits.large_reviews;
        let worked = beside(turns, self.deadline, work).await;
        worked.ok_or(Trouble::Overloaded)
    }
}

/// The body of a review. Its weight is returned to the budget when it is dropped.
pub(super) struct ReviewBody {
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
                return Err(Trouble::TooLarge { limit: MAX_REVIEW });
            }
            let (weight, rest) = match so_far > LARGE_REVIEW {
                true => (WEIGHT * so_far, RESERVED_FOR_OTHERS),
                false => (so_far, 0),
            };
            let more = weight - self.share.bytes();
            let grown = self.share.grow_leaving(rest, more);
            grown.map_err(|_| Trouble::Overloaded)?;
            if so_far > self.bytes.capacity() {
                self.make_room(so_far)?;
            }
            self.bytes.extend_from_slice(&part);
        }
        Ok(())
    }

    /// Makes room for `length` bytes. A mapping returns to the system when it is dropped. A block without one can
    /// come from a heap, which retains it. Bytes that are never written to take up no memory.
    fn make_room(&mut self, length: usize) -> Result<(), Trouble> {
        let capacity = if length > SMALL_REVIEW {
            MAPPED
        } else {
            SMALL_REVIEW
        };
        let more = capacity - self.bytes.len();
        let reserved = self.bytes.try_reserve_exact(more);
        reserved.map_err(|_| Trouble::Overloaded)
    }
}

/// Waits for a turn, and runs `work` on a thread of its own, so that it delays no other review, probe or
/// renewal of the Lease. Returns `None` if it has not ended by the deadline. It then runs on, and holds its
/// turn until it ends.
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

/// The parameter `?timeout=` of a call, as the apiserver sends it: a Go duration, in practice whole
/// seconds.
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
