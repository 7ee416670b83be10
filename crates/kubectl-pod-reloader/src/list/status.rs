//! Decides the status of a workload in the list.

use std::fmt;

use pod_reloader_core::gate::Gates;
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::sync_status::{Report, SyncStatus, Waiting};
use serde::{Serialize, Serializer};

use crate::due::{self, HALTED, MISSING_CONFIG};
use crate::events::Event;
use crate::gates;
use crate::rollout::Rollout;
use crate::workloads::Seen;

/// The status of a workload in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListStatus {
    /// The operator says so.
    UpToDate,
    /// The operator says so, or it only observes and has reported it.
    RestartDue,
    MissingConfig,
    Waiting,
    Halted,
    /// The newest Event is a warning with this reason.
    Warning(String),
    RollingOut,
    RolloutStuck,
    OnHold,
    /// It has neither a hash nor a baseline yet.
    New,
    /// Its hash is somebody else's, and there is no baseline yet.
    Foreign,
    TracksNothing,
    /// Its pod template is that of another object.
    NoTemplate,
    /// There is no Event that speaks of anything to wait for.
    NothingReported,
    NotManaged,
    NotKnown,
}

impl fmt::Display for ListStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::UpToDate => "up to date",
            Self::RestartDue => "restart due",
            Self::MissingConfig => "missing config",
            Self::Waiting => "waiting",
            Self::Halted => "halted",
            Self::Warning(reason) => return write!(f, "warning: {reason}"),
            Self::RollingOut => "rolling out",
            Self::RolloutStuck => "rollout stuck",
            Self::OnHold => "on hold",
            Self::New => "new",
            Self::Foreign => "foreign",
            Self::TracksNothing => "tracks nothing",
            Self::NoTemplate => "no pod template",
            Self::NothingReported => "nothing reported",
            Self::NotManaged => "not managed",
            Self::NotKnown => "not known",
        };
        f.write_str(words)
    }
}

impl Serialize for ListStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a workload itself shows.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) rollout: Rollout,
    gates: Option<Box<Gates>>,
    has_hash: bool,
    /// True if the hash is one of ours, or has a baseline.
    is_known: bool,
    tracks_something: bool,
    can_be_restarted: bool,
}

/// A status, and what the workload waits for, in words.
pub(super) type Stated = (ListStatus, Option<String>);

impl Facts {
    pub(super) fn of(seen: &Seen<'_>) -> Self {
        let workload = &seen.workload;
        let hash = workload.config_hash();
        let is_ours = hash.and_then(ConfigHash::parse).is_some();
        Self {
            rollout: Rollout::of(workload, &seen.object),
            gates: workload.rare().gates.clone(),
            has_hash: hash.is_some(),
            is_known: is_ours || workload.markers.baseline.is_some(),
            tracks_something: !workload.references.is_empty() || workload.rare().classes.is_some(),
            can_be_restarted: workload.can_be_restarted(),
        }
    }

    /// Returns the status without asking the operator. `latest` is the newest Event about the workload, or `None` if
    /// Events cannot be read.
    pub(super) fn status(&self, latest: Option<Option<&Event>>) -> Stated {
        // What is pending comes first: a rollout may be of anything, and a hold without a change holds back nothing.
        if let Some(stated) = latest.flatten().and_then(reported) {
            return stated;
        }
        if let Some(stated) = self.rolling() {
            return stated;
        }
        let is_held = self.gates.as_ref().is_some_and(|it| it.hold.is_some());
        let status = if is_held {
            ListStatus::OnHold
        } else if !self.tracks_something {
            ListStatus::TracksNothing
        } else if !self.can_be_restarted {
            ListStatus::NoTemplate
        } else if !self.is_known {
            self.without_baseline()
        } else if latest.is_none() {
            ListStatus::NotKnown
        } else {
            ListStatus::NothingReported
        };
        (status, None)
    }

