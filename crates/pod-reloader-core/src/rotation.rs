//! Rotation: the Secrets Store CSI driver gives running pods other versions of secrets, and they have to be restarted.
//!
//! Each pod is rotated by itself, up to minutes after the others. A restart is due once all pods of a workload have
//! mounted the same versions of a class, and one of them did not start with those. Pods that have started with
//! them, whyever they were started, need no restart. Only the driver's statuses and the pods are asked, so nothing has
//! to be remembered: the config hash carries a [mark](crate::hash::ConfigHash::carrying) of the last rotation that
//! has led to a restart, which says only that this restart is under way.

mod pod;
mod statuses;
#[cfg(test)]
mod tests;

use jiff::SignedDuration;

pub use self::pod::MountingPod;
pub use self::statuses::{ChangedStatuses, Class, Statuses, add_status};
use crate::decision::{Cause, Decision};
use crate::digest::Objects;
use crate::hash::Keyring;
use crate::secret_provider_class::{PodStatus, Rotated};
use crate::workload::Workload;

/// The time by which the clock of a node may be behind that of the apiserver, in which a pod gets its first versions.
/// Newer drivers rotate only pods that are older than their poll interval, which is two minutes by default; up to version
/// 1.5, a pod may be rotated at any time.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(10);

/// Returns the versions to which all pods of `workload` have been rotated. Empty if nothing is due: no pod was rotated,
/// or they do not have the same versions yet, or a rollout is under way, which brings the latest versions along.
///
/// Pods that have ended, or are being deleted, do not count, nor do their statuses. A pod that is not ready, because
/// its node is gone or its container crashes, does not keep the others waiting.
pub fn rotated(workload: &Workload, statuses: &[PodStatus], pods: &[MountingPod]) -> Rotated {
    let Some(classes) = workload.rare().classes.as_deref() else {
        return Rotated::new();
    };
    let is_counted = |pod: &&MountingPod| !pod.has_ended && pod.belongs_to(&workload.id);
    let pods: Vec<_> = pods.iter().filter(is_counted).collect();
    let mut revisions = pods.iter().map(|pod| pod.revision());
    let first = revisions.next();
    if revisions.any(|revision| Some(revision) != first) {
        return Rotated::new();
    }
    let agreed = classes.names.iter().filter_map(|class| {
        let of_class = statuses
            .iter()
            .filter(|status| status.class.as_ref() == Some(class));
        let mounts = of_class.filter_map(|status| {
            let pod = pods.iter().find(|pod| status.pod() == Some(pod.uid()))?;
            Some((status, *pod))
        });
        let mounts: Vec<_> = mounts.collect();
        let is_any_ready = mounts.iter().any(|(_, pod)| pod.is_ready);
        let mut asked = mounts
            .iter()
            .filter(|(_, pod)| pod.is_ready || !is_any_ready);
        let versions = asked.next()?.0.versions;
        let do_agree = asked.all(|(status, _)| status.versions == versions);
        let mut rotated = mounts
            .iter()
            .filter(|(status, pod)| status.versions == versions && is_rotated(status, pod));
        (do_agree && rotated.next().is_some()).then(|| (class.clone(), versions))
    });
    agreed.collect()
}

/// Returns true if a pod has been given other versions than it started with.
///
/// The driver creates a status when it mounts the volume, and changes it only when the versions change. There is one
/// exception: a pod of a StatefulSet that has just been replaced takes over the status of its predecessor, if the
/// garbage collector is late. That status is older than the pod, and was changed before the pod's containers started.
fn is_rotated(status: &PodStatus, pod: &MountingPod) -> bool {
    if status.generation <= 1 {
        return false;
    }
    match (status.created(), pod.created()) {
        (Some(status), Some(pod)) if status >= pod => true,
        _ => match (status.changed, pod.started) {
            // Either by the clocks of apiserver and node, or by that of the apiserver alone.
            (Some(changed), Some(started)) => {
                let is_since_ready = || pod.last_change.is_some_and(|ready| changed > ready);
                changed.duration_since(started) > CLOCK_SKEW || (pod.is_ready && is_since_ready())
            }
            // A container that has not started yet starts with what is mounted by then.
            _ => false,
        },
    }
}

/// Adds a rotation of the pods of `workload` to a decision about it. A restart for another reason takes it along.
pub fn with_rotation(
    decision: Decision,
    workload: &Workload,
    objects: &Objects,
    keys: &Keyring,
    rotated: &Rotated,
) -> Decision {
    let namespace = &workload.id.namespace;
    let is_written = || {
        let hash = workload.last_hash();
        hash.is_some_and(|hash| keys.stands_for_rotation(hash, namespace, rotated))
    };
    if rotated.is_empty() || !workload.can_be_restarted() || is_written() {
        return decision;
    }
    let cause = match decision {
        Decision::MissingConfig(_) => return decision,
        Decision::Set { cause, .. } => cause,
        Decision::Unchanged | Decision::Baseline(_) => Cause::Rotated,
    };
    let contents = workload.references.contents(objects);
    let config_hash = keys.hash(&contents).rotated(keys, namespace, rotated);
    Decision::Set {
        config_hash: config_hash.to_string(),
        cause,
    }
}
