//! Choices: the values of flags that take one word of a few.

use clap::ValueEnum;
use pod_reloader_core::decision::FirstStamp;

/// The mode of the reconcile loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reconcile {
    /// It restarts workloads.
    On,
    /// It says in Events and metrics what it would restart.
    Observe,
    /// It does not run: only the webhook does.
    Off,
}

/// [`FirstStamp`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FirstStampArg {
    /// Stamp it, which restarts its pods once.
    Rollout,
    /// Write down what is true now: its first restart is its first change.
    Baseline,
}

impl From<FirstStampArg> for FirstStamp {
    fn from(argument: FirstStampArg) -> Self {
        match argument {
            FirstStampArg::Rollout => Self::Rollout,
            FirstStampArg::Baseline => Self::Baseline,
        }
    }
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text for each event.
    Text,
    /// One JSON object for each event.
    Json,
}

/// The notices that are sent as notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NotifyOn {
    /// Workloads that are restarted; with `--reconcile=observe` those that would be.
    Restarts,
    /// What has a Warning as its Event: changes that wait, or cannot be written.
    Problems,
    /// Both.
    All,
}

/// The form of notifications, named after the receivers that understand it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NotifyFormat {
    /// JSON of our own, for programs: docs/notifications.md describes it.
    Webhook,
    /// Incoming webhooks of Slack, and of Mattermost and Rocket.Chat, which take the same.
    Slack,
    /// Workflows of Microsoft Teams that post what a webhook receives: an Adaptive Card.
    Teams,
    /// Incoming webhooks of Google Chat.
    GoogleChat,
}

/// The oldest version of TLS that the webhook speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.2
    #[value(name = "1.2")]
    Tls12,
    /// TLS 1.3
    #[value(name = "1.3")]
    Tls13,
}
