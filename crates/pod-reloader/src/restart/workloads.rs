//! Remembers the workloads as they were last seen, and since when.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::decision::keys_relied_on;
use pod_reloader_core::hash::KeyId;
use pod_reloader_core::index::{Affected, Applied, Index};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use crate::restart::moment::Moment;

/// The managed workloads, as they were last seen.
pub(crate) struct Workloads(Mutex<Index<Seen>>);

#[derive(Default)]
pub(crate) struct Seen {
    /// The time when the current config hash and baseline were first seen.
    hash_since: Option<Moment>,
    /// The last resourceVersion that was seen.
    version: u64,
    /// The time of the first news of one of its objects that no pass has handled yet.
    first_news: Option<Moment>,
}

impl Workloads {
    /// Returns an empty set. The workloads of one namespace may take `share` bytes.
    pub(crate) fn new(share: usize) -> Self {
        Self(Mutex::new(Index::new(share)))
    }

    /// Takes in a managed workload at a resourceVersion, if there is room for it.
    pub(crate) fn apply(&self, workload: Workload, version: u64, now: Instant) -> Applied {
        let mut index = self.0.lock();
        let same_hash = index.workload(&workload.id).is_some_and(|known| {
            known.uid == workload.uid
                && known.templates == workload.templates
                && known.markers.baseline == workload.markers.baseline
        });
        let id = workload.id.clone();
        let applied = index.apply(workload);
        if let Some(seen) = index.note_mut(&id) {
            seen.version = version;
            if !same_hash {
                seen.hash_since = Some(now.into());
            }
        }
        applied
    }

    /// Forgets a workload. If it was managed, returns the objects that this affects.
    pub(crate) fn delete(&self, id: &WorkloadId) -> Option<Affected> {
        self.0.lock().delete(id)
    }

    /// Returns the workload, and since when it has carried its current config hash and baseline.
    pub(crate) fn get(&self, id: &WorkloadId) -> Option<(Arc<Workload>, Instant)> {
        let index = self.0.lock();
        let hash_since = index.note(id)?.hash_since?;
        Some((index.workload(id)?, hash_since.into()))
    }

    /// Returns true if the workload has been seen at a later resourceVersion than this.
    pub(crate) fn is_seen_later_than(&self, id: &WorkloadId, version: u64) -> bool {
        let index = self.0.lock();
        index.note(id).is_some_and(|seen| seen.version > version)
    }

    /// Returns the workloads that may track the object. `first_news` is the time of news of it, if there is any.
    pub(crate) fn consumers(
        &self,
        reference: &Reference,
        first_news: Option<Instant>,
    ) -> Vec<WorkloadId> {
        let mut index = self.0.lock();
        let ids: Vec<_> = index.workloads_of(reference).cloned().collect();
        if let Some(first_news) = first_news {
            for id in &ids {
                note_news(&mut index, id, first_news);
            }
        }
        ids
    }

    /// Takes out the time of the first news of a workload's objects, for a pass to handle.
    pub(crate) fn take_first_news(&self, id: &WorkloadId) -> Option<Instant> {
        let first_news = self.0.lock().note_mut(id)?.first_news.take();
        first_news.map(Instant::from)
    }

    /// Puts the time back, because the pass has not handled the news.
    pub(crate) fn put_back(&self, id: &WorkloadId, first_news: Option<Instant>) {
        if let Some(first_news) = first_news {
            note_news(&mut self.0.lock(), id, first_news);
        }
    }

