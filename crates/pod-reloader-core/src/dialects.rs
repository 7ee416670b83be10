//! Grammars: the annotations of each dialect, and what they ask for.
//!
//! A dialect is a row of a table, `Grammar`: its annotations, and what it takes from a pod spec. Two things
//! do not fit into a row: our own `auto` (`own`) and the rules of Stakater's Reloader (`stakater`).

mod classes;
mod finding;
mod own;
mod reader;
pub(crate) mod stakater;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub(crate) use self::finding::Finding;
use self::reader::Reader;
use crate::annotations::{self as keys, PREFIX, Place};
use crate::dialect::Dialect;
use crate::discovery::{Consumption, PodSpec};
use crate::kind::WorkloadKind;
use crate::mark::Marks;
use crate::name::Name;
use crate::reference::ConfigKind;
use crate::references::References;
use crate::texts::Texts;

/// The annotations of a dialect, and the objects that it finds in a pod spec.
struct Grammar {
    /// A switch that must be `"true"`, or nothing else is read. If it is, the pod spec is read too.
    gate: Option<(Where, &'static str)>,
    /// Annotations that list names.
    lists: &'static [(ConfigKind, &'static str)],
    /// Annotations that list names to leave out.
    excludes: &'static [(ConfigKind, &'static str)],
    /// Prefixes of annotations whose value is a name to leave out.
    exclude_prefixes: &'static [(ConfigKind, &'static str)],
    /// Further annotations that are read.
    others: &'static [&'static str],
    /// The ways of using an object in a pod spec that the dialect looks at.
    sees: &'static [Consumption],
    /// True if only the keys that the pod spec names are tracked.
    takes_keys: bool,
    /// The kinds of object that the dialect finds in a pod spec.
    finds: &'static [ConfigKind],
    /// The kinds of workload that the dialect applies to.
    applies_to: Kinds,
}

/// Kinds of workload.
#[derive(Clone, Copy)]
enum Kinds {
    All,
    Only(WorkloadKind),
    /// All but those that another controller restarts: it would restart them a second time.
    AllBut(&'static [WorkloadKind]),
}

impl Kinds {
    fn include(self, kind: WorkloadKind) -> bool {
        match self {
            Self::All => true,
            Self::Only(only) => kind == only,
            Self::AllBut(others) => !others.contains(&kind),
        }
    }
}

/// The position of a gate.
#[derive(Clone, Copy)]
enum Where {
    Annotation,
    Label,
}

/// An annotation or label that a dialect reads from a workload.
pub(crate) struct ReadKey {
    key: &'static str,
    /// True if all keys are meant that begin with this one.
    is_prefix: bool,
    /// The places in which it is read, the usual one first.
    pub(crate) places: &'static [Place],
}

impl ReadKey {
    /// Returns true if a key is meant.
    pub(crate) fn is(&self, key: &str) -> bool {
        match self.is_prefix {
            true => key.starts_with(self.key),
            false => key == self.key,
        }
    }
}

/// The place of most annotations: in the metadata of the workload.
const ON_WORKLOAD: &[Place] = &[Place::Annotation];

use ConfigKind::{ConfigMap, Secret};

const NOTHING: Grammar = Grammar {
    gate: None,
    lists: &[],
    excludes: &[],
    exclude_prefixes: &[],
    others: &[],
    sees: &[],
    takes_keys: false,
    finds: &ConfigKind::ALL,
    applies_to: Kinds::All,
};

const POD_RELOADER: Grammar = Grammar {
    lists: &[(ConfigMap, keys::CONFIG_MAPS), (Secret, keys::SECRETS)],
    excludes: &[
        (ConfigMap, keys::EXCLUDE_CONFIG_MAPS),
        (Secret, keys::EXCLUDE_SECRETS),
    ],
    others: &[keys::AUTO, keys::PER_KEY, keys::RESTART, keys::RESTART_ON],
    sees: &[
        Consumption::Env,
        Consumption::EnvFrom,
        Consumption::Volume,
        Consumption::InitVolume,
        Consumption::SubPath,
        Consumption::Unmounted,
        Consumption::ImagePull,
        Consumption::Driver,
    ],
    takes_keys: true,
    ..NOTHING
};

const AUTO_ALL: Grammar = Grammar {
    lists: &[],
    ..POD_RELOADER
};

const STAKATER: Grammar = Grammar {
    excludes: &[
        (ConfigMap, stakater::EXCLUDE_CONFIG_MAPS),
        (Secret, stakater::EXCLUDE_SECRETS),
    ],
    others: &stakater::READ,
    sees: &[
        Consumption::Env,
        Consumption::EnvFrom,
        Consumption::Volume,
        Consumption::InitVolume,
        Consumption::SubPath,
    ],
    ..NOTHING
};

const WAVE: Grammar = Grammar {
    gate: Some((Where::Annotation, "wave.pusher.com/update-on-config-change")),
    lists: &[
        (ConfigMap, "wave.pusher.com/extra-configmaps"),
        (Secret, "wave.pusher.com/extra-secrets"),
    ],
    sees: &[
        Consumption::Env,
        Consumption::EnvFrom,
        Consumption::Volume,
        Consumption::InitVolume,
        Consumption::SubPath,
        Consumption::Unmounted,
    ],
    takes_keys: true,
    ..NOTHING
};

const STACKABLE: Grammar = Grammar {
    gate: Some((Where::Label, "restarter.stackable.tech/enabled")),
    exclude_prefixes: &[
        (ConfigMap, "restarter.stackable.tech/ignore-configmap."),
        (Secret, "restarter.stackable.tech/ignore-secret."),
    ],
    sees: WAVE.sees,
    applies_to: Kinds::Only(WorkloadKind::STATEFUL_SET),
    ..NOTHING
};

const TRIGGER_CONTROLLER: Grammar = Grammar {
    lists: &[
        (ConfigMap, "trigger.k8s.io/triggering-configMaps"),
        (Secret, "trigger.k8s.io/triggering-secrets"),
    ],
    ..NOTHING
};

const FABRIC8: Grammar = Grammar {
    lists: &[(ConfigMap, "configmap.fabric8.io/update-on-change")],
    ..NOTHING
};

const INFISICAL: Grammar = Grammar {
    gate: Some((Where::Annotation, "secrets.infisical.com/auto-reload")),
    sees: WAVE.sees,
    finds: &[Secret],
    applies_to: Kinds::AllBut(&WorkloadKind::BUILT_IN),
    ..NOTHING
};

const ONE_PASSWORD: Grammar = Grammar {
    gate: Some((Where::Annotation, "operator.1password.io/auto-restart")),
    applies_to: Kinds::AllBut(&[WorkloadKind::DEPLOYMENT]),
    ..INFISICAL
};

impl Dialect {
    /// Returns the annotations and labels that the dialect reads from a workload, each with its places.
    fn read_keys(self) -> impl Iterator<Item = ReadKey> {
        let grammar = self.grammar();
        let whole = |key: &'static str, places| ReadKey {
            key,
            is_prefix: false,
            places,
        };
        let lists = grammar.lists.iter().chain(grammar.excludes);
        let lists = lists.map(move |&(_, key)| whole(key, ON_WORKLOAD));
        let prefixes = grammar.exclude_prefixes.iter();
        let prefixes = prefixes.map(|&(_, key)| ReadKey {
            key,
            is_prefix: true,
            places: ON_WORKLOAD,
        });
        let gate = grammar.gate.map(|(place, key)| match place {
            Where::Annotation => whole(key, ON_WORKLOAD),
            Where::Label => whole(key, &[Place::Label]),
        });
        let others = grammar.others.iter().copied();
        let others = others.map(move |key| match self {
            Self::Stakater => whole(key, stakater::places(key)),
            _ => whole(key, ON_WORKLOAD),
        });
        lists.chain(prefixes).chain(gate).chain(others)
    }

