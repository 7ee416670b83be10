//! Since when clients have been told to trust a CA bundle.

use std::time::{Duration, Instant};

/// How long clients take to follow. An apiserver knows of a change in a webhook configuration within
/// about a second; one whose watch has broken waits up to a minute before it lists again.
pub const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// Since when clients have been told to trust a CA bundle, as far as one replica has seen.
#[derive(Debug, Default)]
pub struct Publication(Option<(Vec<u8>, Instant)>);

impl Publication {
    /// Notes that clients were told to trust this bundle and no other.
    pub fn saw(&mut self, bundle: &[u8], now: Instant) {
        if !matches!(&self.0, Some((seen, _)) if seen == bundle) {
            self.0 = Some((bundle.to_owned(), now));
        }
    }

    /// Notes that clients are told something else, or that nobody knows.
    pub fn lost(&mut self) {
        self.0 = None;
    }

    /// Whether every client has had the time to follow.
    pub fn is_settled(&self, bundle: &[u8], now: Instant) -> bool {
        self.0
            .as_ref()
            .is_some_and(|(seen, since)| seen == bundle && now - *since >= SETTLED_AFTER)
    }
}
