//! Many workloads at once, and writes that need no process each.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use kube::{
    Api,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    },
};
use serde_json::Value;

use super::{Scene, Snapshot};
use crate::apply::api_of;
use crate::oracle::Truth;
use crate::wait::{Attempt, PATIENCE, wait_for};
use crate::workload::{Kind, Workload, key_of};

/// Returns Deployments without pods: `PREFIX-0`, `PREFIX-1` and so on.
pub fn crowd(prefix: &str, size: usize) -> Vec<Workload> {
    let names = (0..size).map(|number| format!("{prefix}-{number}"));
    names.map(|name| Workload::podless(&name)).collect()
}

impl Scene {
    /// Creates workloads, many in parallel.
    ///
    /// # Errors
    /// When one is refused.
    pub async fn create_all(&self, workloads: &[Workload]) -> Result<()> {
        self.create_all_in(&self.namespace, workloads).await
    }

    /// Creates workloads like [`Scene::create_all`], in another namespace.
    ///
    /// # Errors
    /// When one is refused.
    pub async fn create_all_in(&self, namespace: &str, workloads: &[Workload]) -> Result<()> {
        let creates = workloads.iter().map(|workload| async {
            let object: DynamicObject = serde_json::from_value(workload.manifest())?;
            let api = self.workloads(namespace, workload.kind);
            let created = api.create(&PostParams::default(), &object).await;
            created.with_context(|| workload.reference())
        });
        stream::iter(creates)
            .buffer_unordered(AT_ONCE)
            .try_for_each(async |_| Ok(()))
            .await
    }

    /// Creates or changes ConfigMaps and Secrets, many in parallel, without the annotation of `kubectl
    /// apply`.
    ///
    /// # Errors
    /// When one is refused.
    pub async fn put_all(&self, objects: &[Value]) -> Result<()> {
        self.put_all_in(&self.namespace, objects).await
    }

    /// Writes objects like [`Scene::put_all`], in another namespace.
    ///
    /// # Errors
    /// When one is refused.
    pub async fn put_all_in(&self, namespace: &str, objects: &[Value]) -> Result<()> {
        let params = &PatchParams::apply("user").force();
        let writes = objects.iter().map(|object| async move {
            let api = api_of(&self.client, Some(namespace), object)?;
            let name = object["metadata"]["name"].as_str().context("no name")?;
            let written = api.patch(name, params, &Patch::Apply(object)).await;
            written.map(drop).with_context(|| name.to_owned())
        });
        stream::iter(writes)
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    /// Applies a JSON Merge Patch to a workload.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn patch(&self, workload: &Workload, patch: &Value) -> Result<()> {
        self.patch_in(&self.namespace, workload, patch).await
    }

