//! Stuck pods: deletes pods of StatefulSets that are in the way of a corrected configuration, if the settings ask for it.
//!
//! Its rule is `pod_reloader_core::stuck`.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::staging::Health;
use pod_reloader_core::stuck::{SetPod, StatefulSet, stuck_pod};
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;
use tracing::info;

use crate::report::notice::Notice;
use crate::restart::clock::now;
use crate::restart::error::RestartError;
use crate::restart::parts::Parts;
use crate::runtime::client::{DEADLINE, within};
use crate::runtime::error::CallError;
use crate::runtime::resources::{PAGE, Resources, api};

/// The number of looks at a pod before it is deleted, apart from the first.
const LOOKS: u32 = 2;
/// The minimum time between two looks, however soon a pod is to be deleted.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// Deletes such pods.
pub(crate) struct StuckPods {
    parts: Arc<Parts>,
}

impl StuckPods {
    pub(crate) fn new(parts: &Arc<Parts>) -> Self {
        Self {
            parts: parts.clone(),
        }
    }

    /// Deletes the pod that keeps a StatefulSet with the right hash from going on, if it has been in the way for
    /// long enough. As long as the rollout is under way, it is looked at again, if one pod can be in the way of another.
    pub(crate) async fn unstick(&self, workload: &Workload) -> Result<(), RestartError> {
        let (id, after) = (&*workload.id, self.parts.settings.unstick_after);
        let memories = &self.parts.progress.memories;
        if after.is_zero() || self.parts.settings.observe || !may_be_stuck(workload) {
            memories.with(id, |memory| memory.stuck = None);
            return Ok(());
        }
        let pause = pause(after);
        let next_look = memories.with(id, |memory| {
            let last_look = memory.stuck.as_ref()?;
            last_look.next_look(pause, now())
        });
        if let Some(next) = next_look {
            self.parts.worker.push(id.clone(), next.into());
            return Ok(());
        }
        let failed = |source| RestartError::Unstick {
            workload: id.clone(),
            source,
        };
        let (set, pods) = match self.with_pods(workload).await {
            // The watch is about to show that.
            Err(error) if error.is_not_found() => return Ok(()),
            read => read.map_err(failed)?,
        };
        if !set.replaces_in_order() {
            self.saw(id, None);
            return Ok(());
        }
        let pod = stuck_pod(workload, &set, &pods);
        let since = self.saw(id, pod);
        if let (Some(pod), Some(since)) = (pod, since)
            && Instant::from_std(since).elapsed() >= after
        {
            self.delete(workload, pod).await.map_err(failed)?;
        }
        self.parts.worker.push(id.clone(), Instant::now() + pause);
        Ok(())
    }

    /// Notes a look at the pods of a StatefulSet, and returns since when this pod has been seen in the way.
    fn saw(&self, id: &WorkloadId, pod: Option<&SetPod>) -> Option<std::time::Instant> {
        self.parts.progress.memories.with(id, |memory| {
            memory.stuck.get_or_insert_default().saw(pod, now())
        })
    }

    /// Reads a StatefulSet, and its own pods if one of them can be in the way of another. The pods come last, so
    /// none of them is older than the StatefulSet.
    async fn with_pods(
        &self,
        workload: &Workload,
    ) -> Result<(StatefulSet, Vec<SetPod>), CallError> {
        let (client, budget) = (&self.parts.client, &self.parts.budget);
        let namespace = Some(&workload.id.namespace);
        let sets = api(client, namespace, ());
        let sets = Resources::<StatefulSet>::new(sets, "StatefulSet", budget);
        let set = within(DEADLINE, sets.get(&workload.id.name)).await?;
        let mut own = Vec::new();
        if !set.replaces_in_order() {
            return Ok((set, own));
        }
        let pods = api(client, namespace, ());
        let pods = Resources::new(pods, "Pod", budget).with_labels(set.pod_labels());
        // Others may have the same labels, and be many.
        let keep = |pod: SetPod| {
            if pod.is_of(workload) {
                own.push(pod);
            }
        };
        pods.list(&mut PAGE.clone(), keep).await?;
        Ok((set, own))
    }

    /// Deletes a pod, unless it has changed in any way since it was read.
    async fn delete(&self, workload: &Workload, pod: &SetPod) -> Result<(), CallError> {
        let namespace = &workload.id.namespace;
        let pods: Api<SetPod> = api(&self.parts.client, Some(namespace), ());
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid().to_owned()),
                resource_version: Some(pod.resource_version().to_owned()),
            }),
            ..DeleteParams::default()
        };
        match within(DEADLINE, pods.delete(pod.name(), &params)).await {
            Ok(_) => {
                let name = pod.name();
                info!(%namespace, name, "deleted a pod that kept a StatefulSet from going on");
                self.parts.metrics.unstuck.inc();
                let notice = Notice::Unstuck(pod.name().into());
                self.parts.progress.publish(workload, notice);
                Ok(())
            }
            // It has changed, so it may have become ready.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns the time between two looks at a StatefulSet.
fn pause(after: Duration) -> Duration {
    (after / LOOKS).max(MIN_PAUSE)
}

/// Returns true for a StatefulSet whose rollout is under way, unless its users hold it or replace its pods themselves.
fn may_be_stuck(workload: &Workload) -> bool {
    let health = workload.staging.as_deref().map(|it| it.health);
    let gates = workload.rare().gates.as_deref();
    let is_held = gates.is_some_and(|gates| gates.hold.is_some());
    workload.id.kind == WorkloadKind::STATEFUL_SET
        && health == Some(Health::Rolling)
        && workload.stall.is_none()
        && !is_held
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_reloader_core::annotations::{Inherited, STAGED};
    use pod_reloader_core::dialects::Dialects;
    use pod_reloader_core::object::{Object, WorkloadObject};
    use pod_reloader_core::workload::Reading;
    use serde_json::json;

    #[test]
    fn pods_are_looked_at_no_more_than_once_a_second() {
        let seconds = Duration::from_secs;
        assert_eq!(pause(seconds(60)), seconds(30));
        assert_eq!(pause(Duration::from_millis(1)), seconds(1));
    }

    #[test]
    fn a_stateful_set_whose_pods_its_users_replace_is_not_looked_at() {
        let rolling = |strategy: &str| {
            let object: WorkloadObject = serde_json::from_value(json!({
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {
                    "name": "db",
                    "namespace": "ns",
                    "uid": "db",
                    "generation": 1,
                    // Its health is read.
                    "annotations": {STAGED: "all"},
                },
                "spec": {
                    "replicas": 2,
                    "updateStrategy": {"type": strategy},
                    "template": {"spec": {"containers": []}},
                },
                "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 1},
            }))
            .unwrap();
            let reading = Reading::new(Dialects::default(), []);
            let kind = WorkloadKind::STATEFUL_SET;
            let workload = object.into_workload(kind, &reading, &Inherited::default());
            may_be_stuck(&workload.unwrap())
        };
        assert!(rolling("RollingUpdate"));
        assert!(!rolling("OnDelete"));
    }
}
