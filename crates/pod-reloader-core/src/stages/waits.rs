//! Remembers which workload waits for which other one.

use std::collections::{BTreeSet, HashMap};

use crate::reference::Reference;
use crate::workload::WorkloadId;

/// The number of workloads over which it is followed who waits for whom.
const MAX_STEPS: usize = 100;

/// The workloads that wait, each for one other.
#[derive(Default)]
pub(super) struct Waits {
    /// For each, the other one, and the object because of which it waits.
    blockers: HashMap<WorkloadId, (WorkloadId, Reference)>,
    /// The same, the other way round.
    waiting: HashMap<WorkloadId, BTreeSet<WorkloadId>>,
}

impl Waits {
    /// Notes that a workload waits for another one because of an object. Returns the one that it has waited for
    /// so far.
    pub(super) fn insert(
        &mut self,
        id: &WorkloadId,
        blocker: &WorkloadId,
        object: &Reference,
    ) -> Option<WorkloadId> {
        let before = self.remove(id);
        let because = (blocker.clone(), object.clone());
        self.blockers.insert(id.clone(), because);
        let waiting = self.waiting.entry(blocker.clone()).or_default();
        waiting.insert(id.clone());
        before
    }

    /// Notes that a workload does not wait. Returns the one that it has waited for so far.
    pub(super) fn remove(&mut self, id: &WorkloadId) -> Option<WorkloadId> {
        let (blocker, _) = self.blockers.remove(id)?;
        if let Some(waiting) = self.waiting.get_mut(&blocker) {
            waiting.remove(id);
            if waiting.is_empty() {
                self.waiting.remove(&blocker);
            }
        }
        Some(blocker)
    }

    /// Returns the workload that a workload waits for.
    pub(super) fn blocker(&self, id: &WorkloadId) -> Option<&WorkloadId> {
        self.blockers.get(id).map(|(blocker, _)| blocker)
    }

    /// Returns true if a workload waits for another one, directly or over others, because of an object for
    /// which `is_meant` holds.
    pub(super) fn lead(
        &self,
        from: &WorkloadId,
        to: &WorkloadId,
        is_meant: impl Fn(&Reference) -> bool,
    ) -> bool {
        let mut at = from;
        for _ in 0..MAX_STEPS {
            match self.blockers.get(at) {
                Some((next, object)) if next == to => return is_meant(object),
                Some((next, _)) => at = next,
                None => return false,
            }
        }
        false
    }

    /// Returns the workloads that wait for a workload.
    pub(super) fn waiting_for(&self, id: &WorkloadId) -> Vec<WorkloadId> {
        let waiting = self.waiting.get(id).into_iter().flatten();
        waiting.cloned().collect()
    }

    /// Returns true if a workload waits for this one.
    pub(super) fn is_waited_for(&self, id: &WorkloadId) -> bool {
        self.waiting.contains_key(id)
    }
}
