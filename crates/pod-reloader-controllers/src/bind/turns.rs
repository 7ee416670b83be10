//! Turns for kinds that do not answer: their FieldBindings are looked at one after the other, so that others go on.

use std::collections::{HashSet, VecDeque};

use pod_reloader_core::field_binding::BindingId;
use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::name::Name;

/// A kind in a namespace: a webhook may be silent about the objects of one namespace alone.
type Place = (BoundKind, Name);

/// The looks at objects of silent kinds. One of them is in progress at most, and kinds and namespaces take turns.
#[derive(Default)]
pub(super) struct Turns {
    silent: Silent,
    /// The FieldBinding that is looked at, or is about to be.
    current: Option<BindingId>,
    /// The others, in the order of their turns.
    lines: VecDeque<(Place, VecDeque<BindingId>)>,
    waiting: HashSet<BindingId>,
}

/// The kinds that did not answer when they were last asked.
#[derive(Default)]
struct Silent {
    kinds: HashSet<BoundKind>,
    places: HashSet<Place>,
}

/// What follows from the end of a look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    /// The FieldBindings to look at now.
    pub(super) next: Vec<BindingId>,
    /// True if the kind has become silent, false if it no longer is.
    pub(super) is_silent: Option<bool>,
}

impl Turns {
    /// Returns true if a look may begin. If not, the FieldBinding waits for its turn.
    pub(super) fn begin(&mut self, kind: BoundKind, id: &BindingId) -> bool {
        if !self.silent.has(kind, &id.namespace) {
            return true;
        }
        let current = self.current.get_or_insert_with(|| id.clone());
        let is_its_turn = current == id;
        if !is_its_turn {
            self.wait((kind, id.namespace.clone()), id);
        }
        is_its_turn
    }

    /// Takes in that a look has ended, and whether the kind has answered, if it was asked.
    pub(super) fn end(
        &mut self,
        kind: BoundKind,
        id: &BindingId,
        has_answered: Option<bool>,
    ) -> Ended {
        let place = (kind, id.namespace.clone());
        let is_news = match has_answered {
            Some(true) => {
                self.silent.places.remove(&place);
                self.silent.kinds.remove(&kind)
            }
            Some(false) => {
                self.silent.places.insert(place);
                self.silent.kinds.insert(kind)
            }
            None => false,
        };
        if self.current.as_ref() == Some(id) {
            self.current = None;
        }
        Ended {
            next: self.next(),
            is_silent: has_answered.filter(|_| is_news).map(|it| !it),
        }
    }

    /// Takes in that a FieldBinding is not to be looked at. Returns those to look at instead.
    pub(super) fn skip(&mut self, id: &BindingId) -> Vec<BindingId> {
        if self.current.as_ref() != Some(id) {
            return Vec::new();
        }
        self.current = None;
        self.next()
    }

    fn wait(&mut self, place: Place, id: &BindingId) {
        if !self.waiting.insert(id.clone()) {
            return;
        }
        match self.lines.iter_mut().find(|(it, _)| *it == place) {
            Some((_, line)) => line.push_back(id.clone()),
            None => self.lines.push_back((place, VecDeque::from([id.clone()]))),
        }
    }

    /// Takes out those that need no turn any more, and the one whose turn it is.
    fn next(&mut self) -> Vec<BindingId> {
        let mut next = Vec::new();
        self.lines.retain_mut(|((kind, namespace), line)| {
            let waits = self.silent.has(*kind, namespace);
            if !waits {
                next.extend(line.drain(..));
            }
            waits
        });
        if self.current.is_none()
            && let Some((place, mut line)) = self.lines.pop_front()
        {
            self.current = line.pop_front();
            next.extend(self.current.clone());
            if !line.is_empty() {
                self.lines.push_back((place, line));
            }
        }
        for id in &next {
            self.waiting.remove(id);
        }
        next
    }
}

impl Silent {
    fn has(&self, kind: BoundKind, namespace: &Name) -> bool {
        self.kinds.contains(&kind) || self.places.contains(&(kind, namespace.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::tests::{hanging, name, stores};

    fn id(namespace: &str, called: &str) -> BindingId {
        BindingId {
            namespace: name(namespace),
            name: name(called),
        }
    }

    /// Returns turns in which a kind has not answered for a FieldBinding in this namespace.
    fn silent_in(namespace: &str) -> Turns {
        let mut turns = Turns::default();
        let first = id(namespace, "first");
        assert!(turns.begin(hanging(), &first));
        let ended = turns.end(hanging(), &first, Some(false));
        assert_eq!(ended.is_silent, Some(true));
        turns
    }

    #[test]
    fn a_kind_that_does_not_answer_is_asked_once_at_a_time() {
        let mut turns = silent_in("a");
        assert!(turns.begin(hanging(), &id("a", "1")));
        assert!(!turns.begin(hanging(), &id("a", "2")));
        assert!(!turns.begin(hanging(), &id("b", "1")));
        assert!(turns.begin(stores(), &id("a", "of-another-kind")));
        let ended = turns.end(hanging(), &id("a", "1"), Some(false));
        assert_eq!(ended.next, [id("a", "2")]);
        assert_eq!(ended.is_silent, None, "it is known");
        assert!(
            !turns.begin(hanging(), &id("a", "3")),
            "it is the turn of 2"
        );
        assert!(turns.begin(hanging(), &id("a", "2")));
    }

    #[test]
    fn namespaces_take_turns_and_each_waits_once() {
        let mut turns = silent_in("a");
        assert!(turns.begin(hanging(), &id("a", "0")));
        for (namespace, called) in [("a", "1"), ("a", "2"), ("a", "2"), ("b", "1")] {
            assert!(!turns.begin(hanging(), &id(namespace, called)));
        }
        let mut current = id("a", "0");
        let mut order = Vec::new();
        loop {
            let next = turns.end(hanging(), &current, Some(false)).next;
            let [next] = &next[..] else { break };
            current = next.clone();
            order.push(current.clone());
        }
        assert_eq!(order, [id("a", "1"), id("b", "1"), id("a", "2")]);
    }

    #[test]
    fn a_kind_that_answers_again_waits_only_where_it_has_not() {
        let mut turns = silent_in("a");
        assert!(turns.begin(hanging(), &id("b", "0")));
        for (namespace, called) in [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")] {
            assert!(!turns.begin(hanging(), &id(namespace, called)));
        }
        let ended = turns.end(hanging(), &id("b", "0"), Some(true));
        assert_eq!(ended.is_silent, Some(false));
        assert_eq!(ended.next, [id("b", "1"), id("b", "2"), id("a", "1")]);
        assert!(turns.begin(hanging(), &id("b", "1")) && turns.begin(hanging(), &id("b", "2")));
    }

    #[test]
    fn one_that_is_gone_when_its_turn_comes_leaves_it_to_the_next() {
        let mut turns = silent_in("a");
        assert!(turns.begin(hanging(), &id("a", "0")));
        for called in ["1", "2"] {
            assert!(!turns.begin(hanging(), &id("a", called)));
        }
        assert_eq!(turns.skip(&id("a", "1")), []);
        let next = turns.end(hanging(), &id("a", "0"), None).next;
        assert_eq!(next, [id("a", "1")]);
        assert_eq!(turns.skip(&id("a", "1")), [id("a", "2")]);
    }
}