    /// Patches a workload like [`Scene::patch`], in another namespace.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn patch_in(
        &self,
        namespace: &str,
        workload: &Workload,
        patch: &Value,
    ) -> Result<()> {
        let params = PatchParams::default();
        let patched = self.patched(namespace, workload, patch, &params).await;
        patched.map(drop)
    }

    /// Returns what would be stored after a JSON Merge Patch to a workload.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn try_patch(
        &self,
        namespace: &str,
        workload: &Workload,
        patch: &Value,
    ) -> Result<Value> {
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        self.patched(namespace, workload, patch, &params).await
    }

    async fn patched(
        &self,
        namespace: &str,
        workload: &Workload,
        patch: &Value,
        params: &PatchParams,
    ) -> Result<Value> {
        let api = self.workloads(namespace, workload.kind);
        let patched = api
            .patch(&workload.name, params, &Patch::Merge(patch))
            .await;
        let patched = patched.with_context(|| format!("{patch} to {}", workload.reference()))?;
        Ok(serde_json::to_value(patched)?)
    }

    /// Asserts of each workload what [`Scene::rolls_once`] asserts of one. The operator is quiet once for all of them.
    ///
    /// # Errors
    /// Same as [`Scene::rolls_once`].
    pub async fn each_rolls_once(
        &self,
        workloads: &[Workload],
        before: &[Snapshot],
    ) -> Result<Vec<Snapshot>> {
        ensure!(workloads.len() == before.len());
        for (workload, before) in workloads.iter().zip(before) {
            self.gets_another_key(workload, &before.key).await?;
            self.right(workload).await?;
        }
        self.quiet().await?;
        let objects = self.each_seen(&self.namespace, workloads).await?;
        let all = self.snapshots_of(&self.namespace, &objects).await?;
        let mut truth = Truth::read(&self.client, &self.installation).await?;
        for (((workload, before), after), object) in
            workloads.iter().zip(before).zip(&all).zip(&objects)
        {
            let name = workload.reference();
            let new = after.new_revisions(before);
            ensure!(
                new == 1,
                "{name} has {new} new revisions: {before:?}, {after:?}"
            );
            let expected = truth.config_hash(object).await?;
            ensure!(after.key == Some(expected), "{name}: wrong hash: {after:?}");
        }
        Ok(all)
    }

    /// Asserts of each workload what [`Scene::rolls_not`] asserts of one. The operator is quiet once for all of them.
    ///
    /// # Errors
    /// Same as [`Scene::rolls_not`].
    pub async fn each_rolls_not(&self, workloads: &[Workload], before: &[Snapshot]) -> Result<()> {
        ensure!(workloads.len() == before.len());
        self.quiet().await?;
        let all = self.snapshots(workloads).await?;
        for ((workload, before), after) in workloads.iter().zip(before).zip(&all) {
            let name = workload.reference();
            ensure!(after == before, "{name} moved: {before:?}, {after:?}");
        }
        Ok(())
    }

    /// Returns config hash and revisions of each workload, once their controllers have seen the latest
    /// generations.
    ///
    /// # Errors
    /// When that takes longer than [`PATIENCE`].
    pub async fn snapshots(&self, workloads: &[impl Borrow<Workload>]) -> Result<Vec<Snapshot>> {
        self.snapshots_in(&self.namespace, workloads).await
    }

    /// Takes snapshots like [`Scene::snapshots`], in another namespace.
    ///
    /// # Errors
    /// Same as [`Scene::snapshots`].
    pub async fn snapshots_in(
        &self,
        namespace: &str,
        workloads: &[impl Borrow<Workload>],
    ) -> Result<Vec<Snapshot>> {
        let objects = self.each_seen(namespace, workloads).await?;
        self.snapshots_of(namespace, &objects).await
    }

    /// Returns workloads, once their controllers have seen the latest generations.
    async fn each_seen(
        &self,
        namespace: &str,
        workloads: &[impl Borrow<Workload>],
    ) -> Result<Vec<Value>> {
        let seen = workloads.iter().map(|it| self.seen(namespace, it.borrow()));
        try_join_all(seen).await
    }

    /// Takes the snapshots of workloads that their controllers have seen.
    async fn snapshots_of(&self, namespace: &str, objects: &[Value]) -> Result<Vec<Snapshot>> {
        let kinds: BTreeSet<_> = objects.iter().map(revisions_of).collect();
        let mut revisions = Vec::new();
        for kind in kinds {
            let list = self.apps(namespace, kind);
            revisions.extend(list.list(&ListParams::default()).await?.items);
        }
        let snapshot = |object: &Value| {
            let uid = object["metadata"]["uid"].as_str();
            let is_own = |revision: &&DynamicObject| {
                let owners = revision.metadata.owner_references.as_deref();
                let owner = owners.and_then(|owners| owners.first());
                owner.is_some_and(|owner| Some(&*owner.uid) == uid)
            };
            let own = revisions.iter().filter(is_own);
            Snapshot {
                key: key_of(object),
                revisions: own.filter_map(|it| it.metadata.name.clone()).collect(),
            }
        };
        Ok(objects.iter().map(snapshot).collect())
    }

    /// Returns a workload, once its controller has seen the latest generation.
    pub(super) async fn seen(&self, namespace: &str, workload: &Workload) -> Result<Value> {
        let what = format!("the controller of {} to have seen it", workload.reference());
        wait_for(&what, PATIENCE, async || {
            let object = self.stored(namespace, workload).await?;
            let observed = object["status"]["observedGeneration"].as_i64();
            Ok(if observed >= object["metadata"]["generation"].as_i64() {
                Attempt::Done(object)
            } else {
                Attempt::NotYet(format!("it has seen generation {observed:?}"))
            })
        })
        .await
    }

    /// Reads a workload as stored.
    pub(super) async fn stored(&self, namespace: &str, workload: &Workload) -> Result<Value> {
        self.object_in(namespace, &workload.reference()).await
    }

    /// Returns the number of Deployments that carry this config hash.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub async fn carrying(&self, namespace: &str, key: &str) -> Result<usize> {
        let list = self.workloads(namespace, Kind::Deployment);
        let list = list.list(&ListParams::default()).await?;
        let carry = |object: &DynamicObject| key_of(&object.data).as_deref() == Some(key);
        Ok(list.items.iter().filter(|object| carry(object)).count())
    }

    /// Returns the config hashes of many Deployments, with one list request.
    ///
    /// # Errors
    /// When one does not exist.
    pub async fn keys(&self, workloads: &[Workload]) -> Result<Vec<Option<String>>> {
        let by_name = self.by_name("Deployment").await?;
        let key = |workload: &Workload| {
            let object = by_name.get(&workload.name);
            let object = object.with_context(|| workload.reference())?;
            Ok(key_of(&object.data))
        };
        workloads.iter().map(key).collect()
    }

    /// Lists all objects of a kind of the group `apps` in the namespace of the workloads, by name.
    async fn by_name(&self, kind: &str) -> Result<BTreeMap<String, DynamicObject>> {
        let api = self.apps(&self.namespace, kind);
        let objects = api.list(&ListParams::default()).await?.into_iter();
        Ok(objects
            .map(|object| (object.metadata.name.clone().unwrap_or_default(), object))
            .collect())
    }

    fn workloads(&self, namespace: &str, kind: Kind) -> Api<DynamicObject> {
        self.apps(namespace, kind.as_str())
    }

    fn apps(&self, namespace: &str, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("apps", "v1", kind);
        let resource = ApiResource::from_gvk(&kind);
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }
}

/// Returns the kind of the revisions of a workload.
fn revisions_of(workload: &Value) -> &'static str {
    match workload["kind"] == "Deployment" {
        true => "ReplicaSet",
        false => "ControllerRevision",
    }
}

const AT_ONCE: usize = 16;
