//! Pods that mount secrets, as far as it matters which workload they belong to and when they started.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::{DynamicResourceScope, ObjectMeta};
use serde::Deserialize;

use crate::metadata::resource;
use crate::owner;
use crate::workload::WorkloadId;

/// A pod that mounts secrets.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Fields")]
pub struct MountingPod {
    metadata: ObjectMeta,
    created: Option<Timestamp>,
    has_ended: bool,
    is_ready: bool,
    started: Option<Timestamp>,
}

impl MountingPod {
    /// Returns the UID.
    pub(super) fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns true unless the pod has ended, or is being deleted: then the driver leaves it alone.
    pub(super) fn runs(&self) -> bool {
        !self.has_ended
    }

    /// Returns true if the pod is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Returns the time of the creation.
    pub(super) fn created(&self) -> Option<Timestamp> {
        self.created
    }

    /// Returns the time when the first of its containers was first started, as far as it is known.
    pub(super) fn started(&self) -> Option<Timestamp> {
        self.started
    }

    /// Returns the name of the revision of the workload that the pod was made of. Kinds that name none have one.
    pub(super) fn revision(&self) -> Option<&str> {
        owner::revision(&self.metadata)
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
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    conditions: Option<Vec<Condition>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    name: String,
    status: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    state: State,
    last_state: State,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct State {
    running: Option<Run>,
    terminated: Option<Run>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    started_at: Option<String>,
}

impl From<Fields> for MountingPod {
    fn from(fields: Fields) -> Self {
        let Fields { metadata, status } = fields;
        let phase = status.phase.as_deref();
        let mut conditions = status.conditions.iter().flatten();
        let containers = status.init_container_statuses.iter().flatten();
        let containers = containers.chain(status.container_statuses.iter().flatten());
        let runs = containers.flat_map(|it| {
            let all = [&it.state, &it.last_state].map(|it| [&it.running, &it.terminated]);
            all.into_iter().flatten().flatten()
        });
        let time = |text: &str| text.parse().ok();
        Self {
            created: metadata.creation_timestamp.as_deref().and_then(time),
            has_ended: matches!(phase, Some("Succeeded" | "Failed"))
                || metadata.deletion_timestamp.is_some(),
            is_ready: conditions.any(|it| it.name == "Ready" && it.status == "True"),
            started: runs.filter_map(|it| time(it.started_at.as_deref()?)).min(),
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                labels: metadata.labels,
                owner_references: metadata.owner_references,
                ..ObjectMeta::default()
            },
        }
    }
}
