//! The words that all pictures share: marks of nodes, and numbers with their nouns.

use crate::print::count;

use super::{ConfigNode, Edge, Hash, WorkloadNode};

/// Returns the mark of an object, if there is something to notice.
pub(super) fn mark_of_object(object: &ConfigNode) -> Option<&'static str> {
    match object.exists {
        Some(true) => None,
        Some(false) => Some("missing"),
        None => Some("unseen"),
    }
}

/// Returns the mark of a workload, if there is something to notice.
pub(super) fn mark_of_workload(workload: &WorkloadNode) -> Option<&'static str> {
    match workload.hash {
        Hash::Own => None,
        Hash::Baseline => Some("baseline"),
        Hash::Foreign => Some("foreign hash"),
        Hash::None => Some("no hash yet"),
    }
}

/// Returns the tracked keys in one line; empty if all are tracked.
pub(super) fn keys(edge: &Edge) -> String {
    edge.keys.as_deref().unwrap_or_default().join(", ")
}

/// Returns the keys as [`keys`] does, for a narrow space.
pub(super) fn short_keys(edge: &Edge) -> String {
    match edge.keys.as_deref().unwrap_or_default() {
        [key] => key.clone(),
        keys => count(keys.len(), "key"),
    }
}

/// Returns the title of a namespace. A workload may have none.
pub(super) fn namespace(name: &str) -> &str {
    if name.is_empty() {
        "no namespace"
    } else {
        name
    }
}

/// Returns the number of pods that a workload asks for.
pub(super) fn pods(workload: &WorkloadNode) -> Option<String> {
    let number = usize::try_from(workload.pods?).ok()?;
    Some(count(number, "pod"))
}

/// Returns the notes below the name of a workload: pods and mark.
pub(super) fn notes_of_workload(workload: &WorkloadNode) -> String {
    let mark = mark_of_workload(workload).map(str::to_owned);
    let notes: Vec<String> = pods(workload).into_iter().chain(mark).collect();
    notes.join(", ")
}
