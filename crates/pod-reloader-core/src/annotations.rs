//! The keys of the contract between a user and pod-reloader.

use std::fmt;

/// What all keys begin with.
pub const PREFIX: &str = "pod-reloader.cs.sap.com/";

/// All keys, and where each is read.
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

/// A key, and where it is read.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// With its prefix.
    pub key: &'static str,
    /// Where it is read. It means nothing elsewhere.
    pub place: Place,
    /// Whether we alone write it.
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

/// Where a key can stand.
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

/// On a workload: comma-separated names of ConfigMaps in its namespace, each with or without the keys that
/// count, as in `app[log.level,mode],other`.
pub const CONFIG_MAPS: &str = "pod-reloader.cs.sap.com/configmaps";

/// On a workload: Secrets, likewise.
pub const SECRETS: &str = "pod-reloader.cs.sap.com/secrets";

/// On a workload: `"true"` lets every ConfigMap and Secret count that its pod template uses, `"configmaps"`
/// and `"secrets"` those of one kind, `"false"` none where otherwise every workload is taken.
pub const AUTO: &str = "pod-reloader.cs.sap.com/auto";

/// On a workload: comma-separated names of ConfigMaps that never count.
pub const EXCLUDE_CONFIG_MAPS: &str = "pod-reloader.cs.sap.com/exclude-configmaps";

/// On a workload: Secrets, likewise.
pub const EXCLUDE_SECRETS: &str = "pod-reloader.cs.sap.com/exclude-secrets";

/// On a workload: `"false"` lets objects count as a whole also where keys are named, `"true"` only by the
/// keys that the pod template names, also in dialects that do not.
pub const PER_KEY: &str = "pod-reloader.cs.sap.com/per-key";

/// On a workload of a kind that can be restarted in two ways: by its pod [`TEMPLATE`], or by a time that
/// is written to a field, [`AT`].
pub const RESTART: &str = "pod-reloader.cs.sap.com/restart";

/// A value of [`RESTART`].
pub const TEMPLATE: &str = "template";

/// A value of [`RESTART`].
pub const AT: &str = "at";

/// On a workload: [`ANY`] change restarts it, or only one that is [`NEEDED`] for its pods to see it.
pub const RESTART_ON: &str = "pod-reloader.cs.sap.com/restart-on";

/// A value of [`RESTART_ON`], and what applies without it.
pub const ANY: &str = "any";

/// A value of [`RESTART_ON`].
pub const NEEDED: &str = "needed";

/// On a pod template: the config hash. Written by us alone.
///
/// The same key on the workload's own metadata is a message of SAP's controller to its webhook:
/// we neither obey nor touch it.
pub const CONFIG_HASH: &str = "pod-reloader.cs.sap.com/config-hash";

/// [`CONFIG_HASH`] as managed fields name it.
pub(crate) const CONFIG_HASH_FIELD: &str = "f:pod-reloader.cs.sap.com/config-hash";

/// On a workload: `<KEY value>=<config hash>`. Written by us alone.
///
/// Says which content a KEY that we cannot verify stands for.
pub const BASELINE: &str = "pod-reloader.cs.sap.com/baseline";

/// On a workload: how long its config must have been quiet before it is restarted, such as `10s`.
pub const SETTLE_PERIOD: &str = "pod-reloader.cs.sap.com/settle-period";

/// Label of a workload: `"true"` leaves it alone.
pub const IGNORED: &str = "pod-reloader.cs.sap.com/ignored";

/// Label of a workload: `"true"` leaves it alone.
pub const DISABLED: &str = "pod-reloader.cs.sap.com/disabled";

/// The field manager of all our writes.
///
/// It must not begin with `kubectl`: Flux strips the fields of such managers.
pub const FIELD_MANAGER: &str = "pod-reloader";

/// The field manager of dry runs that ask how a workload stands: see [`standing`](crate::standing).
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
