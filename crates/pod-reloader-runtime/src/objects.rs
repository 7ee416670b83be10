//! Reads an answer of the apiserver object by object, so that only one object is in memory at a time.

pub(crate) mod cut;

use std::pin::Pin;

use futures::AsyncBufRead;
use futures::io::AsyncBufReadExt;
use kube::api::WatchEvent;
use kube::core::{ListMeta, Status};
use kube::{Client, Resource};
use pod_reloader_core::foreign::Foreign;
use tokio::time::{Instant, timeout_at};

use self::cut::{Cut, Items, Whole};
use crate::budget::{Budget, LONGEST, Turn};
use crate::client::DEADLINE;
use crate::error::CallError;
use pod_reloader_core::error::chain;

/// The maximum number of bytes of an object that is read without a turn, as into the buffer of a
/// connection.
const SHORT: usize = 16 << 10;

/// An answer that is cut into objects as it arrives.
pub(crate) struct Objects<C> {
    answer: Pin<Box<dyn AsyncBufRead + Send>>,
    cut: C,
    budget: Budget,
    /// The part of the current object that has arrived.
    bytes: Vec<u8>,
    /// The turn of the current object, if it is long, and the time by which the rest must have arrived.
    turn: Option<(Turn, Instant)>,
    is_too_long: bool,
}

/// The next part of an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Next<'a> {
    /// An object.
    Object(&'a [u8]),
    /// An object of more than [`LONGEST`] bytes. The bytes were dropped as they arrived.
    TooLong,
    /// The end of the answer. An object that is cut off there is not reported.
    End,
}

/// The content of a watch event.
pub(crate) enum Change<K> {
    /// The object is new, or has changed.
    Seen(K),
    /// The object is gone.
    Gone(K),
    /// Only the resourceVersion has changed.
    None,
}

impl<C: Cut> Objects<C> {
    /// Sends `request` and waits for the head of its answer. Only the head takes up memory.
    ///
    /// The body never goes through the typed calls of the client, because they log bodies that they cannot
    /// read. Nor does it go through the calls that copy it.
    pub(crate) async fn ask(
        client: &Client,
        request: http::Request<Vec<u8>>,
        budget: &Budget,
        cut: C,
    ) -> Result<Self, CallError> {
        Ok(Self {
            answer: Box::pin(client.request_stream(request).await?),
            cut,
            budget: budget.clone(),
            bytes: Vec::new(),
            turn: None,
            is_too_long: false,
        })
    }

    /// Returns the next object. Drops the previous one and its turn.
    pub(crate) async fn next(&mut self) -> Result<Next<'_>, CallError> {
        self.clear();
        loop {
            let part = self.answer.fill_buf();
            let part = match &self.turn {
                None => part.await,
                // Others are waiting for the turn.
                Some((_, until)) => {
                    let part = timeout_at(*until, part).await;
                    part.map_err(|_| CallError::TimedOut(DEADLINE))?
                }
            };
            let part = part.map_err(|error| CallError::Connection(chain(&error)))?;
            if part.is_empty() {
                return Ok(Next::End);
            }
            let piece = self.cut.cut(part);
            let length = self.bytes.len() + piece.object.len();
            if length > LONGEST {
                self.is_too_long = true;
                self.bytes = Vec::new();
            } else if !self.is_too_long {
                if length > SHORT && self.turn.is_none() {
                    let turn = self.budget.turn().await;
                    self.turn = Some((turn, Instant::now() + DEADLINE));
                    // Reserved bytes that are never written to take up no memory.
                    self.bytes.reserve_exact(LONGEST - self.bytes.len());
                }
                self.bytes.extend_from_slice(&part[piece.object]);
            }
            self.answer.as_mut().consume(piece.taken);
            if piece.ends {
                return Ok(match self.is_too_long {
                    true => Next::TooLong,
                    false => Next::Object(&self.bytes),
                });
            }
        }
    }

    fn clear(&mut self) {
        self.is_too_long = false;
        match self.turn.take() {
            None => self.bytes.clear(),
            Some(_) => self.bytes = Vec::new(),
        }
    }
}

/// Reads a list, or a page of one, and passes each item to `each`. Unreadable items are passed on too, with
/// the reason.
///
/// # Errors
///
/// Returns an error if the list could not be read to its end, or is not a list.
pub async fn page<T: Foreign>(
    client: &Client,
    request: http::Request<Vec<u8>>,
    budget: &Budget,
    mut each: impl FnMut(Result<T, CallError>),
) -> Result<ListMeta, CallError> {
    let mut items = Objects::ask(client, request, budget, Items::default()).await?;
    loop {
        match items.next().await? {
            Next::Object(item) => each(parse(item)),
            Next::TooLong => each(Err(CallError::TooLong)),
            Next::End => return items.cut.metadata(),
        }
    }
}

/// Reads an answer that is a single object.
pub async fn one<T: Foreign>(
    client: &Client,
    request: http::Request<Vec<u8>>,
    budget: &Budget,
) -> Result<T, CallError> {
    take_of_one(client, request, budget, parse).await
}

/// Reads an answer that is a single object, and returns what `take` takes of its bytes. These are in memory for no longer.
pub(crate) async fn take_of_one<T>(
    client: &Client,
    request: http::Request<Vec<u8>>,
    budget: &Budget,
    take: impl FnOnce(&[u8]) -> Result<T, CallError>,
) -> Result<T, CallError> {
    let mut answer = Objects::ask(client, request, budget, Whole).await?;
    answer.next().await?;
    match answer.is_too_long {
        true => Err(CallError::TooLong),
        false => take(&answer.bytes),
    }
}

/// Reads a watch event. Returns its resourceVersion, and what has changed.
///
/// # Errors
///
/// Returns an error if the event reports one, or cannot be read.
pub(crate) fn read_event<K: Resource + Foreign>(
    line: &[u8],
) -> Result<(String, Change<K>), CallError> {
    let event = match parse(line) {
        Ok(event) => event,
        // The line can be a Status that is not wrapped in an event.
        Err(error) => WatchEvent::Error(parse::<Box<Status>>(line).map_err(|_| error)?),
    };
    let versioned = |object: K, change: fn(K) -> Change<K>| {
        let version = object.meta().resource_version.clone();
        let version = version.filter(|it| !it.is_empty());
        let version = version.ok_or(CallError::Unreadable)?;
        Ok((version, change(object)))
    };
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => versioned(object, Change::Seen),
        WatchEvent::Deleted(object) => versioned(object, Change::Gone),
        WatchEvent::Bookmark(bookmark) => Ok((bookmark.metadata.resource_version, Change::None)),
        WatchEvent::Error(status) => Err(kube::Error::Api(status).into()),
    }
}

/// Parses an object.
///
/// # Errors
///
/// Returns an error if the bytes are not such an object. The error does not quote them.
fn parse<T: Foreign>(object: &[u8]) -> Result<T, CallError> {
    serde_json::from_slice(object).map_err(|_| CallError::Unreadable)
}

#[cfg(test)]
mod tests;
