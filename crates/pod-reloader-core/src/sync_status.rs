//! The sync status of a workload: the webhook's answer to a dry run that asks for it.
//!
//! Only the operator can verify a config hash, because the key is a secret. To find out, a client sends a
//! dry run of a write that changes nothing, as the field manager
//! [`annotations::STATUS_QUERY`](crate::annotations::STATUS_QUERY). The webhook answers with a [`Report`] in a
//! warning. Nothing is written, and the client needs no more than the right to patch the workload.
//!
//! The warning is a sentence for people, and then the same as a [`StatusAnswer`] in JSON for programs, with what the restart
//! waits for. The sentence is also read where there is nothing else: the apiserver truncates long warnings, and another
//! version of the JSON may mean something else.

use std::fmt;
use std::str::FromStr;

use jiff::{Timestamp, Unit};
pub use pod_reloader_api::{NamedObject, Waiting};
use pod_reloader_api::{STATUS_ANSWER_VERSION, StatusAnswer};

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

    /// Returns the word for the status in a [`StatusAnswer`].
    fn word(self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::Due(_) => RESTART_DUE,
            Self::MissingConfig => "MissingConfig",
            Self::BaselineDue => "BaselineDue",
            Self::NotManaged => "NotManaged",
            Self::Unknown => "Unknown",
        }
    }

    /// Returns the word for the cause of a restart that is due.
    fn cause_word(self) -> Option<&'static str> {
        let Self::Due(cause) = self else {
            return None;
        };
        Some(match cause {
            Cause::FirstStamp => "FirstHash",
            Cause::Changed => "Changed",
            Cause::ChangedBeforeTakeover => "ChangedBeforeTakeover",
            Cause::Pinned => "FirstPins",
            Cause::Rotated => "Rotated",
        })
    }

    /// Returns the status with these words. A newer operator may know more of them.
    fn of_words(status: &str, cause: Option<&str>) -> Self {
        let mut all = Self::ALL.into_iter();
        let known = all.find(|it| it.word() == status && it.cause_word() == cause);
        known.unwrap_or(match status {
            // A restart is due, whatever it is for.
            RESTART_DUE => Self::Due(Cause::Changed),
            _ => Self::Unknown,
        })
    }
}

const RESTART_DUE: &str = "RestartDue";

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
    /// The time of the answer.
    pub observed_at: Option<Timestamp>,
    /// True if that replica runs the loop. Then the workload waits only for `waits_for`, apart from pauses that no Event
    /// reports. Another replica knows only what the workload and its objects show.
    pub leads: bool,
    /// The reason why a restart that is due waits.
    pub waits_for: Option<Waiting>,
}

const PREFIX: &str = "pod-reloader: status: ";
const VERSION: &str = "version ";
const CONTENT: &str = "content ";
const NOT_AFTER: &str = "certificate until ";
/// The maximum size of the JSON with all details, in bytes: the apiserver truncates warnings if all of a request have more
/// than 4096 characters. Names of objects are long, and so are names of releases, which users can write.
const MAX_DATA: usize = 3 << 10;
/// What comes between the sentence and the JSON.
const DATA: &str = "; data ";

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, version) = (self.sync_status.as_str(), &self.version);
        write!(f, "{PREFIX}{status}; {VERSION}{version}")?;
        if let Some(content) = &self.content {
            write!(f, "; {CONTENT}{content}")?;
        }
        if let Some(not_after) = self.not_after {
            write!(f, "; {NOT_AFTER}{not_after}")?;
        }
        let data = self.data().map_err(|_| fmt::Error)?;
        write!(f, "{DATA}{data}")
    }
}

/// Returns JSON with printable characters of ASCII alone: others do not get through a header. Without semicolons, no text
/// in it looks like a part of the sentence to a plugin that knows no JSON.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if matches!(character, ' '..='~') && character != ';' {
            text.push(character);
            continue;
        }
        // They are in strings only.
        let mut units = [0; 2];
        for unit in character.encode_utf16(&mut units) {
            text += &format!("\\u{unit:04x}");
        }
    }
    text
}

