//! The words that all pictures share: marks of nodes, and numbers with their nouns.

use crate::print::count;

use super::{ConfigNode, Edge, Hash, WorkloadNode};

/// Returns the mark of an object, if there is something to notice.
pub(super) fn mark_of_object(object: &ConfigNode) -> Option<&'static str> {
    match object.exists {
        Some(true) => object.is_held.then_some(ON_HOLD),
        Some(false) => Some("missing"),
        None => Some("unseen"),
    }
}

/// Returns the mark of a workload, if there is something to notice. There is room for one.
pub(super) fn mark_of_workload(workload: &WorkloadNode) -> Option<&'static str> {
    match workload.hash {
        _ if workload.is_held => Some(ON_HOLD),
        Hash::Own => None,
        Hash::Baseline => Some("baseline"),
        Hash::Foreign => Some("foreign hash"),
        Hash::None => Some("no hash yet"),
    }
}

const ON_HOLD: &str = "on hold";

/// Returns the stage of a workload whose restarts are staged.
pub(super) fn stage(workload: &WorkloadNode) -> Option<String> {
    Some(format!("stage {}", workload.stage?))
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

/// Returns the notes below the name of a workload: pods, stage and mark.
pub(super) fn notes_of_workload(workload: &WorkloadNode) -> String {
    let mark = mark_of_workload(workload).map(str::to_owned);
    let notes = [pods(workload), stage(workload), mark];
    Vec::from_iter(notes.into_iter().flatten()).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::examples::small;

    #[test]
    fn holds_and_stages_are_told() {
        let mut graph = small();
        assert_eq!(mark_of_object(&graph.objects[0]), None);
        graph.objects[0].is_held = true;
        assert_eq!(mark_of_object(&graph.objects[0]), Some("on hold"));
        let mut web = graph.workloads.remove(0);
        web.stage = Some(0);
        assert_eq!(mark_of_workload(&web), None);
        assert_eq!(notes_of_workload(&web), "1 pod, stage 0");
        web.is_held = true;
        assert_eq!(notes_of_workload(&web), "1 pod, stage 0, on hold");
    }
}
