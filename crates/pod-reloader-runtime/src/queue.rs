//! The order in which items are handled: a queue without a clock or I/O.

use std::collections::{BTreeSet, HashMap, VecDeque};

pub use pod_reloader_core::item::Item;
use pod_reloader_core::name::Name;
use pod_reloader_core::room::give_back_room;
use tokio::time::Instant;

/// Items to handle. Each is queued at most once, and is never handled twice at the same time.
///
/// Due items wait in a line for each namespace, and namespaces take turns. So a change that affects
/// thousands of items of one namespace does not hold up the others. Slow items do not either: a namespace
/// has at most three quarters of the places that the others leave free.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    slots: HashMap<T, Slot>,
    /// Items that are not known to be due yet.
    later: BTreeSet<(Instant, T)>,
    /// Due items, by namespace.
    lines: HashMap<Name, VecDeque<T>>,
    /// The namespaces with a line, in the order of their turns.
    turns: VecDeque<Name>,
    /// The number of items in progress, by namespace.
    running: HashMap<Name, usize>,
    /// The maximum number of items that are in progress at once.
    at_once: usize,
}

/// The maximum number of items of a controller that are in progress at once, unless it says otherwise.
pub(crate) const AT_ONCE: usize = 16;

#[derive(Debug)]
enum Slot {
    /// The item becomes due at this time.
    Waiting(Instant),
    /// The item is due, and waits in the line of its namespace.
    Due,
    /// The item is in progress, and becomes due again at this time.
    Running(Option<Instant>),
}

impl<T> Queue<T> {
    /// Returns an empty queue, of which up to this many items are in progress at once.
    pub(crate) fn new(at_once: usize) -> Self {
        Self {
            slots: HashMap::new(),
            later: BTreeSet::new(),
            lines: HashMap::new(),
            turns: VecDeque::new(),
            running: HashMap::new(),
            at_once,
        }
    }
}

impl<T: Item> Queue<T> {
    /// Schedules `item` for `at`. A time that is already earlier stays.
    pub(crate) fn push(&mut self, item: T, at: Instant) {
        match self.slots.get_mut(&item) {
            Some(Slot::Running(again)) => *again = Some(again.map_or(at, |again| again.min(at))),
            Some(Slot::Due) => {}
            Some(Slot::Waiting(due)) if *due <= at => {}
            Some(Slot::Waiting(due)) => {
                self.later.remove(&(*due, item.clone()));
                *due = at;
                self.later.insert((at, item));
            }
            None => {
                self.slots.insert(item.clone(), Slot::Waiting(at));
                self.later.insert((at, item));
            }
        }
    }

