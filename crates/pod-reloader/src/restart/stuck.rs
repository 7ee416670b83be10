//! Remembers which pods are in the way of a corrected configuration, and since when.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_core::stuck::SetPod;
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;

/// The looks at StatefulSets whose rollout is under way.
#[derive(Default)]
pub(crate) struct Stuck(Mutex<HashMap<WorkloadId, Look>>);

/// The last look at the pods of a StatefulSet.
struct Look {
    at: Instant,
    found: Option<Found>,
}

/// A pod that was in the way.
struct Found {
    uid: Box<str>,
    ready_changed: Option<Box<str>>,
    since: Instant,
}

impl Stuck {
    /// Returns when to look at the pods of a StatefulSet again, if not now.
    pub(crate) fn next_look(&self, id: &WorkloadId, pause: Duration) -> Option<Instant> {
        let next = self.0.lock().get(id)?.at + pause;
        (Instant::now() < next).then_some(next)
    }

    /// Notes a look at the pods of a StatefulSet, and returns since when this pod has been seen in the way.
    pub(crate) fn saw(&self, id: &WorkloadId, pod: Option<&SetPod>) -> Option<Instant> {
        let now = Instant::now();
        let mut looks = self.0.lock();
        let before = looks.remove(id).and_then(|it| it.found);
        let found = pod.map(|pod| {
            let (uid, ready_changed) = (pod.uid(), pod.ready_changed());
            let is_same =
                |it: &Found| *it.uid == *uid && it.ready_changed.as_deref() == ready_changed;
            before.filter(is_same).unwrap_or_else(|| Found {
                uid: uid.into(),
                ready_changed: ready_changed.map(Into::into),
                since: now,
            })
        });
        let since = found.as_ref().map(|it| it.since);
        looks.insert(id.clone(), Look { at: now, found });
        since
    }

    /// Forgets a workload.
    pub(crate) fn forget(&self, id: &WorkloadId) {
        self.0.lock().remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_reloader_core::kind::WorkloadKind;
    use pod_reloader_core::name::Name;
    use serde_json::json;

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_in_the_way_for_as_long_as_it_is_the_same_and_was_not_ready_in_between() {
        let pod = |uid: &str, since: &str| -> SetPod {
            serde_json::from_value(json!({
                "metadata": {"name": "db-0", "uid": uid},
                "status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}]},
            }))
            .unwrap()
        };
        let (stuck, began) = (Stuck::default(), Instant::now());
        let id = WorkloadId {
            kind: WorkloadKind::STATEFUL_SET,
            namespace: Name::parse("ns").unwrap(),
            name: "db".into(),
        };
        let pause = Duration::from_secs(30);
        let saw = async |pod: Option<SetPod>| {
            let since = stuck.saw(&id, pod.as_ref());
            assert_eq!(stuck.next_look(&id, pause), Some(Instant::now() + pause));
            tokio::time::sleep(pause).await;
            assert_eq!(stuck.next_look(&id, pause), None);
            since.map(|since| (since - began).as_secs())
        };
        assert_eq!(saw(Some(pod("a", "12:00"))).await, Some(0));
        assert_eq!(saw(Some(pod("a", "12:00"))).await, Some(0));
        assert_eq!(saw(Some(pod("a", "13:00"))).await, Some(60));
        assert_eq!(saw(Some(pod("b", "13:00"))).await, Some(90));
        assert_eq!(saw(None).await, None);
        assert_eq!(saw(Some(pod("b", "13:00"))).await, Some(150));
    }
}
