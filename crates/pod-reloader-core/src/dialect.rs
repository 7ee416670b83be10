//! Dialects: our own annotations, and those of other controllers that the operator understands.

use std::fmt;
use std::str::FromStr;

use crate::mark::Marks;

/// The controller that a set of annotations belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// Our own.
    PodReloader,
    /// No controller: the operator manages every workload.
    AutoAll,
    /// Stakater's Reloader.
    Stakater,
    /// Wave.
    Wave,
    /// The restarter of Stackable's commons-operator.
    Stackable,
    /// k8s-trigger-controller.
    TriggerController,
    /// fabric8's configmapcontroller.
    Fabric8,
    /// Infisical's operator, for the kinds that it does not restart itself.
    Infisical,
    /// 1Password's operator, for the kinds that it does not restart itself.
    OnePassword,
}

impl Dialect {
    /// The dialects that can be chosen.
    pub const ALL: [Self; 8] = [
        Self::PodReloader,
        Self::Stakater,
        Self::Wave,
        Self::Stackable,
        Self::TriggerController,
        Self::Fabric8,
        Self::Infisical,
        Self::OnePassword,
    ];

    /// Returns the dialect's name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PodReloader => "pod-reloader",
            Self::AutoAll => "auto-all",
            Self::Stakater => "stakater",
            Self::Wave => "wave",
            Self::Stackable => "stackable",
            Self::TriggerController => "trigger-controller",
            Self::Fabric8 => "fabric8",
            Self::Infisical => "infisical",
            Self::OnePassword => "onepassword",
        }
    }

    /// Returns the marks that keep an object from being tracked.
    pub(crate) fn denying_marks(self) -> Marks {
        let own = match self {
            Self::Stakater | Self::AutoAll => Marks::STAKATER_IGNORE,
            Self::Stackable => Marks::STACKABLE_IGNORE,
            Self::PodReloader
            | Self::Wave
            | Self::TriggerController
            | Self::Fabric8
            | Self::Infisical
            | Self::OnePassword => Marks::NONE,
        };
        own | Marks::NOT_SELECTED
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|it| it.as_str() == text);
        known.ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            format!("{text:?} is no dialect; there are {known}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dialect_can_be_chosen() {
        let next = |dialect| match dialect {
            Dialect::PodReloader => Some(Dialect::Stakater),
            Dialect::Stakater => Some(Dialect::Wave),
            Dialect::Wave => Some(Dialect::Stackable),
            Dialect::Stackable => Some(Dialect::TriggerController),
            Dialect::TriggerController => Some(Dialect::Fabric8),
            Dialect::Fabric8 => Some(Dialect::Infisical),
            Dialect::Infisical => Some(Dialect::OnePassword),
            // The latter is chosen by a flag of its own.
            Dialect::OnePassword | Dialect::AutoAll => None,
        };
        let all = std::iter::successors(Some(Dialect::PodReloader), |it| next(*it));
        assert!(all.eq(Dialect::ALL));
    }
}
