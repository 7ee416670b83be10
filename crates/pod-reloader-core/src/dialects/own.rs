//! Our own annotations, as far as they are no lists.

use super::Subject;
use crate::annotations as keys;
use crate::reference::ConfigKind;

/// What [`keys::AUTO`] asks for.
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
    /// Reads a value. `None` where it is none that is known.
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

/// What a workload says itself. A value that is none asks for nothing, and opts out of nothing.
pub(super) fn auto(subject: &Subject<'_>) -> Option<Auto> {
    subject.annotation(keys::AUTO).and_then(Auto::parse)
}

/// Whether only the keys count that are named, where the workload says so itself.
pub(super) fn per_key(subject: &Subject<'_>) -> Option<bool> {
    subject.annotation(keys::PER_KEY)?.parse().ok()
}

/// Whether only that counts which the running pods cannot see.
pub(super) fn restarts_where_needed(subject: &Subject<'_>) -> bool {
    subject.annotation(keys::RESTART_ON) == Some(keys::NEEDED)
}
