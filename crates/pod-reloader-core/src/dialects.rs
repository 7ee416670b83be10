//! Grammars: the annotations of each dialect, and what they ask for.
//!
//! A dialect is a row of a table, `Grammar`: its annotations, and what it takes from a pod spec. Two things
//! do not fit into a row: our own `auto` (`own`) and the rules of Stakater's Reloader (`stakater`).

mod classes;
mod finding;
mod grammar;
mod own;
mod reader;
pub(crate) mod stakater;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub(crate) use self::finding::Finding;
use self::grammar::POD_RELOADER;
pub(crate) use self::grammar::ReadKey;
use self::reader::Reader;
use crate::annotations::{self as keys, PREFIX, Place};
use crate::dialect::Dialect;
use crate::discovery::PodSpec;
use crate::kind::WorkloadKind;
use crate::mark::Marks;
use crate::name::Name;
use crate::reference::ConfigKind;
use crate::references::References;
use crate::texts::Texts;

/// The place of most annotations: in the metadata of the workload.
const ON_WORKLOAD: &[Place] = &[Place::Annotation];

/// The dialects that are understood, and the settings that apply to all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialects {
    /// The dialects whose annotations are read.
    pub spoken: BTreeSet<Dialect>,
    /// True if every workload is managed that does not opt out.
    pub auto_all: bool,
    /// A kind of object that is never tracked.
    pub ignored: Option<ConfigKind>,
    /// True if SecretProviderClasses are tracked, too.
    pub classes: bool,
}

impl Default for Dialects {
    /// Enables our own dialect only.
    fn default() -> Self {
        Self {
            spoken: BTreeSet::from([Dialect::PodReloader]),
            auto_all: false,
            ignored: None,
            classes: false,
        }
    }
}

/// The source of a workload's opt-in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OptIn {
    /// None: nobody has opted the workload in.
    #[default]
    None,
    /// Another controller's annotations, or the operator itself for every workload.
    ByOthers,
    /// Our own annotations, set by the workload's author.
    ByUs,
}

/// The parts of a workload that the dialects look at.
pub(crate) struct Subject<'a> {
    pub(crate) kind: WorkloadKind,
    pub(crate) namespace: &'a Name,
    pub(crate) annotations: &'a Texts,
    pub(crate) labels: &'a Texts,
    pub(crate) template_annotations: &'a Texts,
    pub(crate) template_labels: &'a Texts,
    pub(crate) pod_specs: &'a [&'a PodSpec],
}

impl Subject<'_> {
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key)
    }
}

/// The objects of one kind that a dialect asks for.
struct Wishes<'a> {
    /// A list of names.
    names: Option<&'a str>,
    /// A list of regular expressions.
    patterns: Option<&'a str>,
    /// The dialects that track what the pod spec uses, each with the marks that an object must carry.
    discovers: Vec<(Dialect, Marks)>,
}

impl Dialects {
    /// Returns the objects that a workload tracks, and the source of its opt-in.
    pub(crate) fn read(&self, subject: &Subject<'_>) -> (References, OptIn) {
        let mut reader = Reader::new(subject);
        let mut opt_in = OptIn::None;
        for dialect in self.dialects() {
            let grammar = dialect.grammar();
            if !(grammar.applies_to)(subject.kind) {
                continue;
            }
            let mut asks = false;
            for kind in ConfigKind::ALL {
                let wishes = self.wishes(dialect, kind, subject);
                asks |= wishes.names.is_some()
                    || wishes.patterns.is_some()
                    || !wishes.discovers.is_empty();
                if self.ignored != Some(kind) {
                    reader.take_in(dialect, kind, &wishes);
                }
            }
            if asks {
                opt_in = opt_in.max(match dialect {
                    Dialect::PodReloader => OptIn::ByUs,
                    _ => OptIn::ByOthers,
                });
            }
        }
        (reader.references(), opt_in)
    }

