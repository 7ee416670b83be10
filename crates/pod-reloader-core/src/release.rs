//! Releases under way, and whether a restart waits for one.
//!
//! Helm, Flux and Argo CD write config first and workloads later: after hooks, or after hundreds of other
//! objects. A restart in between would be one too many, because the write of the workload takes the new hash
//! along. Each tool stores how far it is in an object of its own.

mod argo_cd;
mod flux;
mod helm;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use kube_core::{DynamicResourceScope, Resource};

pub use self::argo_cd::Application;
pub use self::flux::Kustomization;
pub use self::helm::ReleaseSecret;
pub use self::waits::{AppliedRevision, Candidate, Change, Releases, Wait};
use crate::name::Name;

/// The annotations that say to which releases an object belongs.
pub(crate) const ANNOTATIONS: [&str; 3] = [helm::NAME, helm::NAMESPACE, argo_cd::TRACKING_ID];

/// A tool that writes the objects of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tool {
    /// Helm, and Flux's helm-controller, which uses it.
    Helm,
    /// Flux's kustomize-controller.
    Flux,
    /// Argo CD.
    ArgoCd,
}

/// The namespaces in which the releases of each tool are watched. `None` stands for all of them. Restarts
/// do not wait for the releases of a tool that is missing.
pub type Places = BTreeMap<Tool, Vec<Option<Name>>>;

/// A release of Helm, a Kustomization of Flux, or an Application of Argo CD.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// The tool that writes its objects.
    pub tool: Tool,
    /// The namespace in which the tool stores it. `None` if an object of the release does not say it.
    pub namespace: Option<Name>,
    /// The name of the release.
    pub name: Box<str>,
}

impl fmt::Display for Release {
    /// Writes what the release is, and `namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.tool {
            Tool::Helm => "Helm release",
            Tool::Flux => "Kustomization",
            Tool::ArgoCd => "Application",
        };
        match &self.namespace {
            Some(namespace) => write!(f, "{kind} {namespace}/{}", self.name),
            None => write!(f, "{kind} {}", self.name),
        }
    }
}

impl Release {
    /// Returns the releases of `tools` that an object with these annotations and labels belongs to.
    pub(crate) fn of<'a>(
        tools: &[Tool],
        annotation: impl Fn(&str) -> Option<&'a str>,
        label: impl Fn(&str) -> Option<&'a str>,
    ) -> Box<[Self]> {
        let mut releases = Vec::new();
        for tool in tools {
            match tool {
                Tool::Helm => releases.extend(helm::of(&annotation, &label)),
                Tool::Flux => releases.extend(flux::of(&label)),
                Tool::ArgoCd => releases.extend(argo_cd::of(&annotation, &label)),
            }
        }
        releases.into()
    }
}

/// An object in which a tool stores a release, or a revision of it.
pub trait ReleaseObject: Resource<DynamicType = (), Scope = DynamicResourceScope> {
    /// The tool.
    const TOOL: Tool;
    /// The label selector of the objects that matter, if they have labels for that.
    const SELECTOR: Option<&str>;

    /// Returns the revision that the object stores. `None` if it does not look as the tool writes it.
    fn revision(&self) -> Option<Revision>;
}

/// A revision of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The release.
    pub release: Release,
    /// The number of the revision, which grows with each one. 0 if the tool stores only the last one.
    pub number: u64,
    stage: Stage,
}

impl Revision {
    /// Returns the only revision that a tool stores of a release, given the step that it takes, if it may still
    /// write.
    fn only(release: Release, step: Option<Step>) -> Self {
        Self {
            release,
            number: 0,
            stage: step.map_or(Stage::Ended, Stage::UnderWay),
        }
    }
}

/// The progress of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Everything has been written.
    Ended,
    /// The revision has failed. Helm may be about to roll back by another revision.
    Failed,
    /// The tool may still write.
    UnderWay(Step),
}

/// The last step that a tool was seen to take.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Helm has written the Secret of the revision.
    Helm {
        /// The resourceVersion of the Secret.
        version: u64,
        /// True if the Secret was written since the revision began: a hook has begun. Helm removes the
        /// label `createdAt` then. (The label `modifiedAt` can come from the revision before.)
        has_hook: bool,
    },
    /// Flux has said something else. The number stands for it.
    Flux(u64),
    /// Argo CD has got further with a sync.
    ArgoCd {
        /// A number that stands for how far it is.
        sign: u64,
        /// True if the Application does not say that the Argo CD of another namespace syncs it.
        is_at_home: bool,
        /// The objects that have been applied.
        applied: BTreeSet<u64>,
    },
}

/// Returns a number that stands for a value, for as long as the process runs.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
