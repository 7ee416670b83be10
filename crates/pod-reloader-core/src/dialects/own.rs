//! Our own annotations, as far as they are not lists.

use super::Subject;
use crate::annotations as keys;
use crate::reference::ConfigKind;

/// The objects that [`keys::AUTO`] asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auto {
    /// Objects of every kind.
    Both,
    /// Objects of one kind.
    Only(ConfigKind),
    /// Nothing.
    Nothing,
}

impl Auto {
    /// Parses a value. Returns `None` if it is unknown.
    pub(crate) fn parse(value: &str) -> Option<Self> {
        match value {
            "true" => Some(Self::Both),
            "configmaps" => Some(Self::Only(ConfigKind::ConfigMap)),
            "secrets" => Some(Self::Only(ConfigKind::Secret)),
            "false" => Some(Self::Nothing),
            _ => None,
        }
    }

    pub(super) fn takes(self, kind: ConfigKind) -> bool {
        match self {
            Self::Both => true,
            Self::Only(only) => only == kind,
            Self::Nothing => false,
        }
    }
}

/// Returns the workload's own setting. An unknown value asks for nothing, and opts out of nothing.
pub(super) fn auto(subject: &Subject<'_>) -> Option<Auto> {
    subject.annotation(keys::AUTO).and_then(Auto::parse)
}

/// Returns true if only the named keys are tracked. `None` if the workload does not say.
pub(super) fn per_key(subject: &Subject<'_>) -> Option<bool> {
    subject.annotation(keys::PER_KEY)?.parse().ok()
}

/// Returns true if a restart is needed only for changes that running pods cannot see.
pub(super) fn restarts_where_needed(subject: &Subject<'_>) -> bool {
    subject.annotation(keys::RESTART_ON) == Some(keys::NEEDED)
}
