//! Regular expressions for names, compiled so that matching takes one step for each character.
//!
//! They come from annotations, so anyone can write them. The parser is that of the crate `regex`. The
//! automaton is our own, because its cost must be known in advance: the lazy automaton of `regex` takes 2
//! MiB for each expression, and milliseconds for a name crafted to be slow. Ours is deterministic and
//! complete. An expression whose automaton would be too large is refused when it is read.

mod determinizer;
#[cfg(test)]
mod tests;

use regex_automata::nfa::thompson::{Compiler, Config, WhichCaptures};
use regex_automata::util::syntax;

use self::determinizer::Determinizer;
use crate::name::Name;

/// The maximum length of an expression, in bytes: 32 names of 60 characters fit.
const MAX_LENGTH: usize = 2048;
/// The maximum size of an expression before it is made deterministic, in bytes.
const MAX_NFA_SIZE: usize = 96 << 10;
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
