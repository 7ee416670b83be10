//! Tells the time in the type that the rules take, by the clock that tests stop.

use tokio::time::Instant;

/// Returns the time.
pub(crate) fn now() -> std::time::Instant {
    Instant::now().into_std()
}
