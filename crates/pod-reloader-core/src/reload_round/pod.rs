//! Pods that reload changed config, as far as it matters which they are and where to ask them.

use std::net::IpAddr;

use json_patch::Patch;
use kube_core::DynamicResourceScope;
use serde::Deserialize;
use serde_json::{Value, json};

use super::CONFIG_SYNC;
use crate::conditions::{has_ended, is_ready};
use crate::metadata::{Metadata, Wanted, resource};
use crate::operation::{add, test};
use crate::owner::{self, REVISIONS};
use crate::workload::WorkloadId;

/// A pod that may have to reload changed config.
#[derive(Clone, Debug, Deserialize)]
pub struct ReloadingPod {
    metadata: Metadata<Self>,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

impl Wanted for ReloadingPod {
    const LABELS: &'static [&'static str] = &REVISIONS;
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    host_network: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(rename = "phase", deserialize_with = "has_ended")]
    has_ended: bool,
    #[serde(rename = "podIP")]
    pod_ip: Option<Box<str>>,
    #[serde(rename = "conditions", deserialize_with = "is_ready")]
    is_ready: bool,
}

/// The addresses that are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Addresses that pods can have.
    Pods,
    /// Addresses of this machine, too: an operator outside a cluster calls pods there. Within a pod, they would be its
    /// own.
    PodsAndLoopback,
}

impl Reach {
    /// Returns true if this address is called. Whoever can write the status of a pod could name any other: the metadata
    /// service of a cloud has a link-local address.
    pub fn includes(self, address: IpAddr) -> bool {
        let is_odd = match address.to_canonical() {
            IpAddr::V4(it) => it.is_link_local() || it.is_broadcast() || it.octets()[0] == 0,
            IpAddr::V6(it) => it.is_unicast_link_local(),
        };
        let address = address.to_canonical();
        let is_refused_loopback = self == Self::Pods && address.is_loopback();
        !(is_odd || is_refused_loopback || address.is_multicast() || address.is_unspecified())
    }
}

impl ReloadingPod {
    /// Returns the name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the UID.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns the time of creation, in seconds since 1970.
    pub(super) fn created(&self) -> Option<i64> {
        Some(self.metadata.created()?.as_second())
    }

    /// Returns true if the pod belongs to a workload whose selector it matches, and has neither ended nor is about to.
    pub(super) fn runs_for(&self, id: &WorkloadId) -> bool {
        let is_going = self.metadata.deletion_timestamp.is_some();
        !self.status.has_ended && !is_going && owner::belongs_to(&self.metadata, id)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.status.is_ready
    }

    pub(super) fn uses_host_network(&self) -> bool {
        self.spec.host_network == Some(true)
    }

    /// Returns the address of the pod, once it has one.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.status.pod_ip.as_deref()?.parse().ok()
    }

    /// Returns the patch that makes the kubelet sync the pod: it changes an annotation of ours, and nothing else. It
    /// fails if the pod is another one by now.
    pub fn sync(&self, time: &str) -> Patch {
        let parent = ["metadata", "annotations"];
        let key = ["metadata", "annotations", CONFIG_SYNC];
        let mut operations = vec![test(&["metadata", "uid"], json!(self.uid()))];
        if !self.metadata.has_annotations {
            operations.push(test(&parent, Value::Null));
            operations.push(add(&parent, json!({})));
        }
        operations.push(add(&key, json!(time)));
        Patch(operations)
    }
}

resource!(
    ReloadingPod, DynamicResourceScope, of_metadata: false,
    group: "", version: "v1", kind: "Pod", plural: "pods"
);
