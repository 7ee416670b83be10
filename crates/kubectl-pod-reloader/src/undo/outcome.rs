//! Tells from the answer to an undo what has become of it.

use std::collections::BTreeSet;

use pod_reloader_core::annotations::UNDONE;
use pod_reloader_core::name::Name;
use pod_reloader_core::pins::Pins;
use serde_json::Value;

use super::{Earlier, NAMED};
use crate::print::{Verdict, some};
use crate::revisions::{Stamps, template_path};
use crate::workloads::{Seen, at};

/// What became of the pins that were written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The webhook has taken them for an undo.
    Undone,
    /// They stayed, but the webhook has not seen them.
    Unnoticed,
    /// They did not stay.
    Refused,
}

impl Outcome {
    /// Returns the outcome, given the workload as it is after the write. `differing` are the ConfigMaps that have
    /// other content now than the copies.
    pub(super) fn of(
        seen: &Seen<'_>,
        earlier: &Earlier,
        before: &Stamps,
        object: &Value,
        differing: &BTreeSet<Name>,
    ) -> Self {
        let after = Stamps::of(at(object, template_path(seen).unwrap_or_default()));
        let pins = after.pins.as_deref().and_then(Pins::parse);
        let pins = pins.unwrap_or_default();
        let has_stayed = |(source, copy): (&Name, &Name)| match pins.get(source.as_str()) {
            Some(own) => own == copy,
            // It is not pinned any more.
            None => !pins.is_empty(),
        };
        if after.pins == before.pins || !earlier.pins.iter().all(has_stayed) {
            return Self::Refused;
        }
        let undone = object["metadata"]["annotations"][UNDONE].as_str();
        let undone = undone.and_then(Pins::parse).unwrap_or_default();
        let is_noted = |source: &Name| {
            undone.get(source.as_str()).is_some() || pins.get(source.as_str()).is_none()
        };
        match differing.iter().all(is_noted) {
            true => Self::Undone,
            false => Self::Unnoticed,
        }
    }

    pub(super) fn words(&self, earlier: &Earlier) -> (Verdict, String) {
        let number = earlier.number;
        match self {
            Self::Undone => {
                let copies = earlier.pins.iter().map(|(_, copy)| copy.to_string());
                let copies = some(Vec::from_iter(copies), NAMED);
                let state = format!("has the configuration of revision {number} again: {copies}");
                (Verdict::Good, state)
            }
            Self::Unnoticed => {
                let state = format!(
                    "has the configuration of revision {number} again, but pod-reloader's webhook did not learn of it, so the present configuration follows when pod-reloader runs; kubectl pod-reloader status shows more"
                );
                (Verdict::Bad, state)
            }
            Self::Refused => {
                let state = format!("not undone: the pins of revision {number} did not stay");
                (Verdict::Bad, state)
            }
        }
    }
}