    /// Returns the annotations of a workload that are read, in any order.
    pub fn annotation_keys(&self) -> impl Iterator<Item = &'static str> {
        // Our own settings apply in every dialect.
        let own = [keys::SETTLE_PERIOD].iter().chain(POD_RELOADER.others);
        let excludes = POD_RELOADER.excludes.iter().map(|(_, key)| *key);
        let own = own.copied().chain(excludes);
        let own = own.chain(self.class_keys());
        let read = self.dialects().flat_map(Dialect::read_keys);
        let read = read.filter(|it| !it.is_prefix && it.places.contains(&Place::Annotation));
        own.chain(read.map(|it| it.key))
    }

    /// Returns the annotations and labels of other controllers that are read from workloads of this kind, each with its
    /// places.
    pub(crate) fn keys_of_others(&self, kind: WorkloadKind) -> impl Iterator<Item = ReadKey> {
        let dialects = self.dialects();
        let applying = dialects.filter(move |it| (it.grammar().applies_to)(kind));
        let of_classes = self.class_keys().map(|key| ReadKey {
            key,
            is_prefix: false,
            places: stakater::places(key),
        });
        let all = applying.flat_map(Dialect::read_keys).chain(of_classes);
        all.filter(|read| !read.key.starts_with(PREFIX))
    }

    /// Returns the prefixes of further annotations that are read.
    pub(crate) fn annotation_prefixes(&self) -> impl Iterator<Item = &'static str> {
        let prefixes = |dialect: Dialect| dialect.grammar().exclude_prefixes.iter();
        self.dialects()
            .flat_map(prefixes)
            .map(|(_, prefix)| *prefix)
    }

    /// Returns the labels of a workload that are read.
    pub(crate) fn label_keys(&self) -> impl Iterator<Item = &'static str> {
        let gates = self.dialects().filter_map(|dialect| dialect.grammar().gate);
        gates
            .filter(|(place, _)| *place == Place::Label)
            .map(|(_, key)| key)
    }

    /// Returns the settle period that a workload has in another controller's annotations.
    pub(crate) fn settle_period<'a>(
        &self,
        kind: WorkloadKind,
        annotation: impl Fn(&str) -> Option<&'a str>,
    ) -> Option<&'a str> {
        let is_paused = kind == WorkloadKind::DEPLOYMENT && self.speak(Dialect::Stakater);
        is_paused.then(|| annotation(stakater::PAUSE_PERIOD))?
    }

    /// Returns true if a workload asks to be restarted by a time in a field, if its kind has one.
    pub(crate) fn restarts_at<'a>(&self, annotation: impl Fn(&str) -> Option<&'a str>) -> bool {
        match annotation(keys::RESTART) {
            Some(keys::AT) => true,
            Some(keys::TEMPLATE) => false,
            _ => {
                let strategy = annotation(stakater::ROLLOUT_STRATEGY);
                self.speak(Dialect::Stakater) && strategy == Some(stakater::RESTART)
            }
        }
    }

    pub(crate) fn speak(&self, dialect: Dialect) -> bool {
        self.spoken.contains(&dialect)
    }

    fn dialects(&self) -> impl Iterator<Item = Dialect> {
        let auto_all = self.auto_all && !self.speak(Dialect::Stakater);
        let auto_all = auto_all.then_some(Dialect::AutoAll);
        self.spoken.iter().copied().chain(auto_all)
    }

    fn wishes<'a>(
        &self,
        dialect: Dialect,
        kind: ConfigKind,
        subject: &'a Subject<'_>,
    ) -> Wishes<'a> {
        let auto = own::auto(subject);
        let takes_all = self.auto_all && auto.is_none();
        if dialect == Dialect::Stakater {
            return stakater::wishes(kind, subject, takes_all);
        }
        let grammar = dialect.grammar();
        let says_true = |(place, key): (Place, &str)| {
            let map = match place {
                Place::Label => subject.labels,
                _ => subject.annotations,
            };
            map.get(key).is_some_and(|value| value == "true")
        };
        let is_open = grammar.gate.is_none_or(says_true);
        let list = || {
            let (_, key) = grammar.lists.iter().find(|(of, _)| *of == kind)?;
            subject.annotation(key)
        };
        let discovers = match dialect {
            Dialect::AutoAll => takes_all,
            Dialect::PodReloader => auto.is_some_and(|kinds| kinds.contains(&kind)),
            _ => grammar.gate.is_some() && is_open && grammar.finds.contains(&kind),
        };
        Wishes {
            names: is_open.then(list).flatten(),
            patterns: None,
            discovers: Vec::from_iter(discovers.then_some((dialect, Marks::NONE))),
        }
    }
}

/// Returns true if [`keys::AUTO`] accepts this value.
pub(crate) fn is_auto(value: &str) -> bool {
    own::kinds(value).is_some()
}
