//! The workloads that name one object.

use std::slice;
use std::sync::Arc;

use crate::workload::WorkloadId;

/// The workloads that name an object, sorted. Most objects are named by one workload, which takes no allocation.
#[derive(Debug)]
pub(super) enum Consumers {
    One(Arc<WorkloadId>),
    Many(Vec<Arc<WorkloadId>>),
}

impl Consumers {
    pub(super) fn all(&self) -> &[Arc<WorkloadId>] {
        match self {
            Self::One(id) => slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }

    pub(super) fn contain(&self, id: &WorkloadId) -> bool {
        self.position(id).is_ok()
    }

    pub(super) fn insert(&mut self, id: &Arc<WorkloadId>) {
        let Err(at) = self.position(id) else {
            return;
        };
        if let Self::One(first) = self {
            *self = Self::Many(vec![first.clone()]);
        }
        if let Self::Many(ids) = self {
            ids.insert(at, id.clone());
        }
    }

    /// Removes a workload. Returns true if none is left.
    pub(super) fn remove(&mut self, id: &WorkloadId) -> bool {
        match (self.position(id), self) {
            (Ok(_), Self::One(_)) => true,
            (Ok(at), Self::Many(ids)) => {
                ids.remove(at);
                ids.is_empty()
            }
            (Err(_), _) => false,
        }
    }

    fn position(&self, id: &WorkloadId) -> Result<usize, usize> {
        self.all().binary_search_by(|own| (**own).cmp(id))
    }
}
