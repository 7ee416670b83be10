//! The annotations and labels of the contract between users and pod-reloader.

use std::fmt;

/// The prefix of all our annotations and labels.
pub const PREFIX: &str = pod_reloader_api::OUR_PREFIX;

/// All our annotations and labels, with the place in which each is read.
pub const KEYS: [Key; 32] = [
    Key::of_the_user(CONFIG_MAPS, Place::Annotation),
    Key::of_the_user(SECRETS, Place::Annotation),
    Key::of_the_user(AUTO, Place::Annotation),
    Key::of_the_user(EXCLUDE_CONFIG_MAPS, Place::Annotation),
    Key::of_the_user(EXCLUDE_SECRETS, Place::Annotation),
    Key::of_the_user(SECRET_PROVIDER_CLASSES, Place::Annotation),
    Key::of_the_user(EXCLUDE_SECRET_PROVIDER_CLASSES, Place::Annotation),
    Key::of_the_user(PER_KEY, Place::Annotation),
    Key::of_the_user(RESTART, Place::Annotation),
    Key::of_the_user(RESTART_ON, Place::Annotation),
    Key::of_the_user(SETTLE_PERIOD, Place::Annotation).lasting("--settle-period"),
    Key::of_timing(STAGED),
    Key::of_timing(STAGE),
    Key::of_timing(SOAK).lasting("--staged-soak"),
    Key::of_timing(DEADLINE).lasting("--staged-deadline"),
    Key::of_timing(HOLD),
    Key::of_timing(RESTART_WINDOW),
    Key::of_timing(APPROVAL),
    Key::of_timing(APPROVE),
    Key::of_timing(TOGETHER),
    Key::of_timing(TOGETHER_TIMEOUT).lasting("15m"),
    Key::of_timing(PIN),
    Key::of_timing(ON_FAILURE),
    Key::of_timing(RELOAD_URL),
    Key::of_timing(RELOAD_DELAY).lasting("10s"),
    Key::of_timing(RELOAD_TIMEOUT).lasting("2m"),
    Key::of_the_user(IGNORED, Place::Label),
    Key::of_the_user(DISABLED, Place::Label),
    Key::of_ours(CONFIG_HASH, Place::TemplateAnnotation),
    Key::of_ours(PINS, Place::TemplateAnnotation),
    Key::of_ours(BASELINE, Place::Annotation),
    Key::of_ours(UNDONE, Place::Annotation),
];

/// Our annotations of a pod template.
pub(crate) const OF_TEMPLATES: [&str; 2] = [CONFIG_HASH, PINS];

/// The annotations that a Namespace may have for all its workloads.
pub(crate) const INHERITED: [&str; 6] = [STAGED, SOAK, DEADLINE, HOLD, RESTART_WINDOW, APPROVAL];

/// The annotations of a Namespace that its workloads have unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inherited(Box<[(&'static str, Box<str>)]>);

impl Inherited {
    /// Selects them from the annotations of a Namespace.
    pub fn of<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Self {
        let present = INHERITED.into_iter();
        let present = present.filter_map(|key| Some((key, annotation(key)?.into())));
        Self(present.collect())
    }

    /// Returns the value of an annotation, if the Namespace has it.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let own = self.0.iter().find(|(own, _)| *own == key);
        own.map(|(_, value)| &**value)
    }
}

/// One of our annotations or labels, and the place in which it is read.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// The full name, with its prefix.
    pub key: &'static str,
    /// The place in which it is read. It means nothing anywhere else.
    pub place: Place,
    /// True if only we write it.
    pub is_ours: bool,
    /// True if it says only when pods are restarted, whether they are reloaded instead, or how they can be put back. If
    /// it changes while a restart is being written, that restart came first. A settle period says more: from when on a
    /// content counts. A restart that was decided by another one is decided again.
    pub is_timing: bool,
    /// The time that applies without it, or the flag that sets that time. `None` if its value is not a time.
    pub default_time: Option<&'static str>,
}

impl Key {
    const fn of_the_user(key: &'static str, place: Place) -> Self {
        Self {
            key,
            place,
            is_ours: false,
            is_timing: false,
            default_time: None,
        }
    }

    const fn of_timing(key: &'static str) -> Self {
        Self {
            is_timing: true,
            ..Self::of_the_user(key, Place::Annotation)
        }
    }

    const fn lasting(self, default: &'static str) -> Self {
        Self {
            default_time: Some(default),
            ..self
        }
    }

