//! Kinds of workload, and where their pod templates stand.

use std::fmt;

/// A kind of workload. It lives as long as the process, and is as cheap to pass on as a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadKind(&'static Shape);

/// What there is to know of a kind.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// The kind as Kubernetes spells it.
    pub kind: &'static str,
    /// The API group, empty for core.
    pub group: &'static str,
    /// The version of the API in which it is read and written.
    pub version: &'static str,
    /// The resource in URLs.
    pub plural: &'static str,
    /// The fields that lead to the pod template, from the outermost on.
    pub template: &'static [&'static str],
}

impl WorkloadKind {
    /// A Deployment.
    pub const DEPLOYMENT: Self = Self(&of_apps("Deployment", "deployments"));
    /// A StatefulSet.
    pub const STATEFUL_SET: Self = Self(&of_apps("StatefulSet", "statefulsets"));
    /// A DaemonSet.
    pub const DAEMON_SET: Self = Self(&of_apps("DaemonSet", "daemonsets"));

    /// Those that every cluster has.
    pub const BUILT_IN: [Self; 3] = [Self::DEPLOYMENT, Self::STATEFUL_SET, Self::DAEMON_SET];

    /// The kind with this API group and name, if it is kept.
    pub fn from_group_kind(group: &str, kind: &str) -> Option<Self> {
        Self::BUILT_IN
            .into_iter()
            .find(|own| group == own.0.group && own.0.kind == kind)
    }

    /// The kind as Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        self.0.kind
    }

    /// All there is to know of it.
    pub fn shape(self) -> &'static Shape {
        self.0
    }
}

const fn of_apps(kind: &'static str, plural: &'static str) -> Shape {
    Shape {
        kind,
        group: "apps",
        version: "v1",
        plural,
        template: &["spec", "template"],
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
