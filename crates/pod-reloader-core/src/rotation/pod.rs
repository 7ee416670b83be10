//! Pods that mount secrets, as far as it matters which workload they belong to and when they started.

use jiff::Timestamp;
use kube_core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::conditions::{has_ended, is_ready};
use crate::metadata::{Metadata, Wanted, resource};
use crate::owner::{self, REVISIONS};
use crate::raw::{self, Text, read_as};
use crate::secret_provider_class::last_change_of;
use crate::workload::WorkloadId;

/// A pod that mounts secrets.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Fields")]
pub struct MountingPod {
    metadata: Metadata<Self>,
    /// True if the pod has ended, or is being deleted: then the driver leaves it alone.
    pub(super) has_ended: bool,
    pub(super) is_ready: bool,
    /// The time when the first of its containers was first started, as far as it is known.
    pub(super) started: Option<Timestamp>,
    /// The time of the last change of the pod, by the apiserver's clock. A pod that is ready was changed when it
    /// became so, after its containers had started.
    pub(super) last_change: Option<Timestamp>,
}

impl Wanted for MountingPod {
    const LABELS: &'static [&'static str] = &REVISIONS;
}

impl MountingPod {
    /// Returns the UID.
    pub(super) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns the time of the creation.
    pub(super) fn created(&self) -> Option<Timestamp> {
        self.metadata.created()
    }

    /// Returns what tells the revision of the workload that the pod was made of from others: its name, or else the UID of
    /// the pod's owner, of which kinds that name no revision make a new one for each.
    pub(super) fn revision(&self) -> Option<&str> {
        let owner = || Some(&*self.metadata.controller()?.uid);
        owner::revision(&self.metadata).or_else(owner)
    }

    /// Returns true if the pod belongs to a workload whose selector it matches.
    pub(super) fn belongs_to(&self, id: &WorkloadId) -> bool {
        owner::belongs_to(&self.metadata, id)
    }
}

resource!(
    MountingPod, DynamicResourceScope, of_metadata: false,
    group: "", version: "v1", kind: "Pod", plural: "pods"
);

#[derive(Deserialize)]
struct Fields {
    /// The unparsed metadata: its managed fields are parsed apart from the rest.
    metadata: Box<RawValue>,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(rename = "phase", deserialize_with = "has_ended")]
    has_ended: bool,
    #[serde(rename = "conditions", deserialize_with = "is_ready")]
    is_ready: bool,
    #[serde(deserialize_with = "first_start")]
    init_container_statuses: Option<Timestamp>,
    #[serde(deserialize_with = "first_start")]
    container_statuses: Option<Timestamp>,
}

/// Reads only from the statuses of containers when the first one was started, as far as it is known.
fn first_start<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct ContainerStatus<'a> {
        #[serde(borrow)]
        state: State<'a>,
        #[serde(borrow)]
        last_state: State<'a>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct State<'a> {
        #[serde(borrow)]
        running: Option<Run<'a>>,
        #[serde(borrow)]
        terminated: Option<Run<'a>>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Run<'a> {
        #[serde(borrow)]
        started_at: Option<Text<'a>>,
    }
    raw::fold(deserializer, None, |first, it: ContainerStatus<'de>| {
        let states = [it.state, it.last_state];
        let runs = states
            .into_iter()
            .flat_map(|it| [it.running, it.terminated]);
        let starts = runs.filter_map(|run| run?.started_at?.parse().ok());
        *first = first.iter().copied().chain(starts).min();
    })
}

impl From<Fields> for MountingPod {
    fn from(fields: Fields) -> Self {
        let Fields { metadata, status } = fields;
        let last_change = last_change_of(&metadata);
        let metadata: Metadata<Self> = read_as(&metadata).unwrap_or_default();
        let starts = [status.init_container_statuses, status.container_statuses];
        Self {
            has_ended: status.has_ended || metadata.deletion_timestamp.is_some(),
            is_ready: status.is_ready,
            started: starts.into_iter().flatten().min(),
            last_change,
            metadata,
        }
    }
}
