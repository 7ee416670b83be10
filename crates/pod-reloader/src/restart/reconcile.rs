//! The reconcile loop: keeps each workload's config hash at what its objects come to.

mod failed;
mod kinds;
mod left_out;
mod pass;
mod write;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use pod_reloader_core::decision::FirstStamp;
use pod_reloader_core::index::{Applied, LeftOut, Turned};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::scope::Scope;

use pod_reloader_core::object::Object;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;
use tracing::warn;

use self::kinds::ServedAs;
use crate::config::keys::Keys;
use crate::config::source::Source;
use crate::metrics::{Metrics, Reader};
use crate::report::notice::Notice;
use crate::restart::CONTROLLER;
use crate::restart::digests::Digests;
use crate::restart::namespaces::SelectedNamespaces;
use crate::restart::progress::Progress;
use crate::restart::workloads::Workloads;
use crate::runtime::budget::Budget;
use crate::runtime::client::DEADLINE;
use crate::runtime::controller::ControllerErrors;
use crate::runtime::queue::Item;
use crate::runtime::worker::{Handler, Worker};

/// How the loop behaves.
#[derive(Clone)]
pub(crate) struct Settings {
    /// How long the objects of a workload must be quiet before it is restarted.
    pub(crate) settle_period: Duration,
    /// How often one workload may be restarted in [`pod_reloader_core::brake::WINDOW`]; 0 for no limit.
    pub(crate) max_restarts: usize,
    /// What a workload gets that has just subscribed.
    pub(crate) first_stamp: FirstStamp,
    /// Whether to only say what would be restarted.
    pub(crate) observe: bool,
    /// Whether to run a CronJob at once whose config changed.
    pub(crate) run_cron_jobs: bool,
    /// How much memory the workloads of one namespace may take, in bytes.
    pub(crate) namespace_memory: usize,
}

/// The state of the loop during one term of leadership. Starts empty: what is true is read.
pub(crate) struct Reconciler {
    settings: Settings,
    scope: Scope,
    client: Client,
    budget: Budget,
    keys: Arc<Keys>,
    metrics: Metrics,
    errors: ControllerErrors,
    namespaces: SelectedNamespaces,
    workloads: Arc<Workloads>,
    digests: Digests,
    worker: Worker<WorkloadId>,
    progress: Progress,
    /// The lists of workloads that have not come yet.
    lists_due: AtomicUsize,
    /// In which version the cluster serves the kinds that are not built in, and their watches, which count
    /// as the same when all is listed again; kinds that it does not serve are not here.
    served: Mutex<HashMap<WorkloadKind, ServedAs>>,
}

impl Reconciler {
    pub(crate) fn new(
        settings: Settings,
        scope: Scope,
        client: Client,
        budget: Budget,
        keys: Arc<Keys>,
        progress: Progress,
        metrics: Metrics,
    ) -> Self {
        let namespaces = scope.namespaces().map_or(1, Iterator::count);
        let lists = namespaces * WorkloadKind::BUILT_IN.len();
        let workloads = Arc::new(Workloads::new(settings.namespace_memory));
        let source = Source::new(
            client.clone(),
            DEADLINE,
            budget.clone(),
            scope.config_selector(),
            metrics.reads(Reader::Reconcile),
        );
        Self {
            settings,
            digests: Digests::new(source, workloads.clone()),
            workloads,
            client,
            budget,
            keys,
            progress,
            errors: metrics.errors.of(CONTROLLER),
            metrics,
            namespaces: SelectedNamespaces::new(scope.namespace_selector().is_some()),
            worker: Worker::default(),
            lists_due: AtomicUsize::new(lists),
            served: Mutex::default(),
            scope,
        }
    }

    /// Reconciles workloads as they become due, for ever.
    pub(crate) async fn run(self: &Arc<Self>) {
        self.worker.run(self).await;
    }

    /// Shows in the metrics what takes a look at every workload, and forgets what matters no more.
    pub(crate) fn publish(&self) {
        self.digests
            .retain(|reference| self.workloads.is_referenced(reference));
        self.progress.brakes.tidy();
        let (config_objects, references) = self.workloads.referenced();
        self.metrics.config_objects.set(config_objects as i64);
        self.metrics.references.set(references as i64);
        self.metrics.digests.set(self.digests.len() as i64);
        self.metrics.left_out.set(self.workloads.left_out() as i64);
        // Of workloads that are not known yet it is not known either.
        if self.lists_due.load(Ordering::Relaxed) > 0 {
            return;
        }
        let Some(keys) = self.keys.keyring() else {
            return;
        };
        let relied_on = self.workloads.relying_on_keys().into_iter();
        let relied_on = relied_on.map(|(key_id, workloads)| {
            if keys.has(key_id) {
                return (Some(key_id), workloads);
            }
            self.progress.tell_unknown_key(key_id, workloads);
            (None, workloads)
        });
        self.metrics.hashes(relied_on);
    }

    /// Takes in a workload as a watch shows it, unless it was seen later than that in the answer to a
    /// call of ours: the two are not in step.
    pub(crate) fn workload_seen(&self, kind: WorkloadKind, object: impl Object) {
        let version = version(&object);
        if let Some(workload) = self.workload(kind, object) {
            self.take_in(workload, version);
        }
    }

    /// Takes in a workload as a list shows it, which counts even where its resourceVersion has gone back:
    /// then the cluster was restored. Says which it is, if it is kept.
    pub(crate) fn workload_listed(
        &self,
        kind: WorkloadKind,
        object: impl Object,
    ) -> Option<WorkloadId> {
        let version = version(&object);
        self.apply(self.workload(kind, object)?, version)
    }