    /// Returns the status, given what the operator says.
    pub(super) fn asked(&self, report: &Report, latest: Option<&Event>) -> Stated {
        match report.sync_status {
            SyncStatus::Current => match self.rolling() {
                Some(stated) => stated,
                None if !self.tracks_something => (ListStatus::TracksNothing, None),
                None if !self.can_be_restarted => (ListStatus::NoTemplate, None),
                None => (ListStatus::UpToDate, None),
            },
            SyncStatus::Due(_) => {
                if let Some(closed) = gates::closed_by_itself(self.gates.as_deref(), report) {
                    return (ListStatus::Waiting, Some(gates::words(&closed)));
                }
                // The leader knows that nothing is waited for, whatever was reported before.
                let is_over = |event: &Event| report.leads && due::told_by(event).is_some();
                let latest = latest.filter(|event| !is_over(event));
                let stated = report.waits_for.as_ref().map(waiting);
                let stated = stated.or_else(|| latest.and_then(reported));
                stated.unwrap_or((ListStatus::RestartDue, None))
            }
            SyncStatus::MissingConfig => {
                let missing = latest.filter(|event| event.reason == MISSING_CONFIG);
                let message = report.waits_for.as_ref().map(due::words);
                let message = message.or_else(|| Some(missing?.message.clone()));
                (ListStatus::MissingConfig, message)
            }
            SyncStatus::BaselineDue => (self.without_baseline(), None),
            SyncStatus::NotManaged => (ListStatus::NotManaged, None),
            SyncStatus::Unknown => (ListStatus::NotKnown, None),
        }
    }

    fn rolling(&self) -> Option<Stated> {
        match &self.rollout {
            Rollout::Running(text) => Some((ListStatus::RollingOut, Some(text.clone()))),
            Rollout::Stopped(text) => Some((ListStatus::RolloutStuck, Some(text.clone()))),
            Rollout::Done(_) | Rollout::Unknown(_) => None,
        }
    }

    fn without_baseline(&self) -> ListStatus {
        if self.has_hash {
            ListStatus::Foreign
        } else {
            ListStatus::New
        }
    }
}

/// Returns what the operator says that a workload waits for.
fn waiting(waiting: &Waiting) -> Stated {
    let status = match &*waiting.reason {
        MISSING_CONFIG => ListStatus::MissingConfig,
        HALTED => ListStatus::Halted,
        reason if waiting.is_problem => ListStatus::Warning(reason.to_owned()),
        _ => ListStatus::Waiting,
    };
    (status, Some(due::words(waiting)))
}

