//! Pins: which copies the pods of a workload are to use, and what was undone.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pod_reloader_core::hash::Keyring;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::{CustomObject, Served, WorkloadObject};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;
use tracing::warn;

use super::Reconciler;
use crate::config::copies::NotCopied;
use crate::config::error::ReadError;
use crate::report::notice::Notice;
use crate::restart::digests::Snapshot;
use crate::restart::error::RestartError;
use crate::runtime::error::CallError;
use crate::runtime::resources::PAGE;

/// The bytes of copies above which users are told, if each of the revisions that Kubernetes keeps has them.
const LARGE: usize = 8 << 20;
/// The number of revisions that Kubernetes keeps by default, with the present one.
const REVISIONS: usize = 11;

/// The pins for a rollout.
pub(super) enum Pinned {
    /// The annotation to write, if any.
    As(Option<String>),
    /// A ConfigMap has changed since it was read.
    Outdated,
}

impl Reconciler {
    /// Returns `snapshot` with the content that the pods have in place of what was undone. `None` if a copy is
    /// gone that has it: then nobody knows what the pods have.
    pub(super) async fn without_undone(
        &self,
        workload: &Workload,
        mut snapshot: Snapshot,
    ) -> Result<Option<Snapshot>, RestartError> {
        let kept = workload.kept();
        let preferred = kept.preferred();
        if preferred.is_empty() {
            return Ok(Some(snapshot));
        }
        let source = self.digests.source();
        let copies = source.copies(workload, &preferred).await?;
        let keys = self.hash_keys().await?;
        let names = workload.copy_names(&keys);
        let objects = std::mem::take(&mut snapshot.objects);
        match workload.without_undone(&kept, objects, &copies, &names) {
            Some((objects, undone)) => Ok(Some(Snapshot {
                objects,
                undone,
                ..snapshot
            })),
            None => {
                let lost = preferred.iter().next().map(|(_, copy)| copy.clone());
                if let Some(copy) = lost {
                    self.progress.report(workload, Notice::CopyLost(copy));
                }
                Ok(None)
            }
        }
    }

    /// Returns the hash keys, which also seal copies.
    pub(crate) async fn hash_keys(&self) -> Result<Arc<Keyring>, ReadError> {
        match self.keys.keyring() {
            Some(keys) => Ok(keys),
            None => self.keys.read_since(Instant::now()).await,
        }
    }

    /// Returns the namespaces with workloads whose pods use copies.
    pub(crate) fn pinned_namespaces(&self) -> BTreeSet<Name> {
        let ids = self.workloads.ids(|_| true);
        let workloads = ids.iter().filter_map(|id| Some(self.workloads.get(id)?.0));
        let pinned = workloads.filter(|it| it.named_copies().next().is_some());
        pinned.map(|it| it.id.namespace.clone()).collect()
    }

    /// Returns true if the copies in a namespace are ours to look after.
    pub(crate) fn keeps_copies_in(&self, namespace: &Name) -> bool {
        self.scope.covers(namespace) && self.namespaces.contain(namespace)
    }

    /// Passes each workload of a namespace to `tell`, managed or not.
    pub(crate) async fn each_workload(
        &self,
        namespace: &Name,
        mut tell: impl FnMut(&Workload),
    ) -> Result<(), CallError> {
        for kind in WorkloadKind::BUILT_IN {
            let workloads = self
                .kinds
                .api::<WorkloadObject>(&Served::built_in(kind), namespace);
            workloads
                .list(&mut PAGE.clone(), |object| {
                    self.namespaces
                        .read(&self.scope, kind, object)
                        .iter()
                        .for_each(&mut tell);
                })
                .await?;
        }
        for served in self.kinds.custom() {
            let workloads = self.kinds.api::<CustomObject>(&served, namespace);
            workloads
                .list(&mut PAGE.clone(), |object| {
                    self.namespaces
                        .read(&self.scope, served.kind, object)
                        .iter()
                        .for_each(&mut tell);
                })
                .await?;
        }
        Ok(())
    }

    /// Tells the users of the workloads whose pods use this copy that it is gone for good.
    pub(crate) fn copy_lost(&self, namespace: &Name, copy: &Name) {
        warn!(%namespace, %copy, "a copy of a ConfigMap is gone that was in use, and nobody knows its content");
        for workload in self.pinned_in(namespace) {
            let mut pins = workload.named_copies();
            if pins.any(|pins| pins.iter().any(|(_, own)| own == copy)) {
                self.progress
                    .publish(&workload, Notice::CopyLost(copy.clone()));
            }
        }
    }

    /// Tells the users of those workloads of a namespace, by their UIDs, some of whose pods ignore their pins.
    pub(crate) fn pods_not_pinned(&self, namespace: &Name, unpinned: &HashMap<Arc<str>, usize>) {
        if unpinned.is_empty() {
            return;
        }
        for workload in self.pinned_in(namespace) {
            if let Some(pods) = unpinned.get(&*workload.uid) {
                self.progress
                    .publish(&workload, Notice::PodsNotPinned(*pods));
            }
        }
    }

    fn pinned_in(&self, namespace: &Name) -> Vec<Arc<Workload>> {
        let ids = self.workloads.ids(|id| id.namespace == *namespace);
        let workloads = ids.iter().filter_map(|id| Some(self.workloads.get(id)?.0));
        workloads.collect()
    }

    /// Makes the copies that the pods are to use, and returns the pins for them. If a copy cannot be made, the
    /// pods use the ConfigMaps themselves, and their users are told.
    pub(super) async fn pin(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
    ) -> Result<Pinned, RestartError> {
        let keys = self.hash_keys().await?;
        let names = workload.copy_names(&keys);
        let copies: Vec<_> = workload.copies(&snapshot.objects, &names).collect();
        if copies.is_empty() {
            return Ok(Pinned::As(None));
        }
        let pins = workload.pins_for(&snapshot.objects, &names).to_string();
        match self.digests.source().make(&copies, &keys).await {
            Ok(bytes) => {
                if bytes * REVISIONS > LARGE {
                    let notice = Notice::CopiesAreLarge(bytes * REVISIONS);
                    self.progress.send(workload, notice);
                }
                Ok(Pinned::As(Some(pins)))
            }
            Err(NotCopied::Changed(name)) => {
                // No watch may have seen it yet.
                let changed = Reference::config_map(&workload.id.namespace, &name);
                self.digests.observe(&changed, Some(""), Instant::now());
                Ok(Pinned::Outdated)
            }
            Err(NotCopied::Read(error)) => Err(error.into()),
            Err(NotCopied::Create { source, .. }) if !source.is_refusal() => {
                let workload = workload.id.clone();
                Err(RestartError::Copy {
                    workload,
                    cause: source,
                })
            }
            Err(error @ (NotCopied::Taken(_) | NotCopied::Create { .. })) => {
                let notice = Notice::NotCopied(error.shown());
                self.progress.publish(workload, notice);
                Ok(Pinned::As(Some(String::new())))
            }
        }
    }
}
