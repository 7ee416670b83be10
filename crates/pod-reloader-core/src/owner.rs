//! Owners of pods: to which workload a pod belongs, by its owner and by the name of its revision.

use crate::kind::WorkloadKind;
use crate::metadata::{Metadata, Wanted};
use crate::workload::WorkloadId;

/// The labels by which the controllers tell revisions of a workload apart.
pub(crate) const REVISIONS: [&str; 3] = [
    "pod-template-hash",
    "rollouts-pod-template-hash",
    "controller-revision-hash",
];

/// Returns true if a pod belongs to a workload whose selector it matches. A controller leaves the pods of others alone,
/// even if its selector matches them.
pub(crate) fn belongs_to<K: Wanted>(pod: &Metadata<K>, id: &WorkloadId) -> bool {
    let Some(owner) = pod.controller() else {
        return false;
    };
    let is_direct = [WorkloadKind::STATEFUL_SET, WorkloadKind::DAEMON_SET].contains(&id.kind);
    match &*owner.kind {
        kind if is_direct => kind == id.kind.as_str() && *owner.name == *id.name,
        // Whoever makes ReplicaSets names them after itself and the revision.
        "ReplicaSet" => {
            let name = owner.name.strip_suffix(revision(pod).unwrap_or_default());
            name.and_then(|it| it.strip_suffix('-')) == Some(&*id.name)
        }
        _ => id.kind != WorkloadKind::DEPLOYMENT,
    }
}

/// Returns the name of the revision of the workload that a pod was made of. Kinds that name none have one.
pub(crate) fn revision<K: Wanted>(pod: &Metadata<K>) -> Option<&str> {
    REVISIONS.into_iter().find_map(|label| pod.label(label))
}
