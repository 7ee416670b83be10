//! Remembers the workloads as they were last seen, and since when.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::decision::keys_relied_on;
use pod_reloader_core::digest::DataKeys;
use pod_reloader_core::hash::KeyId;
use pod_reloader_core::index::{Affected, Applied, Index};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

/// The managed workloads, as they were last seen.
pub(crate) struct Workloads(Mutex<Inner>);

struct Inner {
    index: Index,
    seen: HashMap<Arc<WorkloadId>, Seen>,
    /// The time of the first news of one of a workload's objects that no pass has handled yet.
    first_news: HashMap<Arc<WorkloadId>, Instant>,
}

struct Seen {
    /// The time when the current config hash and baseline were first seen.
    hash_since: Instant,
    /// The last resourceVersion that was seen.
    version: u64,
}

impl Workloads {
    /// Returns an empty set. The workloads of one namespace may take `share` bytes.
    pub(crate) fn new(share: usize) -> Self {
        Self(Mutex::new(Inner {
            index: Index::new(share),
            seen: HashMap::new(),
            first_news: HashMap::new(),
        }))
    }

    /// Takes in a managed workload at a resourceVersion, if there is room for it.
    pub(crate) fn apply(&self, workload: Workload, version: u64, now: Instant) -> Applied {
        let mut inner = self.0.lock();
        let known = inner.index.workload(&workload.id);
        let same_hash = known.is_some_and(|known| {
            known.uid == workload.uid
                && known.templates == workload.templates
                && known.markers.baseline == workload.markers.baseline
        });
        let id = workload.id.clone();
        let applied = inner.index.apply(workload);
        if matches!(applied, Applied::LeftOut(_)) {
            inner.forget(&id);
            return applied;
        }
        match inner.seen.get_mut(&id) {
            Some(seen) => {
                seen.version = version;
                if !same_hash {
                    seen.hash_since = now;
                }
            }
            None => {
                let seen = Seen {
                    hash_since: now,
                    version,
                };
                let id = inner.index.shared_id(&id);
                inner.seen.extend(id.map(|id| (id, seen)));
            }
        }
        applied
    }

    /// Forgets a workload. If it was managed, returns the objects that this affects.
    pub(crate) fn delete(&self, id: &WorkloadId) -> Option<Affected> {
        let mut inner = self.0.lock();
        inner.forget(id);
        inner.index.delete(id)
    }

    /// Returns the workload, and since when it has carried its current config hash and baseline.
    pub(crate) fn get(&self, id: &WorkloadId) -> Option<(Arc<Workload>, Instant)> {
        let inner = self.0.lock();
        Some((inner.index.workload(id)?, inner.seen.get(id)?.hash_since))
    }

    /// Returns true if the workload has been seen at a later resourceVersion than this.
    pub(crate) fn is_seen_later_than(&self, id: &WorkloadId, version: u64) -> bool {
        self.0
            .lock()
            .seen
            .get(id)
            .is_some_and(|seen| seen.version > version)
    }

    /// Returns the workloads that may track the object. `first_news` is the time of news of it, if there is any.
    pub(crate) fn consumers(
        &self,
        reference: &Reference,
        first_news: Option<Instant>,
    ) -> Vec<WorkloadId> {
        let mut inner = self.0.lock();
        let ids: Vec<_> = inner.index.workloads_of(reference).cloned().collect();
        if let Some(first_news) = first_news {
            for id in &ids {
                inner.note_news(id, first_news);
            }
        }
        ids
    }

    /// Takes out the time of the first news of a workload's objects, for a pass to handle.
    pub(crate) fn take_first_news(&self, id: &WorkloadId) -> Option<Instant> {
        let mut inner = self.0.lock();
        let first_news = inner.first_news.remove(id);
        if inner.first_news.is_empty() {
            // An object may concern all workloads, and most objects concern few.
            inner.first_news = HashMap::new();
        }
        first_news
    }

    /// Puts the time back, because the pass has not handled the news.
    pub(crate) fn put_back(&self, id: &WorkloadId, first_news: Option<Instant>) {
        if let Some(first_news) = first_news {
            self.0.lock().note_news(id, first_news);
        }
    }

    /// Returns the workloads that track a SecretProviderClass in a namespace.
    pub(crate) fn mounting(&self, namespace: &Name, class: &Name) -> Vec<WorkloadId> {
        let inner = self.0.lock();
        let ids = inner.index.workloads_of_class(namespace, class);
        ids.cloned().collect()
    }

    /// Returns the keys of an object that matter individually to any workload.
    pub(crate) fn data_keys(&self, reference: &Reference) -> DataKeys {
        self.0.lock().index.data_keys(reference)
    }

    /// Returns true if any workload may track the object.
    pub(crate) fn is_referenced(&self, reference: &Reference) -> bool {
        self.0.lock().index.is_referenced(reference)
    }

    /// Returns the number of config objects that are referenced, and the number of references to them.
    pub(crate) fn referenced(&self) -> (usize, usize) {
        self.0.lock().index.referenced()
    }

    /// Returns true if a workload tracks the object that already did so before `affected`.
    pub(crate) fn stays_tracked(&self, reference: &Reference, affected: &Affected) -> bool {
        self.0.lock().index.stays_tracked(reference, affected)
    }

    /// Returns true if any workload has a regular expression for names of a kind in a namespace.
    pub(crate) fn has_patterns(&self, place: &(ConfigKind, Name)) -> bool {
        self.0.lock().index.has_patterns(place)
    }

    /// Returns the workloads for which `matches` holds, including those that were left out.
    pub(crate) fn ids(&self, matches: impl Fn(&WorkloadId) -> bool) -> Vec<WorkloadId> {
        let inner = self.0.lock();
        let all = inner.index.workloads().chain(inner.index.left_out());
        all.filter(|id| matches(id)).cloned().collect()
    }

    /// Returns true if the workload was left out.
    pub(crate) fn is_left_out(&self, id: &WorkloadId) -> bool {
        self.0.lock().index.is_left_out(id)
    }

    /// Returns the number of workloads that were left out.
    pub(crate) fn left_out(&self) -> usize {
        self.0.lock().index.left_out().count()
    }

    /// Returns the left-out workloads of a namespace for which there is room now.
    pub(crate) fn that_fit(&self, namespace: &Name) -> Vec<WorkloadId> {
        self.0.lock().index.that_fit(namespace)
    }

    /// Returns the number of managed workloads that pin, and were rolled out without copies.
    pub(crate) fn without_copies(&self) -> usize {
        let inner = self.0.lock();
        let all = inner.index.workloads();
        let workloads = all.filter_map(|id| inner.index.workload(id));
        workloads
            .filter(|workload| workload.is_without_copies())
            .count()
    }

    /// Returns, for each key, the number of workloads whose config hash or baseline relies on it.
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

    /// Returns the number of managed workloads.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().seen.len()
    }
}

impl Inner {
    fn forget(&mut self, id: &WorkloadId) {
        self.seen.remove(id);
        self.first_news.remove(id);
    }

    /// Notes the time of news of one of a workload's objects.
    fn note_news(&mut self, id: &WorkloadId, at: Instant) {
        if let Some((id, _)) = self.seen.get_key_value(id) {
            let first = self.first_news.entry(id.clone()).or_insert(at);
            *first = at.min(*first);
        }
    }
}
