//! What all pictures call the same: marks of nodes, and numbers with their nouns.

use crate::print::count;

use super::{ConfigNode, Edge, Hash, WorkloadNode};

/// What is to be noticed about an object.
pub(super) fn mark_of_object(object: &ConfigNode) -> Option<&'static str> {
    match object.exists {
        Some(true) => None,
        Some(false) => Some("missing"),
        None => Some("unseen"),
    }
}

/// What is to be noticed about a workload.
pub(super) fn mark_of_workload(workload: &WorkloadNode) -> Option<&'static str> {
    match workload.hash {
        Hash::Own => None,
        Hash::Baseline => Some("baseline"),
        Hash::Foreign => Some("foreign hash"),
        Hash::None => Some("no hash yet"),
    }
}

/// The keys that count, in one line; empty for all.
pub(super) fn keys(edge: &Edge) -> String {
    edge.keys.as_deref().unwrap_or_default().join(", ")
}

/// As [`keys`], where there is little room.
pub(super) fn short_keys(edge: &Edge) -> String {
    match edge.keys.as_deref().unwrap_or_default() {
        [key] => key.clone(),
        keys => count(keys.len(), "key"),
    }
}

/// What a namespace is called; a workload may be in none.
pub(super) fn namespace(name: &str) -> &str {
    if name.is_empty() {
        "no namespace"
    } else {
        name
    }
}

/// How many pods it is to have.
pub(super) fn pods(workload: &WorkloadNode) -> Option<String> {
    let number = usize::try_from(workload.pods?).ok()?;
    Some(count(number, "pod"))
}

/// What is written below the name of a workload: pods, and its mark.
pub(super) fn notes_of_workload(workload: &WorkloadNode) -> String {
    let mark = mark_of_workload(workload).map(str::to_owned);
    let notes: Vec<String> = pods(workload).into_iter().chain(mark).collect();
    notes.join(", ")
}
