//! Takes in workloads as they are now, as watches and the answers to our calls show them, and tells the features that
//! remember something of them.

use std::sync::Arc;

use pod_reloader_core::index::{Affected, Applied, LeftOut};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::Object;
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;
use tracing::warn;

use crate::report::notice::Notice;
use crate::restart::digests::Digests;
use crate::restart::namespaces::SelectedNamespaces;
use crate::restart::parts::Parts;
use crate::restart::slots::Slots;
use crate::restart::stages::Stages;

/// Takes in workloads.
pub(crate) struct Intake {
    parts: Arc<Parts>,
    pub(crate) scope: Scope,
    /// `None` stands for all namespaces.
    pub(crate) namespaces: Option<Arc<SelectedNamespaces>>,
    digests: Arc<Digests>,
    stages: Arc<Stages>,
    slots: Option<Arc<Slots>>,
}

impl Intake {
    pub(crate) fn new(
        parts: &Arc<Parts>,
        scope: &Scope,
        digests: &Arc<Digests>,
        stages: &Arc<Stages>,
        slots: &Option<Arc<Slots>>,
    ) -> Self {
        Self {
            namespaces: scope.reads_namespaces().then(Arc::default),
            scope: scope.clone(),
            parts: parts.clone(),
            digests: digests.clone(),
            stages: stages.clone(),
            slots: slots.clone(),
        }
    }

    /// Reads an object as a workload, with what it inherits from its namespace. `None` if its metadata are not valid.
    pub(crate) fn read(&self, kind: WorkloadKind, object: impl Object) -> Option<Workload> {
        let Some(namespaces) = &self.namespaces else {
            return self.scope.read(kind, object).ok();
        };
        let namespace = Name::parse(object.meta().namespace.as_deref()?).ok()?;
        let inherited = namespaces.inherited(&namespace);
        self.scope.read_in(kind, object, &inherited).ok()
    }

    /// Returns true if the workloads of a namespace are managed, as far as its labels are concerned.
    pub(crate) fn selects(&self, namespace: &Name) -> bool {
        let namespaces = self.namespaces.as_ref();
        namespaces.is_none_or(|namespaces| namespaces.contain(namespace))
    }

    /// Returns true if a workload is managed once it opts in.
    pub(crate) fn includes(&self, workload: &Workload) -> bool {
        self.scope.includes(workload) && self.selects(&workload.id.namespace)
    }

    /// Takes in a workload at a resourceVersion, unless a later one is known.
    pub(crate) fn take_in(&self, workload: Workload, version: u64) {
        let workloads = &self.parts.workloads;
        if !workloads.is_seen_later_than(&workload.id, version) {
            self.apply(workload, version);
        }
    }

    /// Takes in the answer to one of our calls, unless a watch has shown in the meantime that the workload
    /// is gone.
    pub(crate) fn take_in_answer(&self, workload: Workload, version: u64) {
        if self.parts.workloads.get(&workload.id).is_some() {
            self.take_in(workload, version);
        }
    }

    /// Takes in a workload at a resourceVersion, even if a later one is known. Returns its ID if it is managed, or is
    /// remembered as left out.
    pub(crate) fn apply(&self, workload: Workload, version: u64) -> Option<WorkloadId> {
        let id = (*workload.id).clone();
        if !self.scope.manages(&workload) || !self.selects(&id.namespace) {
            self.gone(&id);
            return None;
        }
        let now = Instant::now();
        match self.parts.workloads.apply(workload, version, now) {
            Applied::Unchanged => {}
            Applied::Managed(affected) => {
                self.saw_staged(&id);
                self.forget_affected(&affected);
                self.parts.progress.news([&id]);
                self.parts.worker.push(id.clone(), now);
                // The workload may have become smaller, which makes room for others.
                self.take_in_what_fits(&id.namespace);
            }
            Applied::LeftOut(left_out) => {
                self.leave_out(&left_out);
                // Only so many left-out workloads are remembered. Any other one is unknown.
                return self.is_left_out(&id).then_some(id);
            }
        }
        // The namespace may have lost its labels in the meantime.
        if !self.selects(&id.namespace) {
            self.gone(&id);
        }
        Some(id)
    }

    /// Takes in that a workload is gone, or is no longer managed.
    pub(crate) fn gone(&self, id: &WorkloadId) {
        if let Some(orphaned) = self.parts.workloads.delete(id) {
            self.forget_affected(&orphaned);
            self.take_in_what_fits(&id.namespace);
        }
        // A pass that had begun before may have left something behind.
        self.parts.progress.forget(id);
        self.staged_gone(id);
    }

    /// Returns true if a workload is remembered as one for which there was no room.
    pub(crate) fn is_left_out(&self, id: &WorkloadId) -> bool {
        self.parts.workloads.ask(|it| it.is_left_out(id))
    }

    /// Takes in a workload as it is now, for those that wait for it.
    fn saw_staged(&self, id: &WorkloadId) {
        if let Some((workload, _)) = self.parts.workloads.get(id) {
            self.parts.worker.push_all(self.stages.saw(&workload));
            if let Some(slots) = &self.slots {
                slots.saw(&workload);
            }
        }
    }

    /// Takes in that a workload is gone, for those that wait for it.
    fn staged_gone(&self, id: &WorkloadId) {
        self.parts.worker.push_all(self.stages.forget(id));
        if let Some(slots) = &self.slots {
            slots.free(id);
        }
    }

    /// Takes in that the objects of `affected` are tracked from now on, or no longer.
    fn forget_affected(&self, affected: &Affected) {
        let workloads = &self.parts.workloads;
        // An object that nobody referenced may be remembered in an old state, because its events were ignored.
        self.digests.forget(
            affected,
            |object| workloads.ask(|it| it.stays_tracked(object, affected)),
            |place| workloads.ask(|it| it.has_patterns(place)),
        );
        self.parts.metrics.workloads.set(workloads.len() as i64);
    }

    /// Takes in that there is no room for a workload.
    fn leave_out(&self, left_out: &LeftOut) {
        let id = &*left_out.workload.id;
        if let Some(affected) = &left_out.affected {
            self.forget_affected(affected);
            self.parts.progress.forget(id);
            self.staged_gone(id);
            self.take_in_what_fits(&id.namespace);
        }
        self.report_left_out(left_out);
    }

    /// Reports that there is no room for a workload in the share of its namespace: to its user, and once for each namespace
    /// in the log.
    fn report_left_out(&self, left_out: &LeftOut) {
        let (namespace, share) = (
            &left_out.workload.id.namespace,
            self.parts.settings.namespace_memory,
        );
        if left_out.is_first {
            warn!(%namespace, share, "the workloads of a namespace take more memory than its share: those that do not fit are not managed");
        }
        if left_out.is_news {
            let notice = Notice::NamespaceTooLarge(share);
            self.parts.progress.send(&left_out.workload, notice);
        }
    }

    /// Queues the left-out workloads of a namespace that fit by now.
    fn take_in_what_fits(&self, namespace: &Name) {
        let fitting = self.parts.workloads.ask(|it| it.that_fit(namespace));
        self.parts.worker.push_all(fitting);
    }
}
