//! The rollouts that the documents announce: the workloads that roll once when a feature of the chart is switched.

use crate::population::{Form, Kept};

/// Tells whether a workload rolls.
pub(crate) type Rolls = fn(&Kept) -> bool;

/// Returns the workloads that roll when a feature is switched on.
pub(crate) fn on(feature: &str) -> Rolls {
    match feature {
        // docs/undo.md: so that they have copies to use.
        "pin.enabled" => |kept| kept.form == Form::Pinned,
        _ => off(feature),
    }
}

/// Returns the workloads that roll when it is switched off.
pub(crate) fn off(feature: &str) -> Rolls {
    match feature {
        // docs/annotations.md#when-an-edit-restarts-pods: those that use both kinds.
        "ignoreSecrets" | "ignoreConfigMaps" => uses_both,
        _ => |_| false,
    }
}

fn uses_both(kept: &Kept) -> bool {
    kept.lists_both() && !kept.form.is_gated()
}
