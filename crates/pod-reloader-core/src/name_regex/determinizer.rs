//! Makes automata deterministic: the part of compiling a regular expression whose cost must be limited.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::primitives::StateID;

use super::{ALPHABET, DEAD, DfaState, MATCHED, NameRegex, Transition, Ways, Work};

/// The work charged for one byte of permanent memory.
const WORK_OF_BYTE: usize = 4;
/// The maximum number of transitions of a state that are searched. A state with more gets a row of a table.
const MAX_SEARCHED: usize = 4;

/// Makes an automaton deterministic by the subset construction, over the characters of names.
pub(super) struct Determinizer<'a> {
    nfa: &'a NFA,
    work: &'a mut Work,
    has_word_boundaries: bool,
    /// The class of each symbol. Symbols of one class cannot be told apart.
    classes: [u8; ALPHABET.len()],
    /// One character of each class.
    members: Vec<u8>,
    numbers: HashMap<Subset, u16>,
    /// The numbered subsets, in the order of their numbers.
    subsets: Vec<Subset>,
    /// The round in which each state was last visited.
    seen: Vec<u32>,
    round: u32,
}

/// The set of states that a prefix of a name may have led to.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Subset {
    /// The states, sorted, without those reached from them without a character.
    states: Box<[StateID]>,
    /// A character of the same kind as the previous one, if there is one.
    before: Option<u8>,
}

/// The states of a subset that take a character, or the fact that it has matched.
enum Closure {
    Matched,
    Taking(Vec<StateID>),
}

impl<'a> Determinizer<'a> {
    pub(super) fn new(nfa: &'a NFA, work: &'a mut Work) -> Self {
        let class = |byte: u8| nfa.byte_classes().get(byte);
        let mut members: Vec<u8> = Vec::new();
        let classes = ALPHABET.map(|byte| {
            let known = members.iter().position(|it| class(*it) == class(byte));
            let at = known.unwrap_or_else(|| {
                members.push(byte);
                members.len() - 1
            });
            u8::try_from(at).expect("there are 38 characters")
        });
        Self {
            has_word_boundaries: nfa.look_set_any().contains_word(),
            seen: vec![0; nfa.states().len()],
            round: 0,
            numbers: HashMap::new(),
            subsets: Vec::new(),
            nfa,
            work,
            classes,
            members,
        }
    }

    pub(super) fn run(mut self) -> Option<NameRegex> {
        let mut states = Vec::new();
        let mut transitions: Vec<Transition> = Vec::new();
        let mut rows = Vec::new();
        self.number(Subset {
            states: [self.nfa.start_unanchored()].into(),
            before: None,
        })?;
        while let Some(subset) = self.subsets.get(states.len()).cloned() {
            let row = self.row(&subset)?;
            let accepts = matches!(self.closure(&subset, None)?, Closure::Matched);
            let few = self.few(&row);
            let ways = match u8::try_from(few.len()) {
                Ok(count) if few.len() <= MAX_SEARCHED => {
                    self.work.take(WORK_OF_BYTE * size_of_val(&*few))?;
                    let start = u32::try_from(transitions.len()).ok()?;
                    transitions.extend(few);
                    Ways::Few(count, start)
                }
                _ => {
                    self.work.take(WORK_OF_BYTE * size_of_val(&*row))?;
                    let start = u32::try_from(rows.len()).ok()?;
                    rows.extend(row);
                    Ways::Row(start)
                }
            };
            self.work.take(WORK_OF_BYTE * size_of::<DfaState>())?;
            states.push(DfaState { ways, accepts });
        }
        Some(NameRegex {
            states: states.into(),
            transitions: transitions.into(),
            rows: rows.into(),
            classes: self.classes,
        })
    }

    /// Returns the next state for each class of symbols.
    fn row(&mut self, subset: &Subset) -> Option<Vec<u16>> {
        // The kind of the next character is all that the closure depends on.
        let of_word = self.closure(subset, Some(b'a'))?;
        let of_others = match self.has_word_boundaries {
            true => Some(self.closure(subset, Some(b'-'))?),
            false => None,
        };
        let mut row = Vec::with_capacity(self.members.len());
        for at in 0..self.members.len() {
            let byte = self.members[at];
            let closure = match &of_others {
                Some(of_others) if !is_of_word(byte) => of_others,
                _ => &of_word,
            };
            row.push(self.after(closure, byte)?);
        }
        Some(row)
    }

    /// Returns the same as transitions.
    fn few(&self, row: &[u16]) -> Vec<Transition> {
        let mut few: Vec<Transition> = Vec::new();
        for (symbol, class) in (0_u8..).zip(self.classes) {
            let to = row[usize::from(class)];
            match few.last_mut() {
                _ if to == DEAD => {}
                Some(last) if last.to == to && last.last + 1 == symbol => last.last = symbol,
                _ => few.push(Transition {
                    first: symbol,
                    last: symbol,
                    to,
                }),
            }
        }
        few
    }

    /// Returns the number of a subset, which is added if it is new. `None` if there are too many.
    fn number(&mut self, subset: Subset) -> Option<u16> {
        let number = u16::try_from(self.subsets.len()).ok();
        let number = number.filter(|number| *number < DEAD)?;
        match self.numbers.entry(subset) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(new) => {
                self.subsets.push(new.key().clone());
                Some(*new.insert(number))
            }
        }
    }

    /// Returns the next state after `byte`. `None` if no work is left.
    fn after(&mut self, closure: &Closure, byte: u8) -> Option<u16> {
        let Closure::Taking(taking) = closure else {
            return Some(MATCHED);
        };
        self.work.take(1 + taking.len())?;
        let to = taking.iter().filter_map(|id| match self.nfa.state(*id) {
            State::ByteRange { trans } => trans.matches_byte(byte).then_some(trans.next),
            State::Sparse(sparse) => sparse.matches_byte(byte),
            State::Dense(dense) => dense.matches_byte(byte),
            _ => None,
        });
        let mut states: Vec<_> = to.collect();
        if states.is_empty() {
            return Some(DEAD);
        }
        states.sort_unstable();
        states.dedup();
        let before = match self.has_word_boundaries && is_of_word(byte) {
            true => b'a',
            false => b'-',
        };
        self.number(Subset {
            states: states.into(),
            before: Some(before),
        })
    }

    /// Returns the states that a subset reaches without a character, before one like `next` or the end of the
    /// name.
    fn closure(&mut self, subset: &Subset, next: Option<u8>) -> Option<Closure> {
        self.round += 1;
        let before = subset.before;
        let around: Vec<u8> = before.into_iter().chain(next).collect();
        let at = usize::from(before.is_some());
        let mut taking = Vec::new();
        let mut stack: Vec<_> = subset.states.to_vec();
        while let Some(id) = stack.pop() {
            if std::mem::replace(&mut self.seen[id.as_usize()], self.round) == self.round {
                continue;
            }
            self.work.take(1)?;
            match self.nfa.state(id) {
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) => taking.push(id),
                State::Look { look, next } => {
                    if self.nfa.look_matcher().matches(*look, &around, at) {
                        stack.push(*next);
                    }
                }
                State::Union { alternates } => {
                    self.work.take(alternates.len())?;
                    stack.extend_from_slice(alternates);
                }
                State::BinaryUnion { alt1, alt2 } => stack.extend([*alt1, *alt2]),
                State::Capture { next, .. } => stack.push(*next),
                State::Fail => {}
                State::Match { .. } => return Some(Closure::Matched),
            }
        }
        Some(Closure::Taking(taking))
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}
