//! Config objects and the workloads that they restart, as a picture.

mod dot;
#[cfg(test)]
mod examples;
mod html;
mod layout;
mod markup;
mod mermaid;
#[cfg(test)]
mod on_screen;
mod section;
mod svg;
mod words;

use pod_reloader_core::reference::ConfigKind;
use serde::Serialize;

pub(crate) use self::{dot::dot, html::html, mermaid::mermaid};

/// Config objects, workloads, and which restarts which. All three are sorted.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Graph {
    /// The config objects that count for some workload.
    pub(crate) objects: Vec<ConfigNode>,
    /// The workloads that are kept.
    pub(crate) workloads: Vec<WorkloadNode>,
    /// What a change of the one does to the other.
    pub(crate) edges: Vec<Edge>,
}

/// A ConfigMap or Secret.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConfigNode {
    /// Which of both.
    #[serde(serialize_with = "as_text")]
    pub(crate) kind: ConfigKind,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Whether it is there; `None` where the user may not see that.
    pub(crate) exists: Option<bool>,
}

/// A workload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkloadNode {
    /// Its kind, such as `Deployment`.
    pub(crate) kind: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// How many pods it is to have, where that can be seen.
    pub(crate) pods: Option<i64>,
    /// What its pod template carries.
    pub(crate) hash: Hash,
}

/// What the pod template of a workload carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Hash {
    /// One of our hashes.
    Own,
    /// No hash of ours, but a baseline stands for it.
    Baseline,
    /// The hash of somebody else.
    Foreign,
    /// None yet.
    None,
}

/// That a config object counts for a workload of its own namespace.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Edge {
    /// Where the object is in [`Graph::objects`].
    pub(crate) object: usize,
    /// Where the workload is in [`Graph::workloads`].
    pub(crate) workload: usize,
    /// The keys of the object that count; `None` for all.
    pub(crate) keys: Option<Vec<String>>,
    /// Whether the pods cannot start without the object.
    pub(crate) is_required: bool,
}

fn as_text<S: serde::Serializer>(kind: &ConfigKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.as_str())
}
