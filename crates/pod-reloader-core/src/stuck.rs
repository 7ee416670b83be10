//! Finds the pod that keeps a StatefulSet from rolling out a corrected configuration.
//!
//! With `OrderedReady`, the controller goes on only while every pod is ready. A pod that never becomes ready with a
//! bad configuration is in the way of the corrected one, too, until somebody
//! [deletes it](https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#forced-rollback).

mod last_look;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube_core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};

use crate::annotations::CONFIG_HASH;
use crate::conditions::Condition;
use crate::metadata::{Metadata, Wanted, resource};
use crate::object::UpdateStrategy;
use crate::raw;
use crate::texts::Texts;
use crate::workload::Workload;

pub use self::last_look::LastLook;

/// The label in which a pod has the name of its revision.
const REVISION: &str = "controller-revision-hash";
/// The maximum time between the start of a pod and the first report that it is not ready.
const FIRST_REPORT: SignedDuration = SignedDuration::from_secs(10);

/// A StatefulSet, as far as its rollout is concerned.
#[derive(Clone, Debug, Deserialize)]
pub struct StatefulSet {
    metadata: Metadata<Self>,
    spec: SetSpec,
    #[serde(default)]
    status: SetStatus,
}

impl Wanted for StatefulSet {}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetSpec {
    replicas: Option<i64>,
    pod_management_policy: Option<Box<str>>,
    #[serde(default)]
    update_strategy: UpdateStrategy,
    #[serde(default)]
    ordinals: Ordinals,
    #[serde(default)]
    selector: Selector,
    template: Template,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Ordinals {
    #[serde(default)]
    start: i64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selector {
    #[serde(default)]
    match_labels: Texts,
}

#[derive(Clone, Debug, Deserialize)]
struct Template {
    #[serde(default)]
    metadata: TemplateMetadata,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct TemplateMetadata {
    #[serde(default, deserialize_with = "config_hash")]
    annotations: Texts,
}

fn config_hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Texts, D::Error> {
    Texts::among(&[CONFIG_HASH], deserializer)
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetStatus {
    observed_generation: Option<i64>,
    current_revision: Option<Box<str>>,
    update_revision: Option<Box<str>>,
}

impl StatefulSet {
    /// Returns a selector of labels that all its pods have. Others may have them, too.
    pub fn pod_labels(&self) -> String {
        let labels = self.spec.selector.match_labels.iter();
        let labels: Vec<_> = labels
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        labels.join(",")
    }

    /// Returns true if a pod that is not ready keeps all others from being replaced.
    pub fn replaces_in_order(&self) -> bool {
        let is_parallel = self.spec.pod_management_policy.as_deref() == Some("Parallel");
        let is_on_delete = self.spec.update_strategy.name.as_deref() == Some("OnDelete");
        !is_parallel && !is_on_delete
    }

    /// Returns the ordinals of its pods, and the first one that gets a new template.
    fn ordinals(&self) -> (std::ops::Range<i64>, i64) {
        let start = self.spec.ordinals.start;
        let rolling = self.spec.update_strategy.rolling_update.as_ref();
        let partition = rolling.and_then(|it| it.partition).unwrap_or_default();
        (
            start..start + self.spec.replicas.unwrap_or(1),
            start + partition,
        )
    }

    fn config_hash(&self) -> Option<&str> {
        self.spec.template.metadata.annotations.get(CONFIG_HASH)
    }
}

/// A pod, as far as it is in the way of a rollout.
#[derive(Clone, Debug, Deserialize)]
pub struct SetPod {
    metadata: Metadata<Self>,
    #[serde(default)]
    status: PodStatus,
}

impl Wanted for SetPod {
    const LABELS: &'static [&'static str] = &[REVISION];
    const ANNOTATIONS: &'static [&'static str] = &[CONFIG_HASH];
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    start_time: Option<Box<str>>,
    #[serde(default, rename = "conditions", deserialize_with = "ready")]
    ready: Option<Ready>,
}

/// Reads only the condition `Ready` from the conditions.
fn ready<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Ready>, D::Error> {
    raw::fold(deserializer, None, |ready, it: Condition<'de>| {
        if it.is("Ready") && ready.is_none() {
            *ready = Some(Ready {
                is_true: it.holds("Ready"),
                changed: it.last_transition_time.map(|time| (*time).into()),
            });
        }
    })
}

/// The condition `Ready`.
#[derive(Clone, Debug)]
struct Ready {
    is_true: bool,
    changed: Option<Box<str>>,
}

impl SetPod {
    /// Returns the name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the UID.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns the resourceVersion.
    pub fn resource_version(&self) -> &str {
        self.metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }

