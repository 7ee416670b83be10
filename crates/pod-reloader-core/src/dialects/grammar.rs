//! The annotations of each dialect: a table.

use super::{ON_WORKLOAD, stakater};
use crate::annotations::{self as keys, Place};
use crate::dialect::Dialect;
use crate::discovery::Consumption;
use crate::kind::WorkloadKind;
use crate::reference::ConfigKind;

/// The annotations of a dialect, and the objects that it finds in a pod spec.
pub(super) struct Grammar {
    /// A switch that must be `"true"`, or nothing else is read. If it is, the pod spec is read too.
    pub(super) gate: Option<(Place, &'static str)>,
    /// Annotations that list names.
    pub(super) lists: &'static [(ConfigKind, &'static str)],
    /// Annotations that list names to leave out.
    pub(super) excludes: &'static [(ConfigKind, &'static str)],
    /// Prefixes of annotations whose value is a name to leave out.
    pub(super) exclude_prefixes: &'static [(ConfigKind, &'static str)],
    /// Further annotations that are read.
    pub(super) others: &'static [&'static str],
    /// The ways of using an object in a pod spec that the dialect looks at.
    pub(super) sees: &'static [Consumption],
    /// True if only the keys that the pod spec names are tracked.
    pub(super) takes_keys: bool,
    /// The kinds of object that the dialect finds in a pod spec.
    pub(super) finds: &'static [ConfigKind],
    /// The kinds of workload that the dialect applies to.
    pub(super) applies_to: fn(WorkloadKind) -> bool,
}

/// An annotation or label that a dialect reads from a workload.
pub(crate) struct ReadKey {
    pub(super) key: &'static str,
    /// True if all keys are meant that begin with this one.
    pub(super) is_prefix: bool,
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

use ConfigKind::{ConfigMap, Secret};
use Consumption::{Driver, Env, EnvFrom, ImagePull, InitVolume, SubPath, Unmounted, Volume};

const NOTHING: Grammar = Grammar {
    gate: None,
    lists: &[],
    excludes: &[],
    exclude_prefixes: &[],
    others: &[],
    sees: &[],
    takes_keys: false,
    finds: &ConfigKind::ALL,
    applies_to: |_| true,
};

pub(super) const POD_RELOADER: Grammar = Grammar {
    lists: &[(ConfigMap, keys::CONFIG_MAPS), (Secret, keys::SECRETS)],
    excludes: &[
        (ConfigMap, keys::EXCLUDE_CONFIG_MAPS),
        (Secret, keys::EXCLUDE_SECRETS),
    ],
    others: &[keys::AUTO, keys::PER_KEY, keys::RESTART, keys::RESTART_ON],
    sees: &[
        Env, EnvFrom, Volume, InitVolume, SubPath, Unmounted, ImagePull, Driver,
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
    sees: &[Env, EnvFrom, Volume, InitVolume, SubPath],
    ..NOTHING
};

const WAVE: Grammar = Grammar {
    gate: Some((Place::Annotation, "wave.pusher.com/update-on-config-change")),
    lists: &[
        (ConfigMap, "wave.pusher.com/extra-configmaps"),
        (Secret, "wave.pusher.com/extra-secrets"),
    ],
    sees: &[Env, EnvFrom, Volume, InitVolume, SubPath, Unmounted],
    takes_keys: true,
    ..NOTHING
};

const STACKABLE: Grammar = Grammar {
    gate: Some((Place::Label, "restarter.stackable.tech/enabled")),
    exclude_prefixes: &[
        (ConfigMap, "restarter.stackable.tech/ignore-configmap."),
        (Secret, "restarter.stackable.tech/ignore-secret."),
    ],
    sees: WAVE.sees,
    applies_to: |kind| kind == WorkloadKind::STATEFUL_SET,
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
    gate: Some((Place::Annotation, "secrets.infisical.com/auto-reload")),
    sees: WAVE.sees,
    finds: &[Secret],
    // The other controller restarts these: they would be restarted a second time.
    applies_to: |kind| !kind.is_built_in(),
    ..NOTHING
};

const ONE_PASSWORD: Grammar = Grammar {
    gate: Some((Place::Annotation, "operator.1password.io/auto-restart")),
    // As above.
    applies_to: |kind| kind != WorkloadKind::DEPLOYMENT,
    ..INFISICAL
};

impl Dialect {
    /// Returns the annotations and labels that the dialect reads from a workload, each with its places.
    pub(super) fn read_keys(self) -> impl Iterator<Item = ReadKey> {
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
            Place::Label => whole(key, &[Place::Label]),
            _ => whole(key, ON_WORKLOAD),
        });
        let others = grammar.others.iter().copied();
        let others = others.map(move |key| match self {
            Self::Stakater => whole(key, stakater::places(key)),
            _ => whole(key, ON_WORKLOAD),
        });
        lists.chain(prefixes).chain(gate).chain(others)
    }

    pub(super) fn grammar(self) -> &'static Grammar {
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
