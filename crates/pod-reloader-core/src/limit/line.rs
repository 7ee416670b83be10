//! Remembers the order in which workloads wait for a slot, and in which their namespaces take turns.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Values};

use crate::name::Name;
use crate::workload::WorkloadId;

/// The workloads that wait for a slot, or are about to take one.
#[derive(Default)]
pub(super) struct Line {
    places: HashMap<WorkloadId, Place>,
    namespaces: HashMap<Name, Namespace>,
    /// The number of places and turns that have been given. A lower number goes first.
    given: u64,
}

/// The place of a workload in the line.
struct Place {
    number: u64,
    state: State,
}

/// The workloads of a namespace that are in the line.
struct Namespace {
    turn: u64,
    /// The workloads, by the numbers of their places.
    workloads: BTreeMap<u64, WorkloadId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// A pass over the workload is in progress, and has not been told to wait.
    Asks,
    /// The workload waits for its turn.
    Waits,
    /// Another pass over the workload is about to begin, because it is its turn.
    Wakes,
}

impl Line {
    /// Puts a workload at the end of the line of its namespace, unless it has a place already.
    pub(super) fn join(&mut self, id: &WorkloadId) {
        if self.places.contains_key(id) {
            return;
        }
        self.given += 1;
        let number = self.given;
        let state = State::Asks;
        self.places.insert(id.clone(), Place { number, state });
        let namespace = self.namespaces.entry(id.namespace.clone());
        let namespace = namespace.or_insert_with(|| Namespace {
            turn: number,
            workloads: BTreeMap::new(),
        });
        namespace.workloads.insert(number, id.clone());
    }

    /// Notes that a pass over a workload begins.
    pub(super) fn pass_begins(&mut self, id: &WorkloadId) {
        self.set(id, State::Asks);
    }

    /// Notes that a workload is told to wait.
    pub(super) fn waits(&mut self, id: &WorkloadId) {
        self.set(id, State::Waits);
    }

    /// Notes that another pass over a workload is about to begin. Returns false if it was not waiting for that.
    pub(super) fn wakes(&mut self, id: &WorkloadId) -> bool {
        let is_waiting = self.state(id) == Some(State::Waits);
        if is_waiting {
            self.set(id, State::Wakes);
        }
        is_waiting
    }

    /// Takes out a workload that is restarted. Its namespace has had its turn.
    pub(super) fn goes(&mut self, id: &WorkloadId) {
        if self.leave(id)
            && let Some(namespace) = self.namespaces.get_mut(&id.namespace)
        {
            self.given += 1;
            namespace.turn = self.given;
        }
    }

    /// Notes that a pass over a workload has ended, and takes out the workload if it was not told to wait. Returns
    /// false if it had no place.
    pub(super) fn pass_ended(&mut self, id: &WorkloadId) -> bool {
        let state = self.state(id);
        if state == Some(State::Asks) {
            self.leave(id);
        }
        state.is_some()
    }

    /// Takes out a workload. Returns false if it has no place.
    pub(super) fn leave(&mut self, id: &WorkloadId) -> bool {
        let Some(place) = self.places.remove(id) else {
            return false;
        };
        if let Some(namespace) = self.namespaces.get_mut(&id.namespace) {
            namespace.workloads.remove(&place.number);
            if namespace.workloads.is_empty() {
                self.namespaces.remove(&id.namespace);
            }
        }
        true
    }

    /// Returns the namespaces in the order of their turns, each with its workloads in the order of their places.
    pub(super) fn turns(&self) -> Vec<(&Name, Values<'_, u64, WorkloadId>)> {
        let mut turns: Vec<_> = self.namespaces.iter().collect();
        turns.sort_unstable_by_key(|(_, namespace)| namespace.turn);
        let lines = turns.into_iter();
        lines
            .map(|(name, namespace)| (name, namespace.workloads.values()))
            .collect()
    }

    fn state(&self, id: &WorkloadId) -> Option<State> {
        self.places.get(id).map(|place| place.state)
    }

    fn set(&mut self, id: &WorkloadId, state: State) {
        if let Some(place) = self.places.get_mut(id) {
            place.state = state;
        }
    }
}