    /// Asks the index of the workloads something.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&Index<Seen>) -> T) -> T {
        question(&self.0.lock())
    }

    /// Returns the workloads that track a SecretProviderClass in a namespace.
    pub(crate) fn mounting(&self, namespace: &Name, class: &Name) -> Vec<WorkloadId> {
        let index = self.0.lock();
        let ids = index.workloads_of_class(namespace, class);
        ids.cloned().collect()
    }

    /// Returns the workloads for which `matches` holds, including those that were left out.
    pub(crate) fn ids(&self, matches: impl Fn(&WorkloadId) -> bool) -> Vec<WorkloadId> {
        let index = self.0.lock();
        let all = index.workloads().chain(index.left_out());
        all.filter(|id| matches(id)).cloned().collect()
    }

    /// Returns the number of managed workloads that pin, and were rolled out without copies.
    pub(crate) fn without_copies(&self) -> usize {
        let index = self.0.lock();
        let all = index.workloads();
        let workloads = all.filter_map(|id| index.workload(id));
        workloads
            .filter(|workload| workload.is_without_copies())
            .count()
    }

    /// Returns, for each key, the number of workloads whose config hash or baseline relies on it.
    pub(crate) fn relying_on_keys(&self) -> HashMap<KeyId, usize> {
        let mut counts = HashMap::new();
        let index = self.0.lock();
        let all = index.workloads();
        let workloads = all.filter_map(|id| index.workload(id));
        for key_id in workloads.flat_map(|workload| keys_relied_on(&workload)) {
            *counts.entry(key_id).or_default() += 1;
        }
        counts
    }

    /// Returns the number of managed workloads.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().workloads().len()
    }
}

/// Notes the time of news of one of a workload's objects.
fn note_news(index: &mut Index<Seen>, id: &WorkloadId, at: Instant) {
    let at = Moment::from(at);
    if let Some(seen) = index.note_mut(id) {
        let first = seen.first_news.get_or_insert(at);
        *first = at.min(*first);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pod_reloader_core::annotations::CONFIG_MAPS;
    use pod_reloader_core::kind::WorkloadKind;
    use pod_reloader_core::object::WorkloadObject;
    use pod_reloader_core::scope::Scope;
    use serde_json::json;

    use super::*;
    use crate::mock::name;

    /// Returns a Deployment that lists the ConfigMap `app`.
    fn web() -> Workload {
        let object: WorkloadObject = serde_json::from_value(json!({
            "metadata": {
                "name": "web", "namespace": "ns", "uid": "web", "annotations": {CONFIG_MAPS: "app"},
            },
            "spec": {"template": {"metadata": {}, "spec": {"containers": []}}},
        }))
        .unwrap();
        let scope = Scope::new([], name("operator"));
        scope.read(WorkloadKind::DEPLOYMENT, object).unwrap()
    }

    #[test]
    fn news_stay_the_first_ones_until_a_pass_has_handled_them() {
        let workloads = Workloads::new(usize::MAX);
        let web = web();
        let now = Instant::now();
        let app = Reference::config_map(&name("ns"), &name("app"));
        let later = now + Duration::from_secs(1);
        workloads.apply(web.clone(), 1, now);
        assert_eq!(workloads.take_first_news(&web.id), None);
        assert_eq!(
            workloads.consumers(&app, Some(now)),
            std::slice::from_ref(&*web.id)
        );
        // The next version of the workload itself leaves them as they are.
        workloads.apply(web.clone(), 2, later);
        workloads.consumers(&app, Some(later));
        let first_news = workloads.take_first_news(&web.id);
        assert_eq!(first_news, Some(now));
        // Others arrive during a pass that does not handle these.
        workloads.consumers(&app, Some(later));
        workloads.put_back(&web.id, first_news);
        assert_eq!(workloads.take_first_news(&web.id), Some(now));
        assert_eq!(workloads.take_first_news(&web.id), None);
    }

    #[test]
    fn news_of_a_workload_that_is_gone_are_not_those_of_the_next_one_with_its_name() {
        let workloads = Workloads::new(usize::MAX);
        let web = web();
        let now = Instant::now();
        let app = Reference::config_map(&name("ns"), &name("app"));
        workloads.apply(web.clone(), 1, now);
        workloads.consumers(&app, Some(now));
        workloads.delete(&web.id);
        // A pass that had begun before puts its news back.
        workloads.put_back(&web.id, Some(now));
        workloads.apply(web.clone(), 2, now);
        assert_eq!(workloads.take_first_news(&web.id), None);
    }
}
