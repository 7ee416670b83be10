//! How a workload stands: what the webhook tells who asks by a dry run.
//!
//! Only the operator can verify a config hash: its key is a secret. So who wants to know sends a dry run
//! of a write that changes nothing, as the field manager [`annotations::INQUIRER`](crate::annotations::INQUIRER),
//! and the webhook answers with a [`Report`] in a warning. Nothing is written, and nobody needs more than the
//! right to patch the workload.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use crate::decision::{Cause, Decision};

/// What the reconcile loop would do about a workload now, once its objects are quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nothing: it is up to date.
    Current,
    /// Restart it, for this.
    Due(Cause),
    /// Nothing yet: its pods could not start without objects that are not there.
    Waiting,
    /// Write a baseline, which restarts nothing.
    BaselineDue,
    /// Nothing, as nobody has asked for it to be kept.
    NotKept,
    /// It cannot be told now, because something could not be read.
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

    /// Its name in a report.
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

/// What the webhook tells: how the workload stands, and of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How the workload stands.
    pub standing: Standing,
    /// The version of the replica that answers.
    pub version: String,
    /// When the certificate of that replica expires.
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

/// A warning that is no report, but somebody else's or about something else.
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
            // A newer operator may know more of them.
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
                // The apiserver cuts off longer ones, from 256 bytes on where there are many.
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
