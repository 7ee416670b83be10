//! Which workload is looked at next, and when: a queue of workloads without clock or I/O.

use std::collections::{BTreeSet, HashMap};

use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;

/// Workloads to look at, each at most once at a time and in one place.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    slots: HashMap<WorkloadId, Slot>,
    due: BTreeSet<(Instant, WorkloadId)>,
}

#[derive(Debug)]
enum Slot {
    /// It is due at this time.
    Waiting(Instant),
    /// It is being looked at, and is due again at this time.
    Running(Option<Instant>),
}

impl Queue {
    /// Has `id` looked at, at `at` or, if it is due already, earlier.
    pub(crate) fn push(&mut self, id: WorkloadId, at: Instant) {
        match self.slots.get_mut(&id) {
            Some(Slot::Running(again)) => *again = Some(again.map_or(at, |again| again.min(at))),
            Some(Slot::Waiting(due)) if *due <= at => {}
            Some(Slot::Waiting(due)) => {
                self.due.remove(&(*due, id.clone()));
                *due = at;
                self.due.insert((at, id));
            }
            None => {
                self.slots.insert(id.clone(), Slot::Waiting(at));
                self.due.insert((at, id));
            }
        }
    }

    /// Takes out the workload that has been due for longest, to be looked at until [`Queue::done`].
    pub(crate) fn pop(&mut self, now: Instant) -> Option<WorkloadId> {
        if self.next_due()? > now {
            return None;
        }
        let (_, id) = self.due.pop_first()?;
        self.slots.insert(id.clone(), Slot::Running(None));
        Some(id)
    }

    /// Says that `id` has been looked at, and when it wants to be again.
    pub(crate) fn done(&mut self, id: WorkloadId, again: Option<Instant>) {
        let Some(Slot::Running(pushed)) = self.slots.remove(&id) else {
            return;
        };
        let at = match (pushed, again) {
            (Some(pushed), Some(again)) => Some(pushed.min(again)),
            (pushed, again) => pushed.or(again),
        };
        if let Some(at) = at {
            self.push(id, at);
        }
    }

    /// When the next workload is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_reloader_core::name::Name;
    use pod_reloader_core::workload::WorkloadKind;
    use std::time::Duration;

    fn id(name: &str) -> WorkloadId {
        let namespace = Name::parse("ns").unwrap();
        WorkloadId {
            kind: WorkloadKind::Deployment,
            namespace,
            name: name.into(),
        }
    }

    fn seconds(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_workload_comes_out_when_it_is_due_and_once() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        queue.push(id("web"), seconds(start, 2));
        queue.push(id("web"), seconds(start, 5));
        assert_eq!(queue.pop(seconds(start, 1)), None);
        assert_eq!(queue.pop(seconds(start, 2)), Some(id("web")));
        assert_eq!(queue.pop(seconds(start, 9)), None);
    }

    #[test]
    fn an_earlier_time_wins() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        queue.push(id("web"), seconds(start, 5));
        queue.push(id("web"), seconds(start, 1));
        assert_eq!(queue.next_due(), Some(seconds(start, 1)));
        queue.pop(seconds(start, 1));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn what_happens_while_a_workload_is_looked_at_is_not_lost() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        queue.push(id("web"), start);
        queue.pop(start);
        queue.push(id("web"), start);
        assert_eq!(
            queue.pop(start),
            None,
            "it is never looked at twice at once"
        );
        queue.done(id("web"), Some(seconds(start, 9)));
        assert_eq!(queue.pop(start), Some(id("web")));
        queue.done(id("web"), None);
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn who_has_been_due_for_longest_goes_first() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        queue.push(id("b"), seconds(start, 2));
        queue.push(id("a"), seconds(start, 1));
        queue.push(id("c"), seconds(start, 1));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(seconds(start, 9))).collect();
        assert_eq!(order, [id("a"), id("c"), id("b")]);
    }
}
