//! Remembers which pod is in the way of a corrected configuration, and since when.

use std::time::Duration;

use pod_reloader_core::stuck::SetPod;
use tokio::time::Instant;

/// The last look at a StatefulSet whose rollout is under way.
#[derive(Default)]
pub(crate) struct Stuck(Option<Box<Look>>);

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
    pub(crate) fn next_look(&self, pause: Duration) -> Option<Instant> {
        let next = self.0.as_ref()?.at + pause;
        (Instant::now() < next).then_some(next)
    }

    /// Notes a look at the pods of a StatefulSet, and returns since when this pod has been seen in the way.
    pub(crate) fn saw(&mut self, pod: Option<&SetPod>) -> Option<Instant> {
        let now = Instant::now();
        let before = self.0.take().and_then(|look| look.found);
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
        self.0 = Some(Box::new(Look { at: now, found }));
        since
    }

    /// Returns true if no look is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let (mut stuck, began) = (Stuck::default(), Instant::now());
        let pause = Duration::from_secs(30);
        let mut saw = async |pod: Option<SetPod>| {
            let since = stuck.saw(pod.as_ref());
            assert_eq!(stuck.next_look(pause), Some(Instant::now() + pause));
            tokio::time::sleep(pause).await;
            assert_eq!(stuck.next_look(pause), None);
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
