//! Finds the workloads whose pods use copies, and tells their users what happens to the copies.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::{CustomObject, Served, WorkloadObject};
use pod_reloader_core::workload::Workload;
use tracing::warn;

use crate::report::notice::Notice;
use crate::restart::intake::Intake;
use crate::restart::kinds::ServedKinds;
use crate::restart::parts::Parts;
use crate::runtime::error::CallError;
use crate::runtime::resources::PAGE;

/// The workloads whose pods may use copies.
pub(crate) struct PinnedWorkloads {
    parts: Arc<Parts>,
    intake: Arc<Intake>,
    kinds: Arc<ServedKinds>,
}

impl PinnedWorkloads {
    pub(crate) fn new(parts: &Arc<Parts>, intake: &Arc<Intake>, kinds: &Arc<ServedKinds>) -> Self {
        Self {
            parts: parts.clone(),
            intake: intake.clone(),
            kinds: kinds.clone(),
        }
    }

    /// Returns true if all workloads have been listed.
    pub(super) fn are_listed(&self) -> bool {
        !self.parts.lists.are_due()
    }

    /// Returns the namespaces with workloads whose pods use copies.
    pub(super) fn namespaces(&self) -> BTreeSet<Name> {
        let known = &self.parts.workloads;
        let ids = known.ids(|_| true);
        let workloads = ids.iter().filter_map(|id| Some(known.get(id)?.0));
        let pinned = workloads.filter(|it| it.named_copies().next().is_some());
        pinned.map(|it| it.id.namespace.clone()).collect()
    }

    /// Returns true if the copies in a namespace are ours to look after.
    pub(super) fn keeps_copies_in(&self, namespace: &Name) -> bool {
        self.intake.scope.covers(namespace) && self.intake.selects(namespace)
    }

    /// Passes each workload of a namespace to `tell`, managed or not.
    pub(super) async fn each(
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
    pub(super) fn copy_lost(&self, namespace: &Name, copy: &Name) {
        warn!(%namespace, %copy, "a copy of a ConfigMap is gone that was in use, and nobody knows its content");
        for workload in self.pinned_in(namespace) {
            let mut pins = workload.named_copies();
            if pins.any(|pins| pins.iter().any(|(_, own)| own == copy)) {
                let notice = Notice::CopyLost(copy.clone());
                self.parts.progress.publish(&workload, notice);
            }
        }
    }

    /// Tells the users of those workloads of a namespace, by their UIDs, some of whose pods ignore their pins.
    pub(super) fn pods_not_pinned(&self, namespace: &Name, unpinned: &HashMap<Arc<str>, usize>) {
        if unpinned.is_empty() {
            return;
        }
        for workload in self.pinned_in(namespace) {
            if let Some(pods) = unpinned.get(&*workload.uid) {
                let notice = Notice::PodsNotPinned(*pods);
                self.parts.progress.publish(&workload, notice);
            }
        }
    }

    fn pinned_in(&self, namespace: &Name) -> Vec<Arc<Workload>> {
        let known = &self.parts.workloads;
        let ids = known.ids(|id| id.namespace == *namespace);
        let workloads = ids.iter().filter_map(|id| Some(known.get(id)?.0));
        workloads.collect()
    }
}
