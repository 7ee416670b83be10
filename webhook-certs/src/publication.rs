//! Tracks since when clients have been told to trust a CA bundle.

use std::time::{Duration, Instant};

/// Time that clients take to follow. An apiserver notices a change of a webhook configuration within about a
/// second, but after a broken watch it may wait up to a minute before it lists again.
pub const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// The bundle that clients have been told to trust, and since when, as far as one replica has seen.
#[derive(Debug, Default)]
pub struct Publication(Option<(Vec<u8>, Instant)>);

impl Publication {
    /// Records that clients are told to trust this bundle and no other.
    pub fn saw(&mut self, bundle: &[u8], now: Instant) {
        if !matches!(&self.0, Some((seen, _)) if seen == bundle) {
            self.0 = Some((bundle.to_owned(), now));
        }
    }

    /// Records that clients are told something else, or that nobody knows.
    pub fn lost(&mut self) {
        self.0 = None;
    }

    /// Returns true if every client has had the time to follow.
    pub fn is_settled(&self, bundle: &[u8], now: Instant) -> bool {
        self.0
            .as_ref()
            .is_some_and(|(seen, since)| seen == bundle && now - *since >= SETTLED_AFTER)
    }
}
