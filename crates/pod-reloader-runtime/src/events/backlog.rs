//! The Events that wait to be sent, which namespaces share fairly.

use std::collections::{HashMap, VecDeque};

use k8s_openapi::api::core::v1::ObjectReference;

use super::{Report, namespace};

/// Events that wait to be sent. Namespaces take turns. If too many wait, the namespace with the most loses its newest
/// ones, so those of the others are sent.
pub(super) struct Backlog {
    /// The maximum number of different Events that wait.
    capacity: usize,
    /// The Events, by their keys.
    events: HashMap<u64, Waiting>,
    lines: HashMap<Box<str>, Line>,
    /// The namespaces with a line, in the order of their turns.
    turns: VecDeque<Box<str>>,
}

/// An Event that waits to be sent.
pub(super) struct Waiting {
    /// A hash of the object and of the content. Equal Events have the same.
    pub(super) key: u64,
    pub(super) about: ObjectReference,
    pub(super) report: Report,
    /// The number of times that it came.
    pub(super) times: i32,
}

/// The Events of one namespace.
#[derive(Default)]
struct Line {
    /// The keys of the Events, in the order in which these came.
    keys: VecDeque<u64>,
    /// True if the namespace has lost some.
    has_lost: bool,
}

impl Backlog {
    /// Returns a backlog that holds up to this number of different Events.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            events: HashMap::new(),
            lines: HashMap::new(),
            turns: VecDeque::new(),
        }
    }

    /// Returns the number of different Events that wait.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Adds an Event, or counts it if an equal one waits. Returns the namespace that begins to lose Events because of
    /// that, if one does.
    pub(super) fn push(&mut self, event: Waiting) -> Option<Box<str>> {
        if let Some(equal) = self.events.get_mut(&event.key) {
            equal.times = equal.times.saturating_add(event.times);
            return None;
        }
        let namespace = namespace(&event.about);
        if !self.lines.contains_key(namespace) {
            self.turns.push_back(namespace.into());
        }
        let line = self.lines.entry(namespace.into()).or_default();
        line.keys.push_back(event.key);
        self.events.insert(event.key, event);
        match self.events.len() > self.capacity {
            true => self.drop_one(),
            false => None,
        }
    }

    /// Takes out the Event that has waited longest in the namespace whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Waiting> {
        loop {
            let namespace = self.turns.pop_front()?;
            let line = self.lines.get_mut(&namespace)?;
            let key = line.keys.pop_front();
            match line.keys.is_empty() {
                true => drop(self.lines.remove(&namespace)),
                false => self.turns.push_back(namespace),
            }
            // The only Event of a namespace can have been dropped.
            if let Some(event) = key.and_then(|key| self.events.remove(&key)) {
                if self.events.is_empty() {
                    // The room that many Events needed is not needed any more.
                    *self = Self::new(self.capacity);
                }
                return Some(event);
            }
        }
    }

    /// Drops the newest Event of the namespace with the most. Returns the namespace if it is the first one that it
    /// loses.
    fn drop_one(&mut self) -> Option<Box<str>> {
        let lines = self.lines.iter_mut();
        let (namespace, line) = lines.max_by_key(|(_, line)| line.keys.len())?;
        let key = line.keys.pop_back()?;
        self.events.remove(&key);
        let has_lost = std::mem::replace(&mut line.has_lost, true);
        (!has_lost).then(|| namespace.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an Event of a namespace. Those with the same number are equal.
    fn event(namespace: &str, number: u64) -> Waiting {
        let about = ObjectReference {
            namespace: Some(namespace.to_owned()),
            ..ObjectReference::default()
        };
        let report = Report {
            reason: "Changed",
            note: number.to_string(),
            is_problem: false,
            related: None,
        };
        Waiting {
            key: number,
            about,
            report,
            times: 1,
        }
    }

    /// Takes out all Events. Returns the namespace and the text of each.
    fn all(backlog: &mut Backlog) -> Vec<String> {
        let events = std::iter::from_fn(|| backlog.pop());
        let shown = |event: Waiting| format!("{} {}", namespace(&event.about), event.report.note);
        events.map(shown).collect()
    }

    #[test]
    fn namespaces_take_turns() {
        let mut backlog = Backlog::new(10);
        for (namespace, number) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)] {
            assert_eq!(backlog.push(event(namespace, number)), None);
        }
        assert_eq!(backlog.len(), 6);
        assert_eq!(
            all(&mut backlog),
            ["a 1", "b 4", "c 5", "a 2", "b 6", "a 3"]
        );
        assert_eq!(backlog.len(), 0);
    }

    #[test]
    fn equal_events_wait_as_one() {
        let mut backlog = Backlog::new(2);
        for number in [1, 2, 1, 1] {
            assert_eq!(backlog.push(event("a", number)), None);
        }
        let times: Vec<_> = std::iter::from_fn(|| backlog.pop())
            .map(|it| it.times)
            .collect();
        assert_eq!(times, [3, 1]);
    }

    #[test]
    fn a_namespace_that_floods_loses_its_newest_events_and_no_others() {
        let mut backlog = Backlog::new(6);
        assert_eq!(backlog.push(event("a", 1)), None);
        let flood = (100..200).map(|number| event("eve", number));
        let begins: Vec<_> = flood.filter_map(|event| backlog.push(event)).collect();
        assert_eq!(begins, [Box::<str>::from("eve")], "it is told once");
        for (namespace, number) in [("b", 2), ("a", 3), ("c", 4)] {
            assert_eq!(backlog.push(event(namespace, number)), None);
        }
        assert_eq!(
            all(&mut backlog),
            ["a 1", "eve 100", "b 2", "c 4", "a 3", "eve 101"]
        );
    }

    #[test]
    fn a_namespace_that_takes_more_than_others_begins_to_lose() {
        let mut backlog = Backlog::new(4);
        for number in 0..5 {
            backlog.push(event("eve", number));
        }
        assert_eq!(backlog.push(event("a", 10)), None);
        assert_eq!(backlog.push(event("a", 11)), None);
        assert_eq!(backlog.push(event("a", 12)), Some("a".into()));
        assert_eq!(all(&mut backlog), ["eve 0", "a 10", "eve 1", "a 11"]);
        // When all have been sent, it may flood again.
        let flood = (0..5).map(|number| event("eve", number));
        assert_eq!(flood.filter_map(|event| backlog.push(event)).count(), 1);
    }

    #[test]
    fn of_more_namespaces_than_there_is_room_for_one_loses_its_only_event() {
        let mut backlog = Backlog::new(3);
        let events = ["a", "b", "c", "d"].into_iter().zip(0..);
        let losing = events.filter_map(|(name, number)| backlog.push(event(name, number)));
        assert_eq!(losing.count(), 1);
        assert_eq!(all(&mut backlog).len(), 3);
    }
}