impl Report {
    /// Returns the JSON, without the details of a wait if it is too long with them.
    fn data(&self) -> serde_json::Result<String> {
        let mut answer = self.answer();
        let data = ascii(&serde_json::to_string(&answer)?);
        if data.len() <= MAX_DATA {
            return Ok(data);
        }
        if let Some(waiting) = &mut answer.waits_for {
            *waiting = Waiting {
                reason: std::mem::take(&mut waiting.reason),
                is_problem: waiting.is_problem,
                until: waiting.until.take(),
                ..Waiting::default()
            };
        }
        Ok(ascii(&serde_json::to_string(&answer)?))
    }

    /// Returns the report as data for programs.
    fn answer(&self) -> StatusAnswer {
        let observed_at = self.observed_at.and_then(|at| at.round(Unit::Second).ok());
        StatusAnswer {
            version: STATUS_ANSWER_VERSION,
            status: self.sync_status.word().to_owned(),
            cause: self.sync_status.cause_word().map(ToOwned::to_owned),
            content: self.content.clone(),
            operator: self.version.clone(),
            certificate_until: self.not_after.map(|at| at.to_string()),
            observed_at: observed_at.map(|at| at.to_string()),
            leads: self.leads,
            waits_for: self.waits_for.clone(),
        }
    }

    /// Returns the report that this JSON holds, if it has a version that is known.
    fn of_data(data: &str) -> Option<Self> {
        let answer: StatusAnswer = serde_json::from_str(data).ok()?;
        let time = |at: Option<String>| -> Option<Timestamp> { at?.parse().ok() };
        (answer.version == STATUS_ANSWER_VERSION).then(|| Self {
            sync_status: SyncStatus::of_words(&answer.status, answer.cause.as_deref()),
            content: answer.content.filter(|it| gate::are_digits(it)),
            version: answer.operator,
            not_after: time(answer.certificate_until),
            observed_at: time(answer.observed_at),
            leads: answer.leads,
            waits_for: answer.waits_for,
        })
    }

    /// Returns the report that this sentence gives.
    fn of_sentence(sentence: &str) -> Option<Self> {
        let mut parts = sentence.split("; ");
        let sync_status = parts.next()?;
        let version = parts.next()?.strip_prefix(VERSION)?;
        let (mut content, mut not_after) = (None, None);
        for part in parts {
            if let Some(digits) = part.strip_prefix(CONTENT) {
                content = content.or(Some(digits).filter(|it| gate::are_digits(it)));
            } else {
                not_after = not_after.or(part.strip_prefix(NOT_AFTER));
            }
        }
        Some(Self {
            // A newer operator may know more of these.
            sync_status: SyncStatus::ALL
                .into_iter()
                .find(|it| it.as_str() == sync_status)
                .unwrap_or(SyncStatus::Unknown),
            content: content.map(ToOwned::to_owned),
            version: version.to_owned(),
            not_after: not_after.and_then(|at| at.parse().ok()),
            observed_at: None,
            leads: false,
            waits_for: None,
        })
    }
}

/// A warning that is not a report: it is somebody else's, or about something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no report")]
pub struct NotAReport;

impl FromStr for Report {
    type Err = NotAReport;

