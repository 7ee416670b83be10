//! What the reconcile loop knows of the workloads, and since when.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::decision::keys_relied_on;
use pod_reloader_core::hash::KeyId;
use pod_reloader_core::index::{Index, Turned};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

/// The workloads that are kept, as they were last seen.
#[derive(Default)]
pub(crate) struct Workloads(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    index: Index,
    seen: HashMap<WorkloadId, Seen>,
}

struct Seen {
    /// When the present value of KEY was first seen.
    key: Instant,
    /// The resourceVersion that was seen last.
    version: u64,
    /// When news of one of its objects first came that no look has dealt with.
    heard: Option<Instant>,
}

impl Workloads {
    /// Takes in a workload that is kept, as it was at a resourceVersion. Where that is news, says for
    /// which objects it matters.
    pub(crate) fn apply(&self, workload: Workload, version: u64, now: Instant) -> Option<Turned> {
        let mut inner = self.0.lock();
        let known = inner.index.workload(&workload.id);
        let same_key = known.is_some_and(|known| {
            known.uid == workload.uid
                && known.templates == workload.templates
                && known.markers.baseline == workload.markers.baseline
        });
        match inner.seen.get_mut(&workload.id) {
            Some(seen) => {
                seen.version = version;
                if !same_key {
                    seen.key = now;
                }
            }
            None => {
                let seen = Seen {
                    key: now,
                    version,
                    heard: None,
                };
                inner.seen.insert(workload.id.clone(), seen);
            }
        }
        inner.index.apply(workload)
    }

    /// Forgets a workload. Where it was known, says for which objects it matters.
    pub(crate) fn delete(&self, id: &WorkloadId) -> Option<Turned> {
        let mut inner = self.0.lock();
        inner.seen.remove(id);
        inner.index.delete(id)
    }

    /// The workload, and since when it has carried its KEY.
    pub(crate) fn get(&self, id: &WorkloadId) -> Option<(Arc<Workload>, Instant)> {
        let inner = self.0.lock();
        Some((inner.index.workload(id)?, inner.seen.get(id)?.key))
    }

    /// Whether it has been seen at a later resourceVersion than this.
    pub(crate) fn is_known_later_than(&self, id: &WorkloadId, version: u64) -> bool {
        self.0
            .lock()
            .seen
            .get(id)
            .is_some_and(|seen| seen.version > version)
    }

    /// The workloads that the object may count for, of which there was news at `heard`, if any.
    pub(crate) fn consumers(
        &self,
        reference: &Reference,
        heard: Option<Instant>,
    ) -> Vec<WorkloadId> {
        let mut inner = self.0.lock();
        let ids: Vec<_> = inner.index.workloads_of(reference).cloned().collect();
        if let Some(heard) = heard {
            for id in &ids {
                if let Some(seen) = inner.seen.get_mut(id) {
                    seen.heard.get_or_insert(heard);
                }
            }
        }
        ids
    }

    /// Takes out when the first news of a workload came, for a look at it to deal with.
    pub(crate) fn take_heard(&self, id: &WorkloadId) -> Option<Instant> {
        self.0.lock().seen.get_mut(id)?.heard.take()
    }

    /// Puts that back, as the look has not dealt with it.
    pub(crate) fn put_back(&self, id: &WorkloadId, heard: Option<Instant>) {
        if let Some(seen) = self.0.lock().seen.get_mut(id) {
            seen.heard = heard.or(seen.heard);
        }
    }

    /// Whether the object may count for any workload.
    pub(crate) fn is_referenced(&self, reference: &Reference) -> bool {
        self.0.lock().index.is_referenced(reference)
    }

    /// How many config objects are named, and how many references to them there are.
    pub(crate) fn referenced(&self) -> (usize, usize) {
        self.0.lock().index.referenced()
    }

    /// Those that `matches` holds for.
    pub(crate) fn ids(&self, matches: impl Fn(&WorkloadId) -> bool) -> Vec<WorkloadId> {
        self.0
            .lock()
            .index
            .workloads()
            .filter(|id| matches(id))
            .cloned()
            .collect()
    }

    /// How many of them rely on each key of the config hash.
    pub(crate) fn relying_on_keys(&self) -> HashMap<KeyId, usize> {
        let mut counts = HashMap::new();
        let inner = self.0.lock();
        let workloads = inner
            .index
            .workloads()
            .filter_map(|id| inner.index.workload(id));
        for key_id in workloads.flat_map(|workload| keys_relied_on(&workload)) {
            *counts.entry(key_id).or_default() += 1;
        }
        counts
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().seen.len()
    }
}
