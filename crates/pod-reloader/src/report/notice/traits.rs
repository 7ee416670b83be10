//! What notices mean to those who look after many workloads: a table.

use pod_reloader_core::gate::Closed;
use pod_reloader_core::workload::Stall;
use prometheus_client::metrics::gauge::Gauge;

use super::Notice;
use crate::metrics::HeldUp;

/// What a notice means, apart from its text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// True if something keeps the workload from the state that its users want.
    pub(crate) is_problem: bool,
    /// True if a restart that is due waits for what the notice says.
    pub(super) waits: bool,
    /// The gauge that counts the workload as long as this is its last notice.
    pub(crate) gauge: Option<InHeldUp>,
    /// What a notification says of it. `None` if only the users of the workload need to know.
    pub(crate) headline: Option<Headline>,
}

/// A gauge among those of workloads that are held up.
type InHeldUp = fn(&HeldUp) -> &Gauge;

/// The words of a notification, apart from names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headline {
    /// The beginning of a line.
    pub(crate) heading: &'static str,
    /// The statement about the objects.
    pub(crate) predicate: &'static str,
}

impl Notice {
    /// Returns what the notice means. Restarts have counters of their own. What is not counted is a single event, or has a
    /// gauge of its own.
    pub(crate) fn traits(&self) -> Traits {
        match self {
            Self::Restarted(..) => QUIET.headed("Restarted", "changed"),
            Self::Reloaded(..) => QUIET.headed("Reloaded without a restart", "changed"),
            Self::ReloadFailed(_) => {
                PROBLEM.headed("Restarted, its pods could not reload changed config", "")
            }
            Self::WouldRestart(..) => {
                QUIET.headed("Would be restarted (--reconcile=observe)", "changed")
            }
            Self::Stalled(_, _, Stall::Paused) => {
                PROBLEM.headed("Paused, not restarted until resumed", "changed")
            }
            Self::Stalled(_, _, Stall::OnDelete) => {
                PROBLEM.headed("OnDelete, each pod is restarted when deleted", "changed")
            }
            Self::MissingConfig(_) => PROBLEM
                .waiting()
                .headed("Not restarted, pods could not start", "missing")
                .counted(|it| &it.missing_config),
            Self::Braked(_) => PROBLEM
                .waiting()
                .headed("Restarted too often, the next restart waits", "")
                .counted(|it| &it.braked),
            Self::Reverted => PROBLEM
                .waiting()
                .headed(
                    "Config hash reverted again and again, the next restart waits",
                    "",
                )
                .counted(|it| &it.reverted),
            Self::Rejected(_) => PROBLEM.headed("Items of its lists are not valid names", ""),
            Self::Unreadable(..) => PROBLEM
                .waiting()
                .headed("Unknown whether its config changed", "cannot be read")
                .counted(|it| &it.unreadable),
            Self::AwaitsTogether(..) => QUIET.waiting().counted(|it| &it.together),
            Self::AwaitsRelease(_) | Self::AwaitsStage(_) | Self::AwaitsSlot(_) => QUIET.waiting(),
            Self::ReleaseUnfinished(_)
            | Self::TogetherTimedOut(_)
            | Self::OutsideWindow(..)
            | Self::Unstuck(_)
            | Self::Undone(_)
            | Self::SettingsKept(_) => QUIET,
            Self::CopiesAreLarge(_) => PROBLEM,
            Self::PutBack => PROBLEM.headed(
                "Not healthy with the changed config, the old one was put back",
                "",
            ),
            Self::NotPutBack(_) => PROBLEM.headed(
                "Not healthy with the changed config, which could not be put back",
                "",
            ),
            Self::NotCopied(_) => PROBLEM.headed("Restarted without copies of its config", ""),
            Self::CopyLost(_) => PROBLEM.headed("A copy of its config is gone", ""),
            Self::PodsNotPinned(_) => {
                PROBLEM.headed("Pods do not use the copies of its config", "")
            }
            Self::Gated(Closed::NotApproved(_)) => QUIET
                .waiting()
                .headed("Not restarted, waits for approval", "")
                .counted(|it| &it.gated),
            Self::Gated(Closed::NoWindow) => QUIET
                .waiting()
                .headed("Not restarted, its restart window is not valid", "")
                .counted(|it| &it.gated),
            Self::Gated(
                Closed::Held | Closed::HeldByNamespace | Closed::HeldBy(_) | Closed::Until(_),
            ) => QUIET.waiting().counted(|it| &it.gated),
            Self::Halted(_) => PROBLEM
                .waiting()
                .headed(
                    "Not restarted, another one failed with the changed config",
                    "",
                )
                .counted(|it| &it.halted),
            Self::FailedFirst => PROBLEM
                .headed("Not healthy with the changed config, others wait", "")
                .counted(|it| &it.halted),
            Self::NotRun(_) => {
                PROBLEM.headed("Config changed, but the CronJob could not be run", "")
            }
            Self::Refused(_) => PROBLEM
                .waiting()
                .headed("Not restarted, the apiserver refuses the config hash", "")
                .counted(|it| &it.refused),
            Self::NamespaceTooLarge(_) => {
                PROBLEM.headed("Not managed, its namespace has no room left for it", "")
            }
        }
    }
}

/// A notice that only the users of the workload need to know.
const QUIET: Traits = Traits {
    is_problem: false,
    waits: false,
    gauge: None,
    headline: None,
};
const PROBLEM: Traits = Traits {
    is_problem: true,
    ..QUIET
};

impl Traits {
    fn waiting(self) -> Self {
        Self {
            waits: true,
            ..self
        }
    }

    fn headed(self, heading: &'static str, predicate: &'static str) -> Self {
        let headline = Some(Headline { heading, predicate });
        Self { headline, ..self }
    }

    fn counted(self, gauge: InHeldUp) -> Self {
        let gauge = Some(gauge);
        Self { gauge, ..self }
    }
}
