//! Which workload is looked at next, and when: a queue of workloads without clock or I/O.

use std::collections::{BTreeSet, HashMap, VecDeque};

use pod_reloader_core::name::Name;
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;

/// Workloads to look at, each at most once at a time and in one place.
///
/// Those that are due wait in a line of their namespace, and namespaces take turns: a change that
/// concerns thousands of workloads of one of them holds up no other. Neither do workloads that take
/// long: no namespace has more than three quarters of them looked at that others leave to it.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    slots: HashMap<WorkloadId, Slot>,
    /// Those that are not known to be due yet.
    later: BTreeSet<(Instant, WorkloadId)>,
    /// Those that are due, by namespace.
    lines: HashMap<Name, VecDeque<WorkloadId>>,
    /// The namespaces with a line, in the order of their turns.
    turns: VecDeque<Name>,
    /// How many are being looked at, by namespace.
    running: HashMap<Name, usize>,
}

/// How many workloads are looked at, and so patched, at once.
pub(crate) const AT_ONCE: usize = 16;

#[derive(Debug)]
enum Slot {
    /// It is due at this time.
    Waiting(Instant),
    /// It is due, and stands in the line of its namespace.
    Due,
    /// It is being looked at, and is due again at this time.
    Running(Option<Instant>),
}

impl Queue {
    /// Has `id` looked at, at `at` or, if it is due already, earlier.
    pub(crate) fn push(&mut self, id: WorkloadId, at: Instant) {
        match self.slots.get_mut(&id) {
            Some(Slot::Running(again)) => *again = Some(again.map_or(at, |again| again.min(at))),
            Some(Slot::Due) => {}
            Some(Slot::Waiting(due)) if *due <= at => {}
            Some(Slot::Waiting(due)) => {
                self.later.remove(&(*due, id.clone()));
                *due = at;
                self.later.insert((at, id));
            }
            None => {
                self.slots.insert(id.clone(), Slot::Waiting(at));
                self.later.insert((at, id));
            }
        }
    }

    /// Takes out a workload that is due, to be looked at until [`Queue::done`]: of the namespace whose
    /// turn it is, the one that has been due for longest.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<WorkloadId> {
        self.line_up(now);
        let free = AT_ONCE.saturating_sub(self.running.values().sum());
        let has_room = |name| self.running.get(name).copied().unwrap_or_default() < 3 * free;
        let turn = self.turns.iter().position(has_room)?;
        let namespace = self.turns.remove(turn)?;
        *self.running.entry(namespace.clone()).or_default() += 1;
        let line = self.lines.get_mut(&namespace)?;
        let id = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        self.slots.insert(id.clone(), Slot::Running(None));
        Some(id)
    }

    /// Says that `id` has been looked at, and when it wants to be again.
    pub(crate) fn done(&mut self, id: WorkloadId, again: Option<Instant>) {
        let Some(Slot::Running(pushed)) = self.slots.remove(&id) else {
            return;
        };
        if let Some(running) = self.running.get_mut(&id.namespace) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&id.namespace);
            }
        }
        let at = match (pushed, again) {
            (Some(pushed), Some(again)) => Some(pushed.min(again)),
            (pushed, again) => pushed.or(again),
        };
        if let Some(at) = at {
            self.push(id, at);
        }
    }

    /// When the next workload is due, of those that were not when [`Queue::pop`] last found none.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Puts everything that is due into the line of its namespace.
    fn line_up(&mut self, now: Instant) {
        while self.next_due().is_some_and(|at| at <= now)
            && let Some((_, id)) = self.later.pop_first()
        {
            let line = self.lines.entry(id.namespace.clone()).or_default();
            if line.is_empty() {
                self.turns.push_back(id.namespace.clone());
            }
            line.push_back(id.clone());
            self.slots.insert(id, Slot::Due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_reloader_core::kind::WorkloadKind;
    use pod_reloader_core::name::Name;
    use std::time::Duration;

    fn id(name: &str) -> WorkloadId {
        id_in("ns", name)
    }

    fn id_in(namespace: &str, name: &str) -> WorkloadId {
        let namespace = Name::parse(namespace).unwrap();
        WorkloadId {
            kind: WorkloadKind::DEPLOYMENT,
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

    #[test]
    fn namespaces_take_turns() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        for name in ["1", "2", "3", "4"] {
            queue.push(id_in("large", name), start);
        }
        assert_eq!(queue.pop(start), Some(id_in("large", "1")));
        for name in ["1", "2"] {
            queue.push(id_in("small", name), seconds(start, 1));
        }
        queue.push(id_in("tiny", "1"), seconds(start, 1));
        // Back again, behind the others of its namespace.
        queue.done(id_in("large", "1"), Some(seconds(start, 1)));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(seconds(start, 1))).collect();
        let expected = [
            ("large", "2"),
            ("small", "1"),
            ("tiny", "1"),
            ("large", "3"),
            ("small", "2"),
            ("large", "4"),
            ("large", "1"),
        ];
        assert_eq!(
            order,
            expected.map(|(namespace, name)| id_in(namespace, name))
        );
    }

    #[test]
    fn a_namespace_whose_workloads_take_long_leaves_room_for_others() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        for number in 0..2 * AT_ONCE {
            queue.push(id_in("slow", &number.to_string()), start);
        }
        let slow = std::iter::from_fn(|| queue.pop(start)).count();
        assert_eq!(slow, 12);
        queue.push(id_in("quick", "1"), start);
        assert_eq!(queue.pop(start), Some(id_in("quick", "1")));
        assert_eq!(queue.pop(start), None);
        queue.done(id_in("quick", "1"), None);
        queue.done(id_in("slow", "0"), None);
        let next = queue.pop(start).map(|id| id.namespace.to_string());
        assert_eq!(next.as_deref(), Some("slow"));
        assert_eq!(queue.pop(start), None);
    }

    #[test]
    fn a_workload_that_is_due_stands_in_line_once() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        queue.push(id("a"), start);
        queue.push(id("b"), start);
        assert_eq!(queue.pop(start), Some(id("a")));
        queue.push(id("b"), start);
        assert_eq!(queue.pop(start), Some(id("b")));
        assert_eq!(queue.pop(seconds(start, 9)), None);
    }
}
