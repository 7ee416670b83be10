//! Remembers the workloads that their namespaces have no room for.

use std::sync::Arc;

use super::{Index, LeftOut, MAX_LEFT_OUT};
use crate::name::Name;
use crate::workload::{Workload, WorkloadId};

impl<N: Default> Index<N> {
    /// Returns true if the workload is remembered as left out.
    pub fn is_left_out(&self, id: &WorkloadId) -> bool {
        let namespace = self.namespaces.get(&id.namespace);
        namespace.is_some_and(|it| it.left_out.contains_key(id))
    }

    /// Returns the workloads that are remembered as left out.
    pub fn left_out(&self) -> impl Iterator<Item = &WorkloadId> {
        self.namespaces.values().flat_map(|it| it.left_out.keys())
    }

    /// Returns the left-out workloads of a namespace that fit now, in the order of their names.
    pub fn that_fit(&self, namespace: &Name) -> Vec<WorkloadId> {
        let Some(namespace) = self.namespaces.get(namespace) else {
            return Vec::new();
        };
        let mut room = self.share - namespace.weight;
        let mut fits = |weight: usize| {
            let rest = room.checked_sub(weight);
            room = rest.unwrap_or(room);
            rest.is_some()
        };
        let left_out = namespace.left_out.iter();
        let fitting = left_out.filter(|(_, weight)| fits(**weight));
        fitting.map(|(id, _)| id.clone()).collect()
    }

    /// Stops managing a workload, because its namespace has no room for it at this weight.
    pub(super) fn leave_out(&mut self, workload: Arc<Workload>, weight: usize) -> LeftOut {
        let id = &*workload.id;
        let before = self.remove(id);
        let affected = before.map(|before| self.affected(Some(before.workload), None));
        let namespace = self.namespaces.entry(id.namespace.clone()).or_default();
        let left_out = &mut namespace.left_out;
        let is_first = left_out.is_empty();
        let is_known = left_out.contains_key(id);
        let is_news = !is_known && left_out.len() < MAX_LEFT_OUT;
        if is_known || is_news {
            left_out.insert(id.clone(), weight);
        }
        LeftOut {
            workload,
            affected,
            is_news,
            is_first,
        }
    }
}
