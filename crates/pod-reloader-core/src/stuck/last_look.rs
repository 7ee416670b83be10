//! Remembers which pod is in the way of a corrected configuration, and since when.

use std::time::{Duration, Instant};

use super::SetPod;

/// The last look at a StatefulSet whose rollout is under way.
#[derive(Default)]
pub struct LastLook {
    at: Option<Instant>,
    found: Option<Found>,
}

/// A pod that was in the way.
struct Found {
    uid: Box<str>,
    ready_changed: Option<Box<str>>,
    since: Instant,
}

impl LastLook {
    /// Returns when to look at the pods of a StatefulSet again, if not now.
    pub fn next_look(&self, pause: Duration, now: Instant) -> Option<Instant> {
        let next = self.at? + pause;
        (now < next).then_some(next)
    }

    /// Notes a look at the pods of a StatefulSet, and returns since when this pod has been seen in the way.
    pub fn saw(&mut self, pod: Option<&SetPod>, now: Instant) -> Option<Instant> {
        let before = self.found.take();
        self.at = Some(now);
        self.found = pod.map(|pod| {
            let (uid, ready_changed) = (pod.uid(), pod.ready_changed());
            let is_same =
                |it: &Found| *it.uid == *uid && it.ready_changed.as_deref() == ready_changed;
            before.filter(is_same).unwrap_or_else(|| Found {
                uid: uid.into(),
                ready_changed: ready_changed.map(Into::into),
                since: now,
            })
        });
        self.found.as_ref().map(|it| it.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_is_in_the_way_for_as_long_as_it_is_the_same_and_was_not_ready_in_between() {
        let pod = |uid: &str, since: &str| -> SetPod {
            serde_json::from_value(json!({
                "metadata": {"name": "db-0", "uid": uid},
                "status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}]},
            }))
            .unwrap()
        };
        let (mut last, began) = (LastLook::default(), Instant::now());
        let pause = Duration::from_secs(30);
        let mut now = began;
        let mut saw = |pod: Option<SetPod>| {
            let since = last.saw(pod.as_ref(), now);
            assert_eq!(last.next_look(pause, now), Some(now + pause));
            now += pause;
            assert_eq!(last.next_look(pause, now), None);
            since.map(|since| (since - began).as_secs())
        };
        assert_eq!(saw(Some(pod("a", "12:00"))), Some(0));
        assert_eq!(saw(Some(pod("a", "12:00"))), Some(0));
        assert_eq!(saw(Some(pod("a", "13:00"))), Some(60));
        assert_eq!(saw(Some(pod("b", "13:00"))), Some(90));
        assert_eq!(saw(None), None);
        assert_eq!(saw(Some(pod("b", "13:00"))), Some(150));
    }
}
