//! Plays one round of reloads: lists, annotates and calls the pods of a workload as the rule says.

use std::sync::Arc;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::api::Patch;
use pod_reloader_core::error::chain;
use pod_reloader_core::reload_round::{Failed, ReloadingPod, Round, Step};
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;
use tracing::debug;

use super::calls::{Calls, SHARE};
use crate::restart::clock::now;
use crate::runtime::client::{DEADLINE, patch_params, within};
use crate::runtime::error::CallError;
use crate::runtime::resources::{PAGE, Resources, api};

/// A round that is about to be played.
pub(super) struct Play {
    pub(super) round: Round,
    pub(super) id: WorkloadId,
    /// The label selector of the pods.
    pub(super) selector: String,
    /// The path at which they reload.
    pub(super) path: Box<str>,
    pub(super) calls: Arc<Calls>,
}

/// Plays a round to its end. Returns how many pods have reloaded.
pub(super) async fn play(play: Play) -> Result<usize, Failed> {
    let Play {
        mut round,
        id,
        selector,
        path,
        calls,
    } = play;
    let pods = api(&calls.client, Some(&id.namespace), ());
    let pods = Resources::new(pods, "Pod", &calls.budget).with_labels(selector);
    loop {
        match round.step(now()) {
            Step::End(outcome) => return outcome,
            Step::Wait(until) => tokio::time::sleep_until(Instant::from_std(until)).await,
            Step::List => match calls.request(list(&pods)).await {
                Ok(listed) => round.listed(&id, listed, now()),
                Err(error) => {
                    debug!(workload = %id, error = chain(&error), "cannot list pods that are to reload");
                    round.not_listed(error.is_refusal(), now());
                }
            },
            Step::Sync(members) => {
                let members: Vec<_> = members.into_iter().cloned().collect();
                let (calls, pods) = (&calls, &pods);
                let syncs = members.into_iter().map(|pod| async move {
                    let synced = calls.request(sync(pods, &pod)).await;
                    (Box::<str>::from(pod.uid()), synced)
                });
                let synced: Vec<_> = stream::iter(syncs).buffer_unordered(SHARE).collect().await;
                for (uid, synced) in synced {
                    match synced {
                        Ok(()) => round.synced(&uid, now()),
                        Err(error) => {
                            debug!(workload = %id, error = chain(&error), "cannot annotate a pod that is to reload");
                            round.not_synced(&uid, is_forbidden(&error), now());
                        }
                    }
                }
            }
            Step::Ask(members) => {
                let members = members.into_iter();
                let members = members.map(|(pod, address)| (Box::<str>::from(pod.uid()), address));
                let members: Vec<_> = members.collect();
                let (calls, namespace, path) = (&calls, &id.namespace, &*path);
                let asks = members.into_iter().map(|(uid, address)| async move {
                    let answer = calls.ask(namespace, address, path).await;
                    (uid, answer)
                });
                let answers: Vec<_> = stream::iter(asks).buffer_unordered(SHARE).collect().await;
                for (uid, answer) in answers {
                    round.answered(&uid, answer, now());
                }
            }
        }
    }
}

/// Lists the pods that a selector selects. One that cannot be read may have to reload.
async fn list(pods: &Resources<ReloadingPod>) -> Result<Vec<ReloadingPod>, CallError> {
    let (mut listed, mut unreadable) = (Vec::new(), None);
    pods.list_all(&mut PAGE.clone(), |pod| match pod {
        Ok(pod) => listed.push(pod),
        Err(error) => unreadable = Some(error),
    })
    .await?;
    unreadable.map_or(Ok(listed), Err)
}

/// Makes the kubelet sync a pod.
async fn sync(pods: &Resources<ReloadingPod>, pod: &ReloadingPod) -> Result<(), CallError> {
    let patch = Patch::<()>::Json(pod.sync(&Timestamp::now().to_string()));
    within(DEADLINE, pods.patch(pod.name(), &patch_params(), &patch)).await?;
    Ok(())
}

/// Returns true if trying again is of no use. A pod that has changed, or is gone, is looked at again.
fn is_forbidden(error: &CallError) -> bool {
    let has_changed = error.is_conflict() || error.is_failed_test() || error.is_not_found();
    error.is_refusal() && !has_changed
}
