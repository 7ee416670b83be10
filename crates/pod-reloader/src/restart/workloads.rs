//! What the reconcile loop knows of the workloads, and since when.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::decision::keys_relied_on;
use pod_reloader_core::digest::DataKeys;
use pod_reloader_core::hash::KeyId;
use pod_reloader_core::index::{Applied, Index, Turned};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

/// The workloads that are kept, as they were last seen.
pub(crate) struct Workloads(Mutex<Inner>);

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
    /// None yet. Those of one namespace may take `share` bytes.
    pub(crate) fn new(share: usize) -> Self {
        Self(Mutex::new(Inner {
            index: Index::new(share),
            seen: HashMap::new(),
        }))
    }

    /// Takes in a workload that is kept, as it was at a resourceVersion, if there is room for it.
    pub(crate) fn apply(&self, workload: Workload, version: u64, now: Instant) -> Applied {
        let mut inner = self.0.lock();
        let known = inner.index.workload(&workload.id);
        let same_key = known.is_some_and(|known| {
            known.uid == workload.uid
                && known.templates == workload.templates
                && known.markers.baseline == workload.markers.baseline
        });
        let id = workload.id.clone();
        let applied = inner.index.apply(workload);
        if matches!(applied, Applied::LeftOut(_)) {
            inner.seen.remove(&id);
            return applied;
        }
        match inner.seen.get_mut(&id) {
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
                inner.seen.insert(id, seen);
            }
        }
        applied
    }

    /// Forgets a workload. Where it was managed, says for which objects it matters.
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

    /// The keys of an object that decide about any workload by themselves.
    pub(crate) fn data_keys(&self, reference: &Reference) -> DataKeys {
        self.0.lock().index.data_keys(reference)
    }

    /// Whether the object may count for any workload.
    pub(crate) fn is_referenced(&self, reference: &Reference) -> bool {
        self.0.lock().index.is_referenced(reference)
    }

    /// How many config objects are named, and how many references to them there are.
    pub(crate) fn referenced(&self) -> (usize, usize) {
        self.0.lock().index.referenced()
    }

    /// Whether a workload tracked the object before `turned` that tracks it still.
    pub(crate) fn stays_tracked(&self, reference: &Reference, turned: &Turned) -> bool {
        self.0.lock().index.stays_tracked(reference, turned)
    }

    /// Whether any workload has a regular expression for names of a kind in a namespace.
    pub(crate) fn has_patterns(&self, place: &(ConfigKind, Name)) -> bool {
        self.0.lock().index.has_patterns(place)
    }

    /// Those that `matches` holds for, with those that were left out.
    pub(crate) fn ids(&self, matches: impl Fn(&WorkloadId) -> bool) -> Vec<WorkloadId> {
        let inner = self.0.lock();
        let all = inner.index.workloads().chain(inner.index.left_out());
        all.filter(|id| matches(id)).cloned().collect()
    }

    /// Whether the workload was left out.
    pub(crate) fn is_left_out(&self, id: &WorkloadId) -> bool {
        self.0.lock().index.is_left_out(id)
    }

    /// How many were left out.
    pub(crate) fn left_out(&self) -> usize {
        self.0.lock().index.left_out().count()
    }

    /// Those of a namespace that were left out and that there is room for now.
    pub(crate) fn that_fit(&self, namespace: &Name) -> Vec<WorkloadId> {
        self.0.lock().index.that_fit(namespace)
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

    /// How many are managed.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().seen.len()
    }
}
