//! Regular expressions for names, compiled so that matching takes one step for each character.
//!
//! They come from annotations, so anyone can write them. The parser is that of the crate `regex`. The
//! automaton is our own, because its cost must be known in advance: the lazy automaton of `regex` takes 2
//! MiB for each expression, and milliseconds for a name crafted to be slow. Ours is deterministic and
//! complete. An expression whose automaton would be too large is refused when it is read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use regex_automata::nfa::thompson::{Compiler, Config, NFA, State, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_automata::util::syntax;

use crate::name::Name;

/// The maximum length of an expression, in bytes: 32 names of 60 characters fit.
const MAX_LENGTH: usize = 2048;
/// The maximum size of an expression before it is made deterministic, in bytes.
const MAX_NFA_SIZE: usize = 96 << 10;
/// The work charged for one byte of permanent memory.
const WORK_OF_BYTE: usize = 4;
/// The maximum number of transitions of a state that are searched. A state with more gets a row of a table.
const MAX_SEARCHED: usize = 4;
/// The work charged for an expression that is refused as too large after parsing.
const WORK_OF_REFUSAL: usize = 16 << 10;

/// The remaining work for the expressions of one workload, in visits to states.
///
/// # Guarantees
///
/// All expressions of a workload together take a few milliseconds to compile, and at most 64 KiB of memory.
#[derive(Debug)]
pub(crate) struct Work {
    left: usize,
}

impl Work {
    /// Allows for 32 typical expressions, or one list of 32 names of 60 characters.
    pub(crate) const MAX: usize = 256 << 10;

    pub(crate) fn new() -> Self {
        Self { left: Self::MAX }
    }

    /// Returns the remaining work.
    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Takes some of the work. Returns `None` if too little is left.
    fn take(&mut self, work: usize) -> Option<()> {
        let left = self.left.checked_sub(work);
        self.left = left.unwrap_or(0);
        left.map(|_| ())
    }
}

/// A regular expression, compiled for names.
///
/// # Guarantees
///
/// [`NameRegex::matches`] takes one step for each character of a name, whatever the expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameRegex {
    states: Box<[DfaState]>,
    /// The transitions of states with few of them, in the order of their symbols.
    transitions: Box<[Transition]>,
    /// The rows of the other states: the next state for each class of symbols.
    rows: Box<[u16]>,
    /// The class of each symbol.
    classes: [u8; ALPHABET.len()],
}

/// A state of the automaton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DfaState {
    ways: Ways,
    /// True if a name that ends here matches.
    accepts: bool,
}

/// The transitions that leave a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ways {
    /// This many entries of the transitions, starting at this index.
    Few(u8, u32),
    /// A row that starts at this index.
    Row(u32),
}

/// A transition from a state on a range of symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transition {
    first: u8,
    last: u8,
    to: u16,
}

/// The state of names that can no longer match.
const DEAD: u16 = u16::MAX - 1;
/// The state of names that match whatever follows.
const MATCHED: u16 = u16::MAX;

impl NameRegex {
    /// Compiles `text`, in the syntax that RE2 and Rust share. Returns `None` if it is not a regular
    /// expression, or needs more than the remaining `work`.
    pub(crate) fn compile(text: &str, work: &mut Work) -> Option<Self> {
        if text.len() > MAX_LENGTH || asks_for_unicode(text) {
            return None;
        }
        work.take(text.len())?;
        let syntax = syntax::Config::new().unicode(false).utf8(false);
        let parsed = syntax::parse_with(text, &syntax).ok()?;
        let config = Config::new()
            .utf8(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(MAX_NFA_SIZE));
        let nfa = Compiler::new().configure(config).build_from_hir(&parsed);
        let Ok(nfa) = nfa else {
            work.take(WORK_OF_REFUSAL);
            return None;
        };
        if nfa.look_set_any().contains_word_unicode() {
            return None;
        }
        work.take(nfa.states().len())?;
        Determinizer::new(&nfa, work).run()
    }

    /// Returns true if the expression matches the name, or a part of it if it is not anchored.
    pub(crate) fn matches(&self, name: &Name) -> bool {
        let mut state = 0;
        for byte in name.as_str().bytes() {
            #[cfg(test)]
            steps::one();
            match self.next(state, symbol(byte)) {
                DEAD => return false,
                MATCHED => return true,
                next => state = next,
            }
        }
        self.states[usize::from(state)].accepts
    }

    fn next(&self, state: u16, symbol: u8) -> u16 {
        match self.states[usize::from(state)].ways {
            Ways::Few(count, start) => {
                let start = start as usize;
                let few = &self.transitions[start..start + usize::from(count)];
                let found = few.iter().find(|it| symbol <= it.last);
                found
                    .filter(|it| it.first <= symbol)
                    .map_or(DEAD, |it| it.to)
            }
            Ways::Row(start) => {
                self.rows[start as usize + usize::from(self.classes[usize::from(symbol)])]
            }
        }
    }

    /// Returns the memory used, in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of_val(&*self.states) + size_of_val(&*self.transitions) + size_of_val(&*self.rows)
    }
}

/// Returns true if the text enables Unicode, which RE2 cannot: such classes have thousands of members.
fn asks_for_unicode(text: &str) -> bool {
    let groups = text.split("(?").skip(1);
    groups
        .map(|group| group.split(|c: char| !c.is_ascii_alphabetic() && c != '-'))
        .any(|mut parts| parts.next().is_some_and(|flags| flags.contains('u')))
}

/// The characters of names, in the order of their symbols.
const ALPHABET: &[u8; 38] = b"-.0123456789abcdefghijklmnopqrstuvwxyz";

fn symbol(byte: u8) -> u8 {
    match byte {
        b'-' => 0,
        b'.' => 1,
        b'0'..=b'9' => 2 + (byte - b'0'),
        _ => 12 + (byte - b'a'),
    }
}

/// Makes an automaton deterministic by the subset construction, over the characters of names.
struct Determinizer<'a> {
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
    fn new(nfa: &'a NFA, work: &'a mut Work) -> Self {
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

    fn run(mut self) -> Option<NameRegex> {
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

/// Counts the steps of matching.
#[cfg(test)]
pub(crate) mod steps {
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn one() {
        STEPS.set(STEPS.get() + 1);
    }

    /// Returns the result of `act`, and the number of steps it took on this thread.
    pub(crate) fn counted<T>(act: impl FnOnce() -> T) -> (T, usize) {
        let before = STEPS.get();
        let given = act();
        (given, STEPS.get() - before)
    }
}

#[cfg(test)]
mod tests;
