//! Finds the workloads whose pods use copies, for those who keep the copies.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::{CustomObject, Served, WorkloadObject};
use pod_reloader_core::workload::Workload;
use tracing::warn;

use super::Reconciler;
use crate::report::notice::Notice;
use crate::runtime::error::CallError;
use crate::runtime::resources::PAGE;

impl Reconciler {
    /// Returns the namespaces with workloads whose pods use copies.
    pub(crate) fn pinned_namespaces(&self) -> BTreeSet<Name> {
        let ids = self.workloads.ids(|_| true);
        let workloads = ids.iter().filter_map(|id| Some(self.workloads.get(id)?.0));
        let pinned = workloads.filter(|it| it.named_copies().next().is_some());
        pinned.map(|it| it.id.namespace.clone()).collect()
    }

    /// Returns true if the copies in a namespace are ours to look after.
    pub(crate) fn keeps_copies_in(&self, namespace: &Name) -> bool {
        self.intake.scope.covers(namespace) && self.intake.namespaces.contain(namespace)
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
                    self.intake.read(kind, object).iter().for_each(&mut tell);
                })
                .await?;
        }
        for served in self.kinds.custom() {
            let workloads = self.kinds.api::<CustomObject>(&served, namespace);
            workloads
                .list(&mut PAGE.clone(), |object| {
                    self.intake
                        .read(served.kind, object)
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
}