    /// Takes out a due item, to be handled until [`Queue::done`]. Picks the namespace whose turn it is, and
    /// from it the item that has been due longest.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<T> {
        self.line_up(now);
        let free = self.at_once.saturating_sub(self.running.values().sum());
        let has_room = |name| self.running.get(name).copied().unwrap_or_default() < 3 * free;
        let turn = self.turns.iter().position(has_room)?;
        let namespace = self.turns.remove(turn)?;
        *self.running.entry(namespace.clone()).or_default() += 1;
        let line = self.lines.get_mut(&namespace)?;
        let item = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&namespace);
        } else {
            // What the other items leave behind can use this room.
            if line.len() < line.capacity() / 4 {
                line.shrink_to(line.capacity() / 2);
            }
            self.turns.push_back(namespace);
        }
        self.slots.insert(item.clone(), Slot::Running(None));
        Some(item)
    }

    /// Notes that `item` has been handled, and when it is due again.
    pub(crate) fn done(&mut self, item: T, again: Option<Instant>) {
        let Some(Slot::Running(pushed)) = self.slots.remove(&item) else {
            return;
        };
        if let Some(running) = self.running.get_mut(item.namespace()) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(item.namespace());
            }
        }
        let at = match (pushed, again) {
            (Some(pushed), Some(again)) => Some(pushed.min(again)),
            (pushed, again) => pushed.or(again),
        };
        if let Some(at) = at {
            self.push(item, at);
        }
        if self.slots.is_empty() {
            // Whatever was queued at once is done, and its room is not needed any more.
            *self = Self::new(self.at_once);
        } else {
            give_back_room(&mut self.slots);
        }
    }

    /// Returns the time when the next item becomes due. Items that were already due when [`Queue::pop`]
    /// last found none are not included.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Moves every due item into the line of its namespace.
    fn line_up(&mut self, now: Instant) {
        while self.next_due().is_some_and(|at| at <= now)
            && let Some((_, item)) = self.later.pop_first()
        {
            let line = self.lines.entry(item.namespace().clone());
            // Most namespaces have few items.
            let line = line.or_insert_with(|| VecDeque::with_capacity(1));
            if line.is_empty() {
                self.turns.push_back(item.namespace().clone());
            }
            line.push_back(item.clone());
            self.slots.insert(item, Slot::Due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{id, name};
    use pod_reloader_core::workload::WorkloadId;
    use std::time::Duration;

    fn id_in(namespace: &str, text: &str) -> WorkloadId {
        WorkloadId {
            namespace: name(namespace),
            ..id(text)
        }
    }

    fn seconds(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_workload_comes_out_when_it_is_due_and_once() {
        let (mut queue, start) = (Queue::new(AT_ONCE), Instant::now());
        queue.push(id("web"), seconds(start, 2));
        queue.push(id("web"), seconds(start, 5));
        assert_eq!(queue.pop(seconds(start, 1)), None);
        assert_eq!(queue.pop(seconds(start, 2)), Some(id("web")));
        assert_eq!(queue.pop(seconds(start, 9)), None);
    }

    #[test]
    fn an_earlier_time_wins() {
        let (mut queue, start) = (Queue::new(AT_ONCE), Instant::now());
        queue.push(id("web"), seconds(start, 5));
        queue.push(id("web"), seconds(start, 1));
        assert_eq!(queue.next_due(), Some(seconds(start, 1)));
        queue.pop(seconds(start, 1));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn a_push_while_a_workload_is_reconciled_is_not_lost() {
        let (mut queue, start) = (Queue::new(AT_ONCE), Instant::now());
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
    fn the_workload_that_has_been_due_for_longest_goes_first() {
        let (mut queue, start) = (Queue::new(AT_ONCE), Instant::now());
        queue.push(id("b"), seconds(start, 2));
        queue.push(id("a"), seconds(start, 1));
        queue.push(id("c"), seconds(start, 1));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(seconds(start, 9))).collect();
        assert_eq!(order, [id("a"), id("c"), id("b")]);
    }

    #[test]
    fn namespaces_take_turns() {
        let (mut queue, start) = (Queue::new(AT_ONCE), Instant::now());
        for name in ["1", "2", "3", "4"] {
            queue.push(id_in("large", name), start);
        }
        assert_eq!(queue.pop(start), Some(id_in("large", "1")));
        for name in ["1", "2"] {
            queue.push(id_in("small", name), seconds(start, 1));
        }
        queue.push(id_in("tiny", "1"), seconds(start, 1));
        // The item is due again, behind the others of its namespace.
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
        let (mut queue, start) = (Queue::new(AT_ONCE), Instant::now());
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
    fn room_is_given_back_while_some_items_are_left() {
        let (mut queue, start) = (Queue::new(AT_ONCE), Instant::now());
        for number in 0..1_000 {
            queue.push(id(&number.to_string()), start);
        }
        for _ in 0..990 {
            let next = queue.pop(start).unwrap();
            queue.done(next, None);
        }
        let lines: usize = queue.lines.values().map(VecDeque::capacity).sum();
        assert!(lines <= 64, "{lines}");
        let slots = queue.slots.capacity();
        assert!(slots <= 64, "{slots}");
    }

    #[test]
    fn a_workload_that_is_due_stands_in_line_once() {
        let (mut queue, start) = (Queue::new(AT_ONCE), Instant::now());
        queue.push(id("a"), start);
        queue.push(id("b"), start);
        assert_eq!(queue.pop(start), Some(id("a")));
        queue.push(id("b"), start);
        assert_eq!(queue.pop(start), Some(id("b")));
        assert_eq!(queue.pop(seconds(start, 9)), None);
    }
}
