//! Finds out when the pods of a workload got their hash, and why.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::events::Event;
use crate::workloads::{HashWriter, Seen};

/// Time by which a ReplicaSet may seem later than its Event, as its creation time has no fractions of a
/// second.
const LEEWAY: SignedDuration = SignedDuration::from_secs(2);
/// Time for which an apiserver retains Events by default.
const EVENTS_LAST: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, Serialize)]
pub(super) struct LastRestart {
    /// Time at which its pods got their config hash.
    pub(super) at: Timestamp,
    /// Reason for the restart, for as long as there are Events.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Field manager that wrote the hash, if that can be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    manager: Option<String>,
    /// `why`, or what else is known about the reason.
    #[serde(skip)]
    pub(super) in_words: String,
}

impl LastRestart {
    /// Returns `None` if neither an Event nor `hash_since`, the time of the hash, tells when. `events` is
    /// `None` if the user may not see them.
    pub(super) fn of(
        seen: &Seen<'_>,
        events: Option<&[Event]>,
        hash_since: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Self> {
        let mut newest_first = events.unwrap_or_default().iter();
        let event = newest_first.find(|event| event.is_of_a_hash());
        // An Event about an earlier hash says nothing about this one.
        let event = event.filter(|event| {
            hash_since.is_none_or(|since| since.duration_since(event.at) <= LEEWAY)
        });
        let of_hash = seen.workload.config_hash().and(hash_since);
        let at = event.map(|event| event.at).or(of_hash)?;
        let why = Why::of(event, &seen.hash_writer, events.is_some(), (at, now));
        Some(Self {
            at,
            in_words: why.to_string(),
            why: match why {
                Why::Reported(message) => Some(message),
                _ => None,
            },
            manager: seen.hash_writer.manager().map(ToOwned::to_owned),
        })
    }
}

/// The reason why a workload got its hash, as far as it is known.
#[derive(Debug, PartialEq, Eq)]
enum Why {
    /// An Event of the operator gives the reason.
    Reported(String),
    /// The hash came with a write of the workload itself, for which the operator makes no Event. Holds the
    /// field manager if it is known.
    OwnWrite(Option<String>),
    /// Events cannot be read, and either the operator wrote the hash or nobody knows who did.
    Unread,
    /// Events can be read, but there is none about the hash yet, or it was lost.
    Unreported,
    /// Events can be read, but the hash is older than any Event that is retained.
    Forgotten,
}

impl Why {
    fn of(
        event: Option<&Event>,
        writer: &HashWriter,
        are_events_seen: bool,
        (since, now): (Timestamp, Timestamp),
    ) -> Self {
        let is_newer = |at: &Timestamp| since.duration_since(*at) > LEEWAY;
        match (event, writer) {
            (_, HashWriter::Other { manager, .. }) => Self::OwnWrite(Some(manager.clone())),
            (Some(event), _) => Self::Reported(event.message.clone()),
            (None, HashWriter::Admission) => Self::OwnWrite(None),
            _ if !are_events_seen => Self::Unread,
            // The operator's last write is older: the webhook set the hash, or the rollout began late.
            (None, HashWriter::Operator(Some(at))) if is_newer(at) => Self::Unreported,
            _ if now.duration_since(since) < EVENTS_LAST => Self::Unreported,
            _ => Self::Forgotten,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported(message) => f.write_str(message),
            Self::OwnWrite(manager) => {
                f.write_str("it came with a write of the workload")?;
                if let Some(manager) = manager {
                    write!(f, " by {manager}")?;
                }
                f.write_str(", for which there is no Event")
            }
            Self::Unread => f.write_str("why is not known: Events cannot be read"),
            Self::Unreported => f.write_str("why is not known: there is no Event about it"),
            Self::Forgotten => {
                f.write_str("why is not known any more: Events are kept for an hour")
            }
        }
    }
}