    const fn of_ours(key: &'static str, place: Place) -> Self {
        Self {
            is_ours: true,
            ..Self::of_the_user(key, place)
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
    /// In the labels of its pod template.
    TemplateLabel,
}

impl Place {
    /// Returns true if labels are there, and no annotations.
    pub const fn is_of_labels(self) -> bool {
        matches!(self, Self::Label | Self::TemplateLabel)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Annotation => "an annotation of the workload",
            Self::Label => "a label of the workload",
            Self::TemplateAnnotation => "an annotation of the pod template",
            Self::TemplateLabel => "a label of the pod template",
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

/// On a workload: comma-separated names of SecretProviderClasses that its pods mount: see
/// [`rotation`](crate::rotation).
pub const SECRET_PROVIDER_CLASSES: &str = "pod-reloader.cs.sap.com/secretproviderclasses";

/// On a workload: comma-separated names of SecretProviderClasses that are never tracked.
pub const EXCLUDE_SECRET_PROVIDER_CLASSES: &str =
    "pod-reloader.cs.sap.com/exclude-secretproviderclasses";

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
/// A baseline says which content a config hash that we cannot verify stands for, or which content the pods have reloaded
/// since that hash was set.
pub const BASELINE: &str = "pod-reloader.cs.sap.com/baseline";

/// On a workload: the time for which its config must be unchanged before a restart, such as `10s`.
pub const SETTLE_PERIOD: &str = "pod-reloader.cs.sap.com/settle-period";

/// On a workload: `"true"` restarts it in stages with others that track the same changed object,
/// `"configmaps"` only when a ConfigMap changes, and `"false"` never.
pub const STAGED: &str = "pod-reloader.cs.sap.com/staged";

/// On a workload: its stage, a whole number. Lower stages go first.
pub const STAGE: &str = "pod-reloader.cs.sap.com/stage";

/// On a workload: the time for which it must be healthy after a staged restart before the next ones go.
pub const SOAK: &str = "pod-reloader.cs.sap.com/soak";

/// On a workload: the time within which it must become healthy after a staged restart.
pub const DEADLINE: &str = "pod-reloader.cs.sap.com/deadline";

/// On a workload, a Namespace, a ConfigMap or a Secret: `"true"` keeps the workload, all workloads of the
/// Namespace, or all that track the object from being restarted.
pub const HOLD: &str = "pod-reloader.cs.sap.com/hold";

/// On a workload: the times of the week in which it may be restarted, such as `Mon-Fri 02:00-04:00
/// Europe/Berlin`.
pub const RESTART_WINDOW: &str = "pod-reloader.cs.sap.com/restart-window";

/// On a workload: [`REQUIRED`] restarts it only for content that somebody has approved by [`APPROVE`].
pub const APPROVAL: &str = "pod-reloader.cs.sap.com/approval";

/// The value of [`APPROVAL`].
pub const REQUIRED: &str = "required";

/// On a workload: the first eight digits of the config hash that is approved.
pub const APPROVE: &str = "pod-reloader.cs.sap.com/approve";

/// On a workload: the tracked objects that change together, comma-separated, each with or without its kind, as in
/// `db-user, secret/db-password`.
pub const TOGETHER: &str = "pod-reloader.cs.sap.com/together";

/// On a workload: the time for which a restart waits until all of these have changed.
pub const TOGETHER_TIMEOUT: &str = "pod-reloader.cs.sap.com/together-timeout";

/// On a workload: the tracked ConfigMaps of which each revision keeps a copy, comma-separated, or
/// [`ALL_CONFIG_MAPS`].
pub const PIN: &str = "pod-reloader.cs.sap.com/pin";

/// The value of [`PIN`] that stands for all ConfigMaps that the workload tracks.
pub const ALL_CONFIG_MAPS: &str = "configmaps";

/// On a pod template: the copies that its pods use in place of ConfigMaps: see [`pins`](crate::pins). Only we
/// write it.
pub const PINS: &str = "pod-reloader.cs.sap.com/pins";

/// The name of [`PINS`] in managed fields.
pub(crate) const PINS_FIELD: &str = "f:pod-reloader.cs.sap.com/pins";

/// On a workload: the pins of the content that was undone. Only we write it.
///
/// As long as the ConfigMaps still have that content, the workload keeps the pins that it has.
pub const UNDONE: &str = "pod-reloader.cs.sap.com/undone";

/// On a workload that does not become healthy with a new configuration: [`HELD`] leaves it as it is, and
/// [`REVERTED`] puts the old configuration back.
pub const ON_FAILURE: &str = "pod-reloader.cs.sap.com/on-failure";

/// A value of [`ON_FAILURE`], and the default.
pub const HELD: &str = "hold";

/// A value of [`ON_FAILURE`].
pub const REVERTED: &str = "revert";

/// On a workload: the port and the path at which each of its pods reloads its config, such as `http://:8080/-/reload`.
pub const RELOAD_URL: &str = "pod-reloader.cs.sap.com/reload-url";

/// On a workload: the time that a pod gets to have changed config in its files before it is asked to reload.
pub const RELOAD_DELAY: &str = "pod-reloader.cs.sap.com/reload-delay";

/// On a workload: the time after that delay in which all pods must have reloaded. Otherwise they are restarted.
pub const RELOAD_TIMEOUT: &str = "pod-reloader.cs.sap.com/reload-timeout";

/// Label of a workload: `"true"` makes pod-reloader leave it alone.
pub const IGNORED: &str = "pod-reloader.cs.sap.com/ignored";

/// Label of a workload: `"true"` makes pod-reloader leave it alone.
pub const DISABLED: &str = "pod-reloader.cs.sap.com/disabled";

/// The field manager of all our writes.
///
/// The name must not begin with `kubectl`: Flux strips the fields of such managers.
pub const FIELD_MANAGER: &str = "pod-reloader";

/// The field manager of what people write with the kubectl plugin.
pub const PLUGIN: &str = "pod-reloader-plugin";

/// The field manager of dry runs that ask for a workload's sync status: see [`sync_status`](crate::sync_status).
pub const STATUS_QUERY: &str = "pod-reloader-status-query";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_annotation_has_the_prefix_and_a_name() {
        for Key { key, .. } in KEYS {
            assert!(key.len() > PREFIX.len() && key.starts_with(PREFIX), "{key}");
        }
    }

    #[test]
    fn every_constant_is_in_the_table_of_keys() {
        let constants = include_str!("annotations.rs").lines();
        let constants = constants.filter(|line| line.starts_with("pub const "));
        let values = constants.filter_map(|line| line.split('"').nth(1));
        let keys: Vec<_> = values
            .filter(|it| it.len() > PREFIX.len() && it.starts_with(PREFIX))
            .collect();
        assert!(keys.contains(&CONFIG_MAPS));
        for constant in keys {
            assert!(
                KEYS.iter().any(|Key { key, .. }| *key == constant),
                "{constant}"
            );
        }
    }

    #[test]
    fn every_key_is_documented() {
        let page = include_str!("../../../docs/annotations.md");
        let (_, table) = page.split_once("\n## Keys\n").unwrap();
        let (table, _) = table.split_once("\n## ").unwrap();
        for Key { key, .. } in KEYS {
            let name = format!("`{}`", &key[PREFIX.len()..]);
            let rows = table.lines().filter_map(|line| line.split(" | ").next());
            assert!(rows.into_iter().any(|row| row.contains(&name)), "{key}");
        }
    }

    #[test]
    fn every_key_that_is_a_time_is_listed_among_the_timers() {
        let page = include_str!("../../../docs/timers.md");
        for Key { key, .. } in KEYS.iter().filter(|key| key.default_time.is_some()) {
            let name = format!("annotation `{}`", &key[PREFIX.len()..]);
            assert!(page.contains(&name), "{key}");
        }
    }

    #[test]
    fn every_key_that_applies_to_other_dialects_is_listed_with_them() {
        let page = include_str!("../../../docs/annotations.md");
        let (_, dialects) = page.split_once("\n## Dialects\n").unwrap();
        let mut lines = dialects.lines();
        let list = lines.find(|line| line.starts_with("Our own annotations and labels"));
        let list = list.unwrap();
        let of_objects = [CONFIG_MAPS, SECRETS, AUTO, SECRET_PROVIDER_CLASSES];
        for Key { key, is_ours, .. } in KEYS {
            let name = format!("`{}`", &key[PREFIX.len()..]);
            let applies = !is_ours && !of_objects.contains(&key);
            assert_eq!(list.contains(&name), applies, "{key}");
        }
    }

    #[test]
    fn every_key_that_says_only_when_is_listed_among_those_that_stay_with_the_pods() {
        let page = include_str!("../../../docs/annotations.md");
        let mut lines = page.lines();
        let row = lines.find(|line| line.starts_with("| `kubectl delete --cascade=orphan`"));
        let row = row.unwrap();
        for Key { key, is_timing, .. } in KEYS {
            let name = format!("`{}`", &key[PREFIX.len()..]);
            assert_eq!(row.contains(&name), is_timing, "{key}");
        }
    }
}
