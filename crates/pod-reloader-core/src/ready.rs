//! The condition Ready of our own custom resources: how a status gets it, and what is remembered of a status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The type of the one condition.
const READY: &str = "Ready";
/// The longest reason of a condition that is remembered, in bytes. Ours are shorter.
const LONGEST_REASON: usize = 63;

/// Returns the condition Ready among these.
pub fn ready(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|it| it.type_ == READY)
}

/// Returns the condition Ready of an object of this generation, with this status, reason and message. `before` has
/// the status of its current condition, and the time at which that last changed.
pub(crate) fn condition(
    before: Option<(&str, Timestamp)>,
    generation: i64,
    (status, reason, message): (&str, &str, String),
    now: Timestamp,
) -> Condition {
    let same = before.filter(|(before, _)| *before == status);
    Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: Some(generation),
        last_transition_time: Time(same.map_or(now, |(_, since)| since)),
    }
}

/// A status that an object has. What is remembered of it is short, whatever somebody has written there.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenStatus {
    digest: [u8; 16],
    ready: Option<SeenReady>,
}

/// The condition Ready, as it is remembered.
#[derive(Clone, Debug, PartialEq)]
struct SeenReady {
    status: Box<str>,
    reason: Box<str>,
    since: Timestamp,
}

impl SeenStatus {
    /// Remembers a status with these conditions.
    pub fn of(status: &impl Serialize, conditions: &[Condition]) -> Self {
        let short = |text: &str| match text.len() <= LONGEST_REASON {
            true => text.into(),
            false => Box::default(),
        };
        Self {
            digest: digest(status),
            ready: ready(conditions).map(|ready| SeenReady {
                status: short(&ready.status),
                reason: short(&ready.reason),
                since: ready.last_transition_time.0,
            }),
        }
    }

    /// Returns true if it is this one.
    pub fn is(&self, status: &impl Serialize) -> bool {
        self.digest == digest(status)
    }

    /// Returns true if users know this condition from it.
    pub fn tells(&self, now: &Condition) -> bool {
        let ready = self.ready.as_ref();
        ready.is_some_and(|it| *it.status == *now.status && *it.reason == *now.reason)
    }

    /// Returns the reason of the condition.
    pub fn reason(&self) -> Option<&str> {
        Some(&self.ready.as_ref()?.reason)
    }

    /// Returns the status of the condition, and the time of its last change.
    pub(crate) fn since(&self) -> Option<(&str, Timestamp)> {
        let ready = self.ready.as_ref()?;
        Some((&*ready.status, ready.since))
    }
}

fn digest(status: &impl Serialize) -> [u8; 16] {
    let bytes = Sha256::digest(serde_json::to_vec(status).expect("a status is JSON"));
    std::array::from_fn(|at| bytes[at])
}
