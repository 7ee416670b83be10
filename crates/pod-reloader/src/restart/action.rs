//! What follows a pass over a workload.

use tokio::time::Instant;

/// The outcome of a pass over a workload.
pub(crate) enum Action {
    /// Wait until something happens.
    AwaitChange,
    /// Make another pass at this time.
    RequeueAt(Instant),
}

impl Action {
    /// Returns the action that is due at this time, if it is due no earlier.
    pub(crate) fn at_latest(self, at: Option<Instant>) -> Self {
        match (self, at) {
            (Self::RequeueAt(next), Some(at)) => Self::RequeueAt(next.min(at)),
            (Self::AwaitChange, Some(at)) => Self::RequeueAt(at),
            (next, None) => next,
        }
    }
}
