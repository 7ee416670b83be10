//! The annotations and labels of the contract between users and pod-reloader.

use std::fmt;

/// The prefix of all our annotations and labels.
pub const PREFIX: &str = "pod-reloader.cs.sap.com/";

/// All our annotations and labels, with the place in which each is read.
pub const KEYS: [Key; 13] = [
    Key::of_the_user(CONFIG_MAPS, Place::Annotation),
    Key::of_the_user(SECRETS, Place::Annotation),
    Key::of_the_user(AUTO, Place::Annotation),
    Key::of_the_user(EXCLUDE_CONFIG_MAPS, Place::Annotation),
    Key::of_the_user(EXCLUDE_SECRETS, Place::Annotation),
    Key::of_the_user(PER_KEY, Place::Annotation),
    Key::of_the_user(RESTART, Place::Annotation),
    Key::of_the_user(RESTART_ON, Place::Annotation),
    Key::of_the_user(SETTLE_PERIOD, Place::Annotation),
    Key::of_the_user(IGNORED, Place::Label),
    Key::of_the_user(DISABLED, Place::Label),
    Key::of_ours(CONFIG_HASH, Place::TemplateAnnotation),
    Key::of_ours(BASELINE, Place::Annotation),
];

/// One of our annotations or labels, and the place in which it is read.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// The full name, with its prefix.
    pub key: &'static str,
    /// The place in which it is read. It means nothing anywhere else.
    pub place: Place,
    /// True if only we write it.
    pub is_ours: bool,
}

impl Key {
    const fn of_the_user(key: &'static str, place: Place) -> Self {
        let is_ours = false;
        Self {
            key,
            place,
            is_ours,
        }
    }

    const fn of_ours(key: &'static str, place: Place) -> Self {
        let is_ours = true;
        Self {
            key,
            place,
            is_ours,
        }
    }
}

/// A place in which an annotation or a label can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the annotations of the workload.
    Annotation,
    /// In the labels of the workload.
    Label,
    /// In the annotations of its pod template.
    TemplateAnnotation,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Annotation => "an annotation of the workload",
            Self::Label => "a label of the workload",
            Self::TemplateAnnotation => "an annotation of the pod template",
        })
    }
}

/// On a workload: comma-separated names of ConfigMaps in its namespace, each with or without the keys to
/// track, as in `app[log.level,mode],other`.
pub const CONFIG_MAPS: &str = "pod-reloader.cs.sap.com/configmaps";

/// On a workload: the same for Secrets.
pub const SECRETS: &str = "pod-reloader.cs.sap.com/secrets";

/// On a workload: `"true"` tracks every ConfigMap and Secret that its pod template uses, and `"configmaps"`
/// and `"secrets"` those of one kind. `"false"` tracks none if otherwise every workload is managed.
pub const AUTO: &str = "pod-reloader.cs.sap.com/auto";

/// On a workload: comma-separated names of ConfigMaps that are never tracked.
pub const EXCLUDE_CONFIG_MAPS: &str = "pod-reloader.cs.sap.com/exclude-configmaps";

/// On a workload: the same for Secrets.
pub const EXCLUDE_SECRETS: &str = "pod-reloader.cs.sap.com/exclude-secrets";

/// On a workload: `"false"` tracks whole objects even if keys are named. `"true"` tracks only the keys that
/// the pod template names, even in dialects that track whole objects.
pub const PER_KEY: &str = "pod-reloader.cs.sap.com/per-key";

/// On a workload whose kind can be restarted in two ways: by its pod [`TEMPLATE`], or by a time written to
/// a field, [`AT`].
pub const RESTART: &str = "pod-reloader.cs.sap.com/restart";

/// A value of [`RESTART`].
pub const TEMPLATE: &str = "template";

/// A value of [`RESTART`].
pub const AT: &str = "at";

/// On a workload: [`ANY`] change restarts it, or only one for which a restart is [`NEEDED`].
pub const RESTART_ON: &str = "pod-reloader.cs.sap.com/restart-on";

/// A value of [`RESTART_ON`], and the default.
pub const ANY: &str = "any";

/// A value of [`RESTART_ON`].
pub const NEEDED: &str = "needed";

/// On a pod template: the config hash. Only we write it.
///
/// The same annotation on the workload's own metadata is a message of SAP's controller to its webhook: we
/// neither obey it nor touch it.
pub const CONFIG_HASH: &str = "pod-reloader.cs.sap.com/config-hash";

/// The name of [`CONFIG_HASH`] in managed fields.
pub(crate) const CONFIG_HASH_FIELD: &str = "f:pod-reloader.cs.sap.com/config-hash";

/// On a workload: `<value of CONFIG_HASH>=<config hash>`. Only we write it.
///
/// A baseline says which content a config hash that we cannot verify stands for.
pub const BASELINE: &str = "pod-reloader.cs.sap.com/baseline";

/// On a workload: the time for which its config must be unchanged before a restart, such as `10s`.
pub const SETTLE_PERIOD: &str = "pod-reloader.cs.sap.com/settle-period";

/// Label of a workload: `"true"` makes pod-reloader leave it alone.
pub const IGNORED: &str = "pod-reloader.cs.sap.com/ignored";

/// Label of a workload: `"true"` makes pod-reloader leave it alone.
pub const DISABLED: &str = "pod-reloader.cs.sap.com/disabled";

/// The field manager of all our writes.
///
/// The name must not begin with `kubectl`: Flux strips the fields of such managers.
pub const FIELD_MANAGER: &str = "pod-reloader";

/// The field manager of dry runs that ask for a workload's sync status: see [`standing`](crate::standing).
pub const INQUIRER: &str = "pod-reloader-inquiry";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_the_prefix_and_a_name() {
        for Key { key, .. } in KEYS {
            assert!(key.len() > PREFIX.len() && key.starts_with(PREFIX), "{key}");
        }
    }
}
