//! What a rollout would change: generation, pod template and revisions of each workload.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, ResourceExt},
};
use pod_reloader_e2e::workload::{BASELINE, Kind, key_of};
use pod_reloader_e2e::{Attempt, PATIENCE, wait_for};
use serde_json::Value;

use crate::population::Kept;

/// All workloads of the cluster at some point in time.
pub(crate) struct State(BTreeMap<Id, Stand>);

/// Namespace, kind and name of a workload.
type Id = (String, &'static str, String);

/// One workload at that time.
struct Stand {
    generation: i64,
    template: Value,
    has_key: bool,
    baseline: Option<String>,
    revisions: BTreeSet<String>,
}

impl State {
    /// Reads all workloads, once their controllers have seen the latest generations.
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        wait_for(
            "all controllers to have seen it all",
            PATIENCE,
            async || Self::attempt(client).await,
        )
        .await
    }

    async fn attempt(client: &Client) -> Result<Attempt<Self>> {
        let mut all = BTreeMap::new();
        let mut by_uid = BTreeMap::new();
        for kind in Kind::ALL.map(Kind::as_str) {
            for object in list(client, kind).await? {
                let metadata = &object.metadata;
                let id = (name(&metadata.namespace), kind, name(&metadata.name));
                let generation = metadata.generation.unwrap_or_default();
                let observed = object.data["status"]["observedGeneration"].as_i64();
                if observed < Some(generation) {
                    return Ok(Attempt::NotYet(format!(
                        "{id:?}: {observed:?} of {generation}"
                    )));
                }
                by_uid.insert(name(&metadata.uid), id.clone());
                let stand = Stand {
                    generation,
                    template: object.data["spec"]["template"].clone(),
                    has_key: key_of(&object.data).is_some(),
                    baseline: object.annotations().get(BASELINE).cloned(),
                    revisions: BTreeSet::new(),
                };
                all.insert(id, stand);
            }
        }
        for kind in ["ReplicaSet", "ControllerRevision"] {
            for object in list(client, kind).await? {
                let owners = object.metadata.owner_references.iter().flatten();
                let owned = owners.filter_map(|owner| by_uid.get(&owner.uid)).next();
                if let Some(stand) = owned.and_then(|id| all.get_mut(id)) {
                    stand.revisions.insert(name(&object.metadata.name));
                }
            }
        }
        Ok(Attempt::Done(Self(all)))
    }

    /// Returns how a workload has changed since `before`; `None` if nothing of it has that a rollout changes.
    pub(crate) fn change(&self, before: &Self, of: &Kept) -> Option<Change> {
        let id = id(of);
        let (Some(before), Some(after)) = (before.0.get(&id), self.0.get(&id)) else {
            return Some(Change::Lost);
        };
        let rollouts = after.revisions.difference(&before.revisions).count();
        // A Deployment gets another generation if its annotations change, too.
        let is_same = after.generation == before.generation || after.baseline != before.baseline;
        match rollouts {
            // Back to an earlier revision.
            0 if after.template != before.template => Some(Change::Rollouts(1)),
            0 if is_same => None,
            0 => Some(Change::Generation),
            count => Some(Change::Rollouts(count)),
        }
    }

    /// Returns true if a workload has a hash.
    pub(crate) fn has_key(&self, of: &Kept) -> bool {
        self.0.get(&id(of)).is_some_and(|stand| stand.has_key)
    }

    /// Returns true if the operator has written or removed a baseline since `before`, which is no rollout.
    pub(crate) fn has_other_baseline(&self, before: &Self, of: &Kept) -> bool {
        let baseline = |state: &Self| state.0.get(&id(of)).map(|stand| stand.baseline.clone());
        baseline(self) != baseline(before)
    }
}

/// How a workload has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has so many new revisions, or it is back at an earlier one.
    Rollouts(usize),
    /// Its generation is another one, but not its pod template.
    Generation,
    /// It is gone.
    Lost,
}

fn id(of: &Kept) -> Id {
    let Kept {
        namespace,
        workload,
        ..
    } = of;
    (
        namespace.clone(),
        workload.kind.as_str(),
        workload.name.clone(),
    )
}

async fn list(client: &Client, kind: &str) -> Result<Vec<DynamicObject>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", kind));
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    Ok(objects.list(&ListParams::default()).await?.items)
}

fn name(of: &Option<String>) -> String {
    of.clone().unwrap_or_default()
}
