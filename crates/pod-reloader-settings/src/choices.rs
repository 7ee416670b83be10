//! Choices: the values of flags that take one word of a few.

use clap::ValueEnum;
use pod_reloader_core::decision::FirstStamp;

/// The mode of the reconcile loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reconcile {
    /// Restart workloads.
    Restart,
    /// Report in Events and metrics what would be restarted.
    Observe,
    /// Do not run the loop, only the webhook.
    #[value(name = "none")]
    Nothing,
}

/// A controller: a part of the operator that works while its replica leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ControllerName {
    /// Restarts workloads.
    Restart,
    /// Brings ConfigMaps back that are deleted while they are in use.
    Keep,
    /// Copies ConfigMaps and Secrets to namespaces.
    Sync,
    /// Keeps fields of custom resources equal to keys.
    Bind,
}

impl ControllerName {
    /// Returns the name in the flag, in the log, and in the label `controller` of metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Keep => "keep",
            Self::Sync => "sync",
            Self::Bind => "bind",
        }
    }

    /// Returns true if the chart has the writer run it, and not the operator.
    pub fn runs_in_writer(self) -> bool {
        match self {
            Self::Restart | Self::Keep => false,
            Self::Sync | Self::Bind => true,
        }
    }
}

/// [`FirstStamp`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FirstStampArg {
    /// Set the config hash, which restarts the pods once.
    Rollout,
    /// Write a baseline of the current state: the first change causes the first restart.
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
    /// Problems, which have a Warning as their Event: restarts that wait or fail.
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