/// Returns what the newest Event about a workload says of its status, if it says something.
fn reported(latest: &Event) -> Option<Stated> {
    let status = match &*latest.reason {
        MISSING_CONFIG => ListStatus::MissingConfig,
        HALTED => ListStatus::Halted,
        "WouldRestart" => ListStatus::RestartDue,
        // The rollout shows whether this is over.
        "RestartStalled" => return None,
        _ if due::told_by(latest).is_some() => ListStatus::Waiting,
        reason if latest.is_warning => ListStatus::Warning(reason.to_owned()),
        _ => return None,
    };
    Some((status, Some(latest.message.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::answered;
    use jiff::Timestamp;
    use pod_reloader_core::decision::Cause;
    use pod_reloader_core::gate::Hold;

    fn facts() -> Facts {
        Facts {
            rollout: Rollout::Done("all pods are new".to_owned()),
            gates: None,
            has_hash: true,
            is_known: true,
            tracks_something: true,
            can_be_restarted: true,
        }
    }

    fn held() -> Facts {
        let gates = Gates {
            hold: Some(Hold::Workload),
            ..Gates::default()
        };
        Facts {
            gates: Some(Box::new(gates)),
            ..facts()
        }
    }

    fn event(reason: &str, is_warning: bool) -> Event {
        Event {
            at: Timestamp::UNIX_EPOCH,
            reason: reason.to_owned(),
            message: "it is so".to_owned(),
            is_warning,
            about: String::new(),
            related: None,
        }
    }

    #[test]
    fn the_newest_event_says_what_is_pending() {
        for (reason, is_warning, status) in [
            ("RestartPending", false, "waiting"),
            ("WaitingForRelease", false, "waiting"),
            ("WaitingForStage", false, "waiting"),
            ("RestartHalted", true, "halted"),
            ("MissingConfig", true, "missing config"),
            ("WouldRestart", false, "restart due"),
            ("PatchRefused", true, "warning: PatchRefused"),
            ("RestartStalled", true, "nothing reported"),
            ("ConfigChanged", false, "nothing reported"),
        ] {
            let event = event(reason, is_warning);
            let (told, waits_for) = facts().status(Some(Some(&event)));
            assert_eq!(told.to_string(), status, "{reason}");
            let is_quiet = told == ListStatus::NothingReported;
            assert_eq!(waits_for.is_none(), is_quiet, "{reason}");
        }
        // The rollout in progress may be of anything.
        let rolling = Facts {
            rollout: Rollout::Running("1 of 2".to_owned()),
            ..facts()
        };
        let waiting = event("WaitingForStage", false);
        assert_eq!(rolling.status(Some(Some(&waiting))).0, ListStatus::Waiting);
    }

    #[test]
    fn without_an_event_the_workload_itself_shows_the_status() {
        let running = || Rollout::Running("1 of 2".to_owned());
        for (facts, status) in [
            (facts(), "nothing reported"),
            (held(), "on hold"),
            (
                Facts {
                    rollout: running(),
                    ..held()
                },
                "rolling out",
            ),
            (
                Facts {
                    is_known: false,
                    ..facts()
                },
                "foreign",
            ),
            (
                Facts {
                    is_known: false,
                    has_hash: false,
                    ..facts()
                },
                "new",
            ),
            (
                Facts {
                    tracks_something: false,
                    ..facts()
                },
                "tracks nothing",
            ),
        ] {
            let (told, _) = facts.status(Some(None));
            assert_eq!(told.to_string(), status);
        }
        let (unseen, _) = facts().status(None);
        assert_eq!(unseen, ListStatus::NotKnown);
    }

    #[test]
    fn the_operator_knows_more_than_an_event() {
        let due = answered(SyncStatus::Due(Cause::Changed));
        let waiting = event("WaitingForStage", false);
        let (status, _) = facts().asked(&answered(SyncStatus::Current), Some(&waiting));
        assert_eq!(status, ListStatus::UpToDate);
        let (status, waits_for) = facts().asked(&due, Some(&waiting));
        assert_eq!(
            (status, waits_for.as_deref()),
            (ListStatus::Waiting, Some("it is so"))
        );
        let (status, waits_for) = held().asked(&due, None);
        assert_eq!(
            (status, waits_for.as_deref()),
            (ListStatus::Waiting, Some("it is on hold"))
        );
        let (status, waits_for) = facts().asked(&due, None);
        assert_eq!((status, waits_for), (ListStatus::RestartDue, None));
    }

    #[test]
    fn the_answer_of_the_leader_counts_and_not_an_earlier_event() {
        let asked = |waits_for: Option<Waiting>, latest: &Event| {
            let report = Report {
                leads: true,
                waits_for,
                ..answered(SyncStatus::Due(Cause::Changed))
            };
            let (status, waits_for) = facts().asked(&report, Some(latest));
            (status.to_string(), waits_for)
        };
        let of = |reason: &str, is_problem| {
            let waiting = Waiting {
                reason: reason.to_owned(),
                is_problem,
                message: "it is so now".to_owned(),
                ..Waiting::default()
            };
            let (status, waits_for) = asked(Some(waiting), &event("WaitingForStage", false));
            assert_eq!(waits_for.as_deref(), Some("it is so now"));
            status
        };
        assert_eq!(of("RestartHalted", true), "halted");
        assert_eq!(of("MissingConfig", true), "missing config");
        // No plugin has ever heard of these.
        assert_eq!(of("WaitingForSpring", false), "waiting");
        assert_eq!(of("WinterIsBack", true), "warning: WinterIsBack");
        let over = asked(None, &event("WaitingForStage", false));
        assert_eq!(over, ("restart due".to_owned(), None));
        let refused = asked(None, &event("PatchRefused", true));
        assert_eq!(refused.0, "warning: PatchRefused");
    }
}
