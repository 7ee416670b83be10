//! The sync status of a workload: the webhook's answer to a dry run that asks for it.
//!
//! Only the operator can verify a config hash, because the key is a secret. To find out, a client sends a
//! dry run of a write that changes nothing, as the field manager
//! [`annotations::INQUIRER`](crate::annotations::INQUIRER). The webhook answers with a [`Report`] in a
//! warning. Nothing is written, and the client needs no more than the right to patch the workload.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use crate::decision::{Cause, Decision};

/// The sync status of a workload: what the loop would do about it now, once its objects have settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nothing: the workload is up to date.
    Current,
    /// Restart the pods, for this reason.
    Due(Cause),
    /// Nothing yet: the pods could not start because objects are missing.
    Waiting,
    /// Write a baseline, which restarts nothing.
    BaselineDue,
    /// Nothing: the workload is not managed, because nobody has opted it in.
    NotKept,
    /// Unknown for now, because something could not be read.
    Unknown,
}

impl Standing {
    const ALL: [Self; 8] = [
        Self::Current,
        Self::Due(Cause::FirstStamp),
        Self::Due(Cause::Changed),
        Self::Due(Cause::ChangedBeforeTakeover),
        Self::Waiting,
        Self::BaselineDue,
        Self::NotKept,
        Self::Unknown,
    ];

    /// Returns the name of the status in a report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Due(Cause::FirstStamp) => "restart due for the first hash",
            Self::Due(Cause::Changed) => "restart due for a change",
            Self::Due(Cause::ChangedBeforeTakeover) => "restart due for a change before takeover",
            Self::Waiting => "waiting for objects",
            Self::BaselineDue => "baseline due",
            Self::NotKept => "not kept",
            Self::Unknown => "unknown",
        }
    }
}

impl From<&Decision> for Standing {
    fn from(decision: &Decision) -> Self {
        match decision {
            Decision::Keep => Self::Current,
            Decision::Hold(_) => Self::Waiting,
            Decision::Set { cause, .. } => Self::Due(*cause),
            Decision::Baseline(_) => Self::BaselineDue,
        }
    }
}

/// The answer to a status query: the sync status, and facts about the replica that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The sync status of the workload.
    pub standing: Standing,
    /// The version of the replica that answers.
    pub version: String,
    /// The time at which the certificate of that replica expires.
    pub not_after: Option<Timestamp>,
}

const PREFIX: &str = "pod-reloader: asked: ";
const VERSION: &str = "version ";
const NOT_AFTER: &str = "certificate until ";

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            standing,
            version,
            not_after,
        } = self;
        write!(f, "{PREFIX}{}; {VERSION}{version}", standing.as_str())?;
        match not_after {
            Some(not_after) => write!(f, "; {NOT_AFTER}{not_after}"),
            None => Ok(()),
        }
    }
}

/// A warning that is not a report: it is somebody else's, or about something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no report")]
pub struct NotAReport;

impl FromStr for Report {
    type Err = NotAReport;

    fn from_str(text: &str) -> Result<Self, NotAReport> {
        let parts = text.strip_prefix(PREFIX).ok_or(NotAReport)?;
        let mut parts = parts.split("; ");
        let standing = parts.next().ok_or(NotAReport)?;
        let version = parts.next().and_then(|part| part.strip_prefix(VERSION));
        let not_after = parts.find_map(|part| part.strip_prefix(NOT_AFTER));
        Ok(Self {
            // A newer operator may know more of these.
            standing: Standing::ALL
                .into_iter()
                .find(|it| it.as_str() == standing)
                .unwrap_or(Standing::Unknown),
            version: version.ok_or(NotAReport)?.to_owned(),
            not_after: not_after.and_then(|at| at.parse().ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        for standing in Standing::ALL {
            for not_after in [None, Some("2026-11-21T20:00:00Z".parse().unwrap())] {
                let report = Report {
                    standing,
                    version: "1.2.3".to_owned(),
                    not_after,
                };
                let text = report.to_string();
                assert_eq!(text.parse(), Ok(report), "{text}");
                // The apiserver truncates warnings over 256 bytes if there are many of them.
                assert!(text.len() < 120, "{text}");
            }
        }
    }

    #[test]
    fn another_warning_is_no_report() {
        for text in [
            "",
            "pod-reloader: unknown annotation x",
            "pod-reloader: asked: current",
        ] {
            assert_eq!(text.parse::<Report>(), Err(NotAReport), "{text}");
        }
    }

    #[test]
    fn what_a_newer_operator_says_is_unknown() {
        let text =
            "pod-reloader: asked: on holiday; version 9.0.0; certificate until never; mood good";
        let report: Report = text.parse().unwrap();
        assert_eq!(report.standing, Standing::Unknown);
    }
}
