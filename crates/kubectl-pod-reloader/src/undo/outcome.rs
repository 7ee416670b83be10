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

/// Returns whether the pins that were written have stayed, whether that is well, and what it means. `object` is the
/// workload as it is after the write, and `differing` are the ConfigMaps that have other content now than the copies.
pub(super) fn outcome(
    seen: &Seen<'_>,
    earlier: &Earlier,
    before: &Stamps,
    object: &Value,
    differing: &BTreeSet<Name>,
) -> (bool, Verdict, String) {
    let number = earlier.number;
    let after = Stamps::of(at(object, template_path(seen).unwrap_or_default()));
    let pins = after.pins.as_deref().and_then(Pins::parse);
    let pins = pins.unwrap_or_default();
    let has_stayed = |(source, copy): (&Name, &Name)| match pins.get(source.as_str()) {
        Some(own) => own == copy,
        // It is not pinned any more.
        None => !pins.is_empty(),
    };
    if after.pins == before.pins || !earlier.pins.iter().all(has_stayed) {
        let state = format!("not undone: the pins of revision {number} did not stay");
        return (false, Verdict::Bad, state);
    }
    let undone = object["metadata"]["annotations"][UNDONE].as_str();
    let undone = undone.and_then(Pins::parse).unwrap_or_default();
    let is_noted = |source: &Name| {
        undone.get(source.as_str()).is_some() || pins.get(source.as_str()).is_none()
    };
    if !differing.iter().all(is_noted) {
        let state = format!(
            "has the configuration of revision {number} again, but pod-reloader's webhook did not learn of it, so the present configuration follows when pod-reloader runs; kubectl pod-reloader status shows more"
        );
        return (true, Verdict::Bad, state);
    }
    let copies = earlier.pins.iter().map(|(_, copy)| copy.to_string());
    let copies = some(Vec::from_iter(copies), NAMED);
    let state = format!("has the configuration of revision {number} again: {copies}");
    (true, Verdict::Good, state)
}
