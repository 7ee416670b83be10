//! Finds out when the pods of a workload got their hash, and why.

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
        let writer = &seen.hash_writer;
        let is_reported = !matches!(writer, HashWriter::Other { .. });
        let why = event.filter(|_| is_reported);
        let why = why.map(|event| event.message.clone());
        let unreported = || unreported(writer, events.is_some(), (at, now));
        Some(Self {
            at,
            in_words: why.clone().unwrap_or_else(unreported),
            why,
            manager: writer.manager().map(ToOwned::to_owned),
        })
    }
}

/// Says what is known of the reason for a hash that no Event of the operator gives. Of a write of the workload itself,
/// the operator makes none.
fn unreported(
    writer: &HashWriter,
    are_events_seen: bool,
    (since, now): (Timestamp, Timestamp),
) -> String {
    let is_newer = |at: &Timestamp| since.duration_since(*at) > LEEWAY;
    let there_is_none = "why is not known: there is no Event about it";
    let words = match writer {
        HashWriter::Other { manager, .. } => {
            return format!(
                "it came with a write of the workload by {manager}, for which there is no Event"
            );
        }
        HashWriter::Admission => {
            "it came with a write of the workload, for which there is no Event"
        }
        _ if !are_events_seen => "why is not known: Events cannot be read",
        // The operator's last write is older: the webhook set the hash, or the rollout began late.
        HashWriter::Operator(Some(at)) if is_newer(at) => there_is_none,
        // It was lost, or is yet to come.
        _ if now.duration_since(since) < EVENTS_LAST => there_is_none,
        _ => "why is not known any more: Events are kept for an hour",
    };
    words.to_owned()
}
