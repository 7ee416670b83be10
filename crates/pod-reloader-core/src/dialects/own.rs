//! Our own annotations, as far as they are not lists.

use super::Subject;
use crate::annotations as keys;
use crate::reference::ConfigKind;

/// Returns the kinds of object that a value of [`keys::AUTO`] asks for. `None` if it is unknown.
pub(super) fn kinds(value: &str) -> Option<&'static [ConfigKind]> {
    match value {
        "true" => Some(&ConfigKind::ALL),
        "configmaps" => Some(&[ConfigKind::ConfigMap]),
        "secrets" => Some(&[ConfigKind::Secret]),
        "false" => Some(&[]),
        _ => None,
    }
}

/// Returns the workload's own setting. An unknown value asks for nothing, and opts out of nothing.
pub(super) fn auto(subject: &Subject<'_>) -> Option<&'static [ConfigKind]> {
    subject.annotation(keys::AUTO).and_then(kinds)
}

/// Returns true if only the named keys are tracked. `None` if the workload does not say.
pub(super) fn per_key(subject: &Subject<'_>) -> Option<bool> {
    subject.annotation(keys::PER_KEY)?.parse().ok()
}

/// Returns true if a restart is needed only for changes that running pods cannot see.
pub(super) fn restarts_where_needed(subject: &Subject<'_>) -> bool {
    subject.annotation(keys::RESTART_ON) == Some(keys::NEEDED)
}
