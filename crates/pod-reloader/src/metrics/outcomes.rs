//! The outcomes by which notifications and reloads are counted.

use crate::runtime::counted::Label;

/// The fate of a message, or of news that should have been in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The receiver has accepted the message.
    Sent,
    /// The receiver has not accepted the message, and will not get it again.
    Failed,
    /// The news never got into a message.
    Dropped,
}

impl Label for Delivery {
    const NAME: &'static str = "outcome";
    const ALL: &'static [Self] = &[Self::Sent, Self::Failed, Self::Dropped];

    fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

/// The outcome of a round of reloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReloadOutcome {
    /// All pods have reloaded.
    Reloaded,
    /// One of them has not, so they are restarted.
    Failed,
}

impl Label for ReloadOutcome {
    const NAME: &'static str = "outcome";
    const ALL: &'static [Self] = &[Self::Reloaded, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Reloaded => "reloaded",
            Self::Failed => "failed",
        }
    }
}