    fn from_str(text: &str) -> Result<Self, NotAReport> {
        let text = text.strip_prefix(PREFIX).ok_or(NotAReport)?;
        let data = text.split_once(DATA);
        let sentence = data.map_or(text, |(sentence, _)| sentence);
        let report = data.and_then(|(_, data)| Self::of_data(data));
        report
            .or_else(|| Self::of_sentence(sentence))
            .ok_or(NotAReport)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(sync_status: SyncStatus) -> Report {
        Report {
            sync_status,
            content: None,
            version: "1.2.3".to_owned(),
            not_after: None,
            observed_at: None,
            leads: false,
            waits_for: None,
        }
    }

    /// Returns a report with everything that one may have.
    fn long(sync_status: SyncStatus) -> Report {
        Report {
            content: Some("48a63946".to_owned()),
            not_after: Some("2026-11-21T20:00:00Z".parse().unwrap()),
            observed_at: Some("2026-11-20T20:00:00Z".parse().unwrap()),
            leads: true,
            waits_for: Some(Waiting {
                reason: "WaitingForStage".to_owned(),
                workload: Some(NamedObject {
                    kind: "Deployment".to_owned(),
                    namespace: None,
                    name: "first".to_owned(),
                }),
                message: "waiting for \"first\"; version 9\u{e4}\u{1f980}\n\u{7f}".to_owned(),
                ..Waiting::default()
            }),
            ..report(sync_status)
        }
    }

    /// Returns the sentence of a report, as an operator wrote it that knew no JSON.
    fn sentence(report: &Report) -> String {
        let text = report.to_string();
        text.split_once(DATA).unwrap().0.to_owned()
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        for sync_status in SyncStatus::ALL {
            for report in [report(sync_status), long(sync_status)] {
                let text = report.to_string();
                assert_eq!(text.parse(), Ok(report), "{text}");
                assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            }
        }
    }

    #[test]
    fn the_sentence_says_the_same_without_what_is_waited_for() {
        for sync_status in SyncStatus::ALL {
            let written = long(sync_status);
            let sentence = sentence(&written);
            // The apiserver truncates warnings over 256 bytes if there are many of them.
            assert!(sentence.len() < 160, "{sentence}");
            let expected = Report {
                observed_at: None,
                leads: false,
                waits_for: None,
                ..written.clone()
            };
            assert_eq!(sentence.parse(), Ok(expected.clone()));
            let truncated: String = written.to_string().chars().take(256).collect();
            assert_eq!(truncated.parse(), Ok(expected));
        }
    }

    #[test]
    fn what_people_write_does_not_make_the_answer_too_long() {
        for character in ["x", "\u{e4}", "\"", "\u{1f980}"] {
            let mut written = long(SyncStatus::Due(Cause::Changed));
            let waits_for = written.waits_for.as_mut().unwrap();
            waits_for.message = character.repeat(200 << 10);
            let text = written.to_string();
            assert!(text.len() < 4000, "{}", text.len());
            let read: Report = text.parse().unwrap();
            assert_eq!(read.content, written.content);
            assert_eq!(read.waits_for.unwrap().reason, "WaitingForStage");
        }
    }

    #[test]
    fn a_message_is_not_taken_for_a_part_of_the_sentence() {
        let mut written = report(SyncStatus::Due(Cause::Changed));
        written.waits_for = Some(Waiting {
            message: "no; content 00000000; data {}".to_owned(),
            ..Waiting::default()
        });
        let text = written.to_string();
        assert_eq!(text.matches("; ").count(), 2, "{text}");
        assert_eq!(text.parse(), Ok(written));
    }

    #[test]
    fn data_of_another_version_is_not_read() {
        let written = long(SyncStatus::Current).to_string();
        let newer = written.replace("\"version\":1", "\"version\":2");
        assert_ne!(newer, written);
        let report: Report = newer.parse().unwrap();
        assert_eq!(report.sync_status, SyncStatus::Current);
        assert_eq!((report.leads, report.waits_for), (false, None));
    }

    #[test]
    fn words_of_a_newer_operator_are_shown_or_mean_the_least() {
        let of = |data: &str| {
            let text = format!("pod-reloader: status: x; version 9.0.0; data {data}");
            text.parse::<Report>().unwrap()
        };
        let known = |status: &str| format!(r#""version":1,"operator":"9.0.0","status":"{status}""#);
        let holiday = of(&format!("{{{}}}", known("OnHoliday")));
        assert_eq!(holiday.sync_status, SyncStatus::Unknown);
        let waits = r#""waitsFor":{"reason":"WaitingForSpring","season":["winter"]}"#;
        let (due, cause) = (
            known("RestartDue"),
            r#""cause":"Boredom","mood":{"is":"good"}"#,
        );
        let due = of(&format!("{{{due},{cause},{waits}}}"));
        assert_eq!(due.sync_status, SyncStatus::Due(Cause::Changed));
        assert_eq!(due.waits_for.unwrap().reason, "WaitingForSpring");
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