    fn grammar(self) -> &'static Grammar {
        match self {
            Self::PodReloader => &POD_RELOADER,
            Self::AutoAll => &AUTO_ALL,
            Self::Stakater => &STAKATER,
            Self::Wave => &WAVE,
            Self::Stackable => &STACKABLE,
            Self::TriggerController => &TRIGGER_CONTROLLER,
            Self::Fabric8 => &FABRIC8,
            Self::Infisical => &INFISICAL,
            Self::OnePassword => &ONE_PASSWORD,
        }
    }
}

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
            if !grammar.applies_to.include(subject.kind) {
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
    pub(crate) fn annotation_keys(&self) -> impl Iterator<Item = &'static str> {
        // Our own settings apply in every dialect.
        let own = [keys::SETTLE_PERIOD].iter().chain(POD_RELOADER.others);
        let excludes = POD_RELOADER.excludes.iter().map(|(_, key)| *key);
        let own = own.copied().chain(excludes);
        let own = own.chain(self.class_keys());
        own.chain(self.dialects().flat_map(|dialect| {
            let grammar = dialect.grammar();
            let lists = grammar.lists.iter().chain(grammar.excludes);
            let gate = grammar.gate.into_iter();
            let gate = gate.filter(|(place, _)| matches!(place, Where::Annotation));
            lists
                .map(|(_, key)| *key)
                .chain(gate.map(|(_, key)| key))
                .chain(grammar.others.iter().copied())
        }))
    }

    /// Returns the annotations and labels of other controllers that are read from workloads of this kind, each with its
    /// places.
    pub(crate) fn keys_of_others(&self, kind: WorkloadKind) -> impl Iterator<Item = ReadKey> {
        let dialects = self.dialects();
        let applying = dialects.filter(move |it| it.grammar().applies_to.include(kind));
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
            .filter(|(place, _)| matches!(place, Where::Label))
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
        let says_true = |(place, key): (Where, &str)| {
            let map = match place {
                Where::Annotation => subject.annotations,
                Where::Label => subject.labels,
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
            Dialect::PodReloader => auto.is_some_and(|auto| auto.takes(kind)),
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
    own::Auto::parse(value).is_some()
}
