//! The dialect of Stakater's Reloader, as its code reads it (v1.4.21), for one kind of config object.
//!
//! 1. The annotations that opt in are this kind's `reload`, `auto`, this kind's `auto`, and `search`. They
//!    are read from the workload, or from the pod template if the workload has none of them, not even an
//!    empty one.
//! 2. Excluded names are never tracked. Excludes are read from the workload only.
//! 3. A list applies whatever the others say, even if `auto` is `"false"`.
//! 4. With `search`, an object that the pod spec uses is tracked if it says `match`.
//! 5. With `auto` or this kind's `auto`, every object that the pod spec uses is tracked. One of them is
//!    enough.
//! 6. If every workload is managed, that includes one that gives neither of these two a value.
//!
//! An object that says `ignore` is never tracked: [`Marks::STAKATER_IGNORE`].

use super::{Dialect, ON_WORKLOAD, Subject, Wishes};
use crate::annotations::Place;
use crate::mark::Marks;
use crate::reference::ConfigKind;

pub(crate) const EXCLUDE_CONFIG_MAPS: &str = "configmaps.exclude.reloader.stakater.com/reload";
pub(crate) const EXCLUDE_SECRETS: &str = "secrets.exclude.reloader.stakater.com/reload";
pub(crate) const PAUSE_PERIOD: &str = "deployment.reloader.stakater.com/pause-period";
pub(crate) const ROLLOUT_STRATEGY: &str = "reloader.stakater.com/rollout-strategy";
pub(super) const RESTART: &str = "restart";
pub(crate) const AUTO: &str = "reloader.stakater.com/auto";
pub(crate) const SEARCH: &str = "reloader.stakater.com/search";
const CONFIG_MAP_AUTO: &str = "configmap.reloader.stakater.com/auto";
const SECRET_AUTO: &str = "secret.reloader.stakater.com/auto";
const CONFIG_MAP_RELOAD: &str = "configmap.reloader.stakater.com/reload";
const SECRET_RELOAD: &str = "secret.reloader.stakater.com/reload";
pub(crate) const EXCLUDE_CLASSES: &str =
    "secretproviderclasses.exclude.reloader.stakater.com/reload";
const CLASS_AUTO: &str = "secretproviderclass.reloader.stakater.com/auto";
const CLASS_RELOAD: &str = "secretproviderclass.reloader.stakater.com/reload";

/// The annotations about SecretProviderClasses, which are read if these are tracked.
pub(crate) const OF_CLASSES: [&str; 3] = [CLASS_AUTO, CLASS_RELOAD, EXCLUDE_CLASSES];

/// The annotations that are read, apart from the excludes.
pub(crate) const READ: [&str; 8] = [
    AUTO,
    SEARCH,
    CONFIG_MAP_AUTO,
    SECRET_AUTO,
    CONFIG_MAP_RELOAD,
    SECRET_RELOAD,
    PAUSE_PERIOD,
    ROLLOUT_STRATEGY,
];

/// The annotations that are read from the workload only.
const ON_THE_WORKLOAD: [&str; 5] = [
    EXCLUDE_CONFIG_MAPS,
    EXCLUDE_SECRETS,
    EXCLUDE_CLASSES,
    PAUSE_PERIOD,
    ROLLOUT_STRATEGY,
];

/// Returns the places in which an annotation is read.
pub(super) fn places(key: &str) -> &'static [Place] {
    match ON_THE_WORKLOAD.contains(&key) {
        true => ON_WORKLOAD,
        false => &[Place::Annotation, Place::TemplateAnnotation],
    }
}

pub(super) fn wishes<'a>(
    kind: ConfigKind,
    subject: &'a Subject<'_>,
    takes_all: bool,
) -> Wishes<'a> {
    let typed = match kind {
        ConfigKind::ConfigMap => (CONFIG_MAP_AUTO, CONFIG_MAP_RELOAD),
        ConfigKind::Secret => (SECRET_AUTO, SECRET_RELOAD),
    };
    by(typed, subject, takes_all)
}

/// Returns what a workload asks for of SecretProviderClasses.
pub(super) fn wishes_for_classes<'a>(subject: &'a Subject<'_>, takes_all: bool) -> Wishes<'a> {
    by((CLASS_AUTO, CLASS_RELOAD), subject, takes_all)
}

fn by<'a>(
    (typed_auto, reload): (&str, &str),
    subject: &'a Subject<'_>,
    takes_all: bool,
) -> Wishes<'a> {
    let subscribing = [reload, AUTO, typed_auto, SEARCH];
    let is_on_metadata = subscribing
        .iter()
        .any(|key| subject.annotations.get(key).is_some());
    let annotations = match is_on_metadata {
        true => subject.annotations,
        false => subject.template_annotations,
    };
    let value = |key| annotations.get(key).unwrap_or_default();
    let mut discovers = Vec::new();
    if value(SEARCH) == "true" {
        discovers.push((Dialect::Stakater, Marks::STAKATER_MATCH));
    }
    if is_true(value(AUTO)) || is_true(value(typed_auto)) {
        discovers.push((Dialect::Stakater, Marks::NONE));
    }
    if takes_all && value(AUTO).is_empty() && value(typed_auto).is_empty() {
        discovers.push((Dialect::AutoAll, Marks::NONE));
    }
    Wishes {
        names: None,
        patterns: Some(value(reload)).filter(|list| !list.is_empty()),
        discovers,
    }
}

/// Returns the annotations by which a workload opts out where every workload is managed.
pub(super) fn opting_out(subject: &Subject<'_>) -> impl Iterator<Item = &'static str> {
    [AUTO, CONFIG_MAP_AUTO, SECRET_AUTO]
        .into_iter()
        .filter(move |key| {
            let on_template = || subject.template_annotations.get(key);
            let value = subject.annotations.get(key).or_else(on_template);
            value.is_some_and(|value| !value.is_empty() && !is_true(value))
        })
}

/// Parses like Go's `strconv.ParseBool`.
fn is_true(value: &str) -> bool {
    ["1", "t", "T", "true", "TRUE", "True"].contains(&value)
}
