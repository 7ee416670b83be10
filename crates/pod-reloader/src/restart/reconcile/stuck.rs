//! Deletes pods of StatefulSets that are in the way of a corrected configuration, if the settings ask for it.

use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::staging::Health;
use pod_reloader_core::stuck::{SetPod, StatefulSet, stuck_pod};
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;
use tracing::info;

use super::Reconciler;
use crate::report::notice::Notice;
use crate::restart::error::RestartError;
use crate::runtime::client::{DEADLINE, within};
use crate::runtime::error::CallError;
use crate::runtime::resources::{PAGE, Resources, api};

/// The number of looks at a pod before it is deleted, apart from the first.
const LOOKS: u32 = 2;

impl Reconciler {
    /// Deletes the pod that keeps a StatefulSet with the right hash from going on, if it has been in the way for
    /// long enough. As long as the rollout is under way, it is looked at again.
    pub(super) async fn unstick(&self, workload: &Workload) -> Result<(), RestartError> {
        let (id, after) = (&workload.id, self.settings.unstick_after);
        if after.is_zero() || self.settings.observe || !may_be_stuck(workload) {
            self.stuck.forget(id);
            return Ok(());
        }
        let pause = after / LOOKS;
        if let Some(next) = self.stuck.next_look(id, pause) {
            self.push(id.clone(), next);
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
        let pod = stuck_pod(workload, &set, &pods);
        let since = self.stuck.saw(id, pod);
        if let (Some(pod), Some(since)) = (pod, since)
            && since.elapsed() >= after
        {
            self.delete(workload, pod).await.map_err(failed)?;
        }
        self.push(id.clone(), Instant::now() + pause);
        Ok(())
    }

    /// Reads a StatefulSet and its pods. The pods come last, so none of them is older than the StatefulSet.
    async fn with_pods(
        &self,
        workload: &Workload,
    ) -> Result<(StatefulSet, Vec<SetPod>), CallError> {
        let namespace = Some(&workload.id.namespace);
        let sets = api(&self.client, namespace, ());
        let sets = Resources::<StatefulSet>::new(sets, "StatefulSet", &self.budget);
        let set = within(DEADLINE, sets.get(&workload.id.name)).await?;
        let pods = api(&self.client, namespace, ());
        let pods = Resources::new(pods, "Pod", &self.budget).with_labels(set.pod_labels());
        let mut all = Vec::new();
        pods.list(&mut PAGE.clone(), |pod: SetPod| all.push(pod))
            .await?;
        Ok((set, all))
    }

    /// Deletes a pod, unless it has changed in any way since it was read.
    async fn delete(&self, workload: &Workload, pod: &SetPod) -> Result<(), CallError> {
        let pods: Api<SetPod> = api(&self.client, Some(&workload.id.namespace), ());
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid().to_owned()),
                resource_version: Some(pod.resource_version().to_owned()),
            }),
            ..DeleteParams::default()
        };
        match within(DEADLINE, pods.delete(pod.name(), &params)).await {
            Ok(_) => {
                let (namespace, name) = (&workload.id.namespace, pod.name());
                info!(%namespace, name, "deleted a pod that kept a StatefulSet from going on");
                self.metrics.unstuck.inc();
                let notice = Notice::Unstuck(pod.name().into());
                self.progress.publish(workload, notice);
                Ok(())
            }
            // It has changed, so it may have become ready.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Returns true for a StatefulSet whose rollout is under way, unless its users hold it.
fn may_be_stuck(workload: &Workload) -> bool {
    let health = workload.staging.as_deref().map(|it| it.health);
    let gates = workload.gates.as_deref();
    let is_held = gates.is_some_and(|gates| gates.hold.is_some());
    workload.id.kind == WorkloadKind::STATEFUL_SET && health == Some(Health::Rolling) && !is_held
}
