//! The sync status of a workload: the webhook's answer to a dry run that asks for it.
//!
//! Only the operator can verify a config hash, because the key is a secret. To find out, a client sends a
//! dry run of a write that changes nothing, as the field manager
//! [`annotations::STATUS_QUERY`](crate::annotations::STATUS_QUERY). The webhook answers with a [`Report`] in a
//! warning. Nothing is written, and the client needs no more than the right to patch the workload.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use crate::decision::{Cause, Decision};
use crate::gate;

/// The sync status of a workload: what the loop would do about it now, once its objects have settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncStatus {
    /// Nothing: the workload is up to date.
    Current,
    /// Restart the pods, for this reason.
    Due(Cause),
    /// Nothing yet: the pods could not start because objects are missing.
    MissingConfig,
    /// Write a baseline, which restarts nothing.
    BaselineDue,
    /// Nothing: the workload is not managed, because nobody has opted it in.
    NotManaged,
    /// Unknown for now, because something could not be read.
    Unknown,
}

impl SyncStatus {
    const ALL: [Self; 10] = [
        Self::Current,
        Self::Due(Cause::FirstStamp),
        Self::Due(Cause::Changed),
        Self::Due(Cause::ChangedBeforeTakeover),
        Self::Due(Cause::Pinned),
        Self::Due(Cause::Rotated),
        Self::MissingConfig,
        Self::BaselineDue,
        Self::NotManaged,
        Self::Unknown,
    ];

    /// Returns the name of the status in a report.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Due(Cause::FirstStamp) => "restart due for the first hash",
            Self::Due(Cause::Changed) => "restart due for a change",
            Self::Due(Cause::ChangedBeforeTakeover) => "restart due for a change before takeover",
            Self::Due(Cause::Pinned) => "restart due for the first pins",
            Self::Due(Cause::Rotated) => "restart due for a rotation",
            Self::MissingConfig => "missing config",
            Self::BaselineDue => "baseline due",
            Self::NotManaged => "not managed",
            Self::Unknown => "unknown",
        }
    }
}

impl From<&Decision> for SyncStatus {
    fn from(decision: &Decision) -> Self {
        match decision {
            Decision::Unchanged => Self::Current,
            Decision::MissingConfig(_) => Self::MissingConfig,
            Decision::Set { cause, .. } => Self::Due(*cause),
            Decision::Baseline(_) => Self::BaselineDue,
        }
    }
}

/// The answer to a status query: the sync status, and facts about the replica that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The sync status of the workload.
    pub sync_status: SyncStatus,
    /// The digits by which users name the content that is due: see [`gate::digits`].
    pub content: Option<String>,
    /// The version of the replica that answers.
    pub version: String,
    /// The time at which the certificate of that replica expires.
    pub not_after: Option<Timestamp>,
}

const PREFIX: &str = "pod-reloader: status: ";
const VERSION: &str = "version ";
const CONTENT: &str = "content ";
const NOT_AFTER: &str = "certificate until ";

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sync_status,
            content,
            version,
            not_after,
        } = self;
        write!(f, "{PREFIX}{}; {VERSION}{version}", sync_status.as_str())?;
        if let Some(content) = content {
            write!(f, "; {CONTENT}{content}")?;
        }
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
        let sync_status = parts.next().ok_or(NotAReport)?;
        let version = parts.next().and_then(|part| part.strip_prefix(VERSION));
        let (mut content, mut not_after) = (None, None);
        for part in parts {
            if let Some(digits) = part.strip_prefix(CONTENT) {
                content = content.or(Some(digits).filter(|it| gate::are_digits(it)));
            } else {
                not_after = not_after.or(part.strip_prefix(NOT_AFTER));
            }
        }
        Ok(Self {
            // A newer operator may know more of these.
            sync_status: SyncStatus::ALL
                .into_iter()
                .find(|it| it.as_str() == sync_status)
                .unwrap_or(SyncStatus::Unknown),
            content: content.map(ToOwned::to_owned),
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
        for sync_status in SyncStatus::ALL {
            for (content, not_after) in [
                (None, None),
                (Some("48a63946"), None),
                (None, Some("2026-11-21T20:00:00Z")),
                (Some("48a63946"), Some("2026-11-21T20:00:00Z")),
            ] {
                let not_after = not_after.map(|it| it.parse().unwrap());
                let report = Report {
                    sync_status,
                    content: content.map(ToOwned::to_owned),
                    version: "1.2.3".to_owned(),
                    not_after,
                };
                let text = report.to_string();
                assert_eq!(text.parse(), Ok(report), "{text}");
                // The apiserver truncates warnings over 256 bytes if there are many of them.
                assert!(text.len() < 160, "{text}");
            }
        }
    }

    #[test]
    fn every_sync_status_can_be_read() {
        let next = |status| match status {
            SyncStatus::Current => Some(SyncStatus::Due(Cause::FirstStamp)),
            SyncStatus::Due(Cause::FirstStamp) => Some(SyncStatus::Due(Cause::Changed)),
            SyncStatus::Due(Cause::Changed) => Some(SyncStatus::Due(Cause::ChangedBeforeTakeover)),
            SyncStatus::Due(Cause::ChangedBeforeTakeover) => Some(SyncStatus::Due(Cause::Pinned)),
            SyncStatus::Due(Cause::Pinned) => Some(SyncStatus::Due(Cause::Rotated)),
            SyncStatus::Due(Cause::Rotated) => Some(SyncStatus::MissingConfig),
            SyncStatus::MissingConfig => Some(SyncStatus::BaselineDue),
            SyncStatus::BaselineDue => Some(SyncStatus::NotManaged),
            SyncStatus::NotManaged => Some(SyncStatus::Unknown),
            SyncStatus::Unknown => None,
        };
        let all = std::iter::successors(Some(SyncStatus::Current), |it| next(*it));
        assert!(all.eq(SyncStatus::ALL));
    }

    #[test]
    fn another_warning_is_not_a_report() {
        for text in [
            "",
            "pod-reloader: unknown annotation x",
            "pod-reloader: status: current",
        ] {
            assert_eq!(text.parse::<Report>(), Err(NotAReport), "{text}");
        }
    }

    #[test]
    fn a_sync_status_of_a_newer_operator_is_read_as_unknown() {
        let text = "pod-reloader: status: on holiday; version 9.0.0; content of the sea; certificate until never; mood good";
        let report: Report = text.parse().unwrap();
        assert_eq!(report.sync_status, SyncStatus::Unknown);
        assert_eq!((report.content, report.not_after), (None, None));
    }
}
