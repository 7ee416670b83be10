//! Marks: the metadata of a config object that decides whether it is tracked.

use std::fmt;
use std::ops::BitOr;

/// A set of marks of one config object. An object without marks is tracked by every workload that names it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Marks(u8);

impl Marks {
    /// No mark.
    pub const NONE: Self = Self(0);
    /// The object is immutable: a running pod never sees different content, not even in a volume.
    pub const IMMUTABLE: Self = Self(1);
    /// [`STAKATER_IGNORE`] is `"true"`.
    pub const STAKATER_IGNORE: Self = Self(1 << 1);
    /// [`STAKATER_MATCH`] is `"true"`.
    pub const STAKATER_MATCH: Self = Self(1 << 2);
    /// [`STACKABLE_IGNORE`] is `"true"`.
    pub const STACKABLE_IGNORE: Self = Self(1 << 3);
    /// Labels are required, and the object has them.
    pub const SELECTED: Self = Self(1 << 4);
    /// Labels are required, and the object does not have them.
    pub const NOT_SELECTED: Self = Self(1 << 5);
    /// [`HOLD`](crate::annotations::HOLD) holds it back. This mark does not decide whether the object is tracked.
    pub const HELD: Self = Self(1 << 6);
    /// The label [`COPY`] says that we have made it, as a copy. This mark does not decide whether the object
    /// is tracked.
    pub const COPY: Self = Self(1 << 7);

    /// Returns true if all of `others` are among these marks.
    pub fn contain(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns true if any of `others` is among these marks.
    pub fn meet(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }
}

impl BitOr for Marks {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Marks({:#b})", self.0)
    }
}

/// Annotation of a config object: in Stakater's dialect, `"true"` keeps it from being tracked.
pub const STAKATER_IGNORE: &str = "reloader.stakater.com/ignore";
/// Annotation of a config object: `"true"` makes it tracked by workloads that search.
pub const STAKATER_MATCH: &str = "reloader.stakater.com/match";
/// Label of a config object: in Stackable's dialect, `"true"` keeps it from being tracked.
pub const STACKABLE_IGNORE: &str = "restarter.stackable.tech/ignore";

/// Label of a ConfigMap: we have made it for [`pins`](crate::pins). Its value is [`IS_COPY`] or [`STANDS_IN`].
pub const COPY: &str = "pod-reloader.cs.sap.com/copy";
/// Value of [`COPY`]: the ConfigMap has the content that its name says.
pub const IS_COPY: &str = "true";
/// Value of [`COPY`]: nobody knows the content that its name says any more, and it has other content in its place.
pub const STANDS_IN: &str = "stands-in";

/// Returns true if a value of the annotation [`HOLD`](crate::annotations::HOLD) holds, on a workload as on a
/// config object.
pub fn is_hold(value: &str) -> bool {
    value != "false"
}