    /// Takes in a workload as a watch shows it for the last time.
    pub(crate) fn workload_deleted(&self, kind: WorkloadKind, object: impl Object) {
        if let Some(workload) = self.workload(kind, object) {
            self.workload_gone(&workload.id);
        }
    }

    fn workload(&self, kind: WorkloadKind, object: impl Object) -> Option<Workload> {
        self.scope.read(kind, object).ok()
    }

    fn take_in(&self, workload: Workload, version: u64) {
        if !self.workloads.is_known_later_than(&workload.id, version) {
            self.apply(workload, version);
        }
    }

    fn apply(&self, workload: Workload, version: u64) -> Option<WorkloadId> {
        let id = workload.id.clone();
        if !self.scope.keeps(&workload) || !self.namespaces.contain(&id.namespace) {
            self.workload_gone(&id);
            return None;
        }
        let now = Instant::now();
        match self.workloads.apply(workload, version, now) {
            Applied::Unchanged => {}
            Applied::Managed(turned) => {
                self.turned(&turned);
                self.push(id.clone(), now);
                // It may have become smaller.
                self.take_in_what_fits(&id.namespace);
            }
            Applied::LeftOut(left_out) => {
                self.left_out(left_out);
                // One of too many to be remembered is not known at all.
                return self.workloads.is_left_out(&id).then_some(id);
            }
        }
        // It may have left while we took it in.
        if !self.namespaces.contain(&id.namespace) {
            self.workload_gone(&id);
        }
        Some(id)
    }

    /// Takes in that a workload is gone, or no longer kept.
    pub(crate) fn workload_gone(&self, id: &WorkloadId) {
        if let Some(orphaned) = self.workloads.delete(id) {
            self.turned(&orphaned);
            self.progress.forget(id);
            self.take_in_what_fits(&id.namespace);
        }
    }

    /// Takes in that the managed workloads are others than before.
    fn turned(&self, turned: &Turned) {
        // What is remembered of an object that nobody referenced may have missed its events.
        self.digests.forget(
            turned,
            |reference| self.workloads.stays_tracked(reference, turned),
            |place| self.workloads.has_patterns(place),
        );
        self.metrics.workloads.set(self.workloads.len() as i64);
    }

    /// Says that there is no room for a workload: to its user, and once for each namespace in the log.
    fn left_out(&self, left_out: LeftOut) {
        let LeftOut {
            workload,
            turned,
            is_news,
            is_first,
        } = left_out;
        let WorkloadId { namespace, .. } = &workload.id;
        if let Some(turned) = turned {
            self.turned(&turned);
            self.progress.forget(&workload.id);
            self.take_in_what_fits(namespace);
        }
        let share = self.settings.namespace_memory;
        if is_first {
            warn!(%namespace, share, "the workloads of a namespace take more memory than its share: those that do not fit are not managed");
        }
        if is_news {
            let notice = Notice::NamespaceTooLarge(share);
            self.progress.send(&workload, notice);
        }
    }

    /// Has those workloads of a namespace looked at that were left out and that there is room for now.
    fn take_in_what_fits(&self, namespace: &Name) {
        let now = Instant::now();
        for id in self.workloads.that_fit(namespace) {
            self.push(id, now);
        }
    }

    /// Takes in that a list of workloads is whole.
    pub(crate) fn list_is_whole(&self) {
        let one_less = |due: usize| due.checked_sub(1);
        // Later lists are not waited for.
        let _ = self
            .lists_due
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }

    /// Takes in that a namespace has the labels that are asked for. Says whether that is news: then its
    /// workloads are not known, and have to be shown again.
    pub(crate) fn namespace_selected(&self, namespace: &Name) -> bool {
        self.scope.covers(namespace) && self.namespaces.insert(namespace)
    }

    /// Takes in that a namespace has not, or no longer, the labels that are asked for.
    pub(crate) fn namespace_left(&self, namespace: &Name) {
        self.namespaces.remove(namespace);
        for id in self.workloads.ids(|id| id.namespace == *namespace) {
            self.workload_gone(&id);
        }
    }

    /// The namespaces with the labels that are asked for.
    pub(crate) fn namespaces(&self) -> &SelectedNamespaces {
        &self.namespaces
    }

    /// Takes in that a config object has this resourceVersion now, or is gone. Its workloads are looked
    /// at even where that is known already: it may be known from a look at one of them alone.
    pub(crate) fn config_seen(&self, reference: &Reference, resource_version: Option<&str>) {
        let now = Instant::now();
        let is_news = self.digests.observe(reference, resource_version, now);
        let heard = is_news.then_some(now);
        for id in self.workloads.consumers(reference, heard) {
            self.push(id, now);
        }
    }

    /// Whether any workload lists the object.
    pub(crate) fn is_referenced(&self, reference: &Reference) -> bool {
        self.workloads.is_referenced(reference)
    }

    /// The config objects that were there when they were last read.
    pub(crate) fn present_config(&self) -> Vec<Reference> {
        self.digests.present()
    }

    /// What is counted.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The workloads that are kept.
    pub(crate) fn workloads(&self) -> &Workloads {
        &self.workloads
    }

    fn push(&self, id: WorkloadId, at: Instant) {
        self.worker.push(id, at);
    }
}

/// The resourceVersion as a number, which later ones are greater than.
fn version(object: &impl Object) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

impl Item for WorkloadId {
    fn namespace(&self) -> &Name {
        &self.namespace
    }
}

impl Handler for Reconciler {
    type Item = WorkloadId;

    async fn handle(&self, id: &WorkloadId) -> Option<Instant> {
        self.pass(id).await
    }

    fn handled(&self, id: &WorkloadId) {
        if self.workloads.get(id).is_none() {
            self.progress.forget(id);
        }
    }

    fn is_busy(&self, is_busy: bool) {
        self.progress.is_busy(is_busy);
    }
}

#[cfg(test)]
mod tests;
