//! The graph of config objects and the workloads that they restart, as a picture.

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

/// Config objects, workloads, and which restarts which. All three lists are sorted.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Graph {
    /// The config objects that are tracked for some workload.
    pub(crate) objects: Vec<ConfigNode>,
    /// The managed workloads.
    pub(crate) workloads: Vec<WorkloadNode>,
    /// The effects of objects on workloads.
    pub(crate) edges: Vec<Edge>,
}

/// A ConfigMap or Secret.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConfigNode {
    /// ConfigMap or Secret.
    #[serde(serialize_with = "as_text")]
    pub(crate) kind: ConfigKind,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// True if the object exists; `None` if the user may not see that.
    pub(crate) exists: Option<bool>,
    /// True if the object is on hold, and with it every workload that it restarts.
    pub(crate) is_held: bool,
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
    /// Number of pods that it asks for, if that can be seen.
    pub(crate) pods: Option<i64>,
    /// The hash that its pod template carries.
    pub(crate) hash: Hash,
    /// True if the workload itself is on hold.
    pub(crate) is_held: bool,
    /// Its stage, if its restarts are staged.
    pub(crate) stage: Option<i32>,
}

/// The kind of hash that a pod template carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Hash {
    /// A hash of ours.
    Own,
    /// No hash of ours; a baseline takes its place.
    Baseline,
    /// A hash of somebody else.
    Foreign,
    /// No hash yet.
    None,
}

/// An edge: a config object is tracked for a workload of its own namespace.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Edge {
    /// Index of the object in [`Graph::objects`].
    pub(crate) object: usize,
    /// Index of the workload in [`Graph::workloads`].
    pub(crate) workload: usize,
    /// The tracked keys of the object; `None` for all.
    pub(crate) keys: Option<Vec<String>>,
    /// True if the pods cannot start without the object.
    pub(crate) is_required: bool,
}

fn as_text<S: serde::Serializer>(kind: &ConfigKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.as_str())
}