    /// Returns the time since which it has been ready or not, as its kubelet wrote it.
    pub fn ready_changed(&self) -> Option<&str> {
        self.ready()?.changed.as_deref()
    }

    fn ready(&self) -> Option<&Ready> {
        self.status.ready.as_ref()
    }

    fn is_ready(&self) -> bool {
        self.ready().is_some_and(|it| it.is_true)
    }

    /// Returns true if it has not been ready since soon after its start, or has not started at all. A kubelet
    /// reports a pod as not ready when it starts it, and the time of that report stays until the pod is ready.
    fn was_never_ready(&self) -> bool {
        let time = |text: Option<&str>| text?.parse::<Timestamp>().ok();
        match (time(self.status.start_time.as_deref()), self.ready()) {
            (None, _) | (_, None) => true,
            (Some(started), Some(ready)) => time(ready.changed.as_deref())
                .is_some_and(|changed| changed.duration_since(started) <= FIRST_REPORT),
        }
    }

    /// Returns true if it belongs to this StatefulSet.
    pub fn is_of(&self, workload: &Workload) -> bool {
        let controller = self.metadata.controller();
        controller.is_some_and(|it| it.uid == workload.uid)
    }

    fn ordinal(&self) -> Option<i64> {
        self.name().rsplit_once('-')?.1.parse().ok()
    }

    fn revision(&self) -> Option<&str> {
        self.metadata.label(REVISION)
    }

    fn config_hash(&self) -> Option<&str> {
        self.metadata.annotation(CONFIG_HASH)
    }
}

/// Returns the pod of a StatefulSet that is not ready and in the way of the present configuration, and that does not
/// get it unless it is deleted. `set` and `pods` are what `workload` is now.
///
/// # Guarantees
///
/// - A ready pod is never returned, nor one that is to keep its revision, or has the present configuration.
/// - A pod of the last complete revision is returned only if neither it nor, at present, another one has become ready
///   with that revision. So a pod stays that has run well, or only takes long to start.
/// - While a pod is being deleted, none is returned.
pub fn stuck_pod<'a>(
    workload: &Workload,
    set: &StatefulSet,
    pods: &'a [SetPod],
) -> Option<&'a SetPod> {
    let present = workload.config_hash()?;
    let status = &set.status;
    let is_observed = status.observed_generation >= Some(workload.generation);
    let is_same = set.metadata.uid.as_deref() == Some(&*workload.uid);
    let has_hash = set.config_hash() == Some(present);
    if !(is_same && has_hash && is_observed && set.replaces_in_order()) {
        return None;
    }
    let update = status.update_revision.as_deref()?;
    let (ordinals, first_updated) = set.ordinals();
    let all = pods.iter().filter(|pod| pod.is_of(workload));
    let own = all.clone().filter_map(|pod| Some((pod.ordinal()?, pod)));
    let own: BTreeMap<_, _> = own.filter(|(it, _)| ordinals.contains(it)).collect();
    if own
        .values()
        .any(|it| it.metadata.deletion_timestamp.is_some())
    {
        return None;
    }
    // The controller looks at the pods in this order, and at none behind the first that is not ready.
    let (ordinal, pod) = own.into_iter().find(|(_, pod)| !pod.is_ready())?;
    let revision = pod.revision()?;
    let is_outdated = revision != update && pod.config_hash().is_some_and(|it| it != present);
    let mut all = all;
    let works = |it: &SetPod| it.revision() == Some(revision) && it.is_ready();
    let is_rejected = Some(revision) != status.current_revision.as_deref()
        || (pod.was_never_ready() && !all.any(works));
    (is_outdated && is_rejected && ordinal >= first_updated).then_some(pod)
}

resource!(
    StatefulSet, DynamicResourceScope, of_metadata: false,
    group: "apps", version: "v1", kind: "StatefulSet", plural: "statefulsets"
);
resource!(
    SetPod, DynamicResourceScope, of_metadata: false,
    group: "", version: "v1", kind: "Pod", plural: "pods"
);

#[cfg(test)]
mod tests;
