//! The reconcile loop: brings the config hash of each workload in line with its objects.

mod failed;
mod gauges;
mod pass;
mod write;

use std::sync::Arc;

use kube::Client;
use pod_reloader_core::annotations::Inherited;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::lasting::Lasting;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::Object;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;

use self::failed::Failures;
use crate::live::keys::Keys;
use crate::live::reads::Reader;
use crate::live::source::Source;
use crate::metrics::Metrics;
use crate::restart::certificates::LoadedCertificates;
use crate::restart::cron_jobs::CronJobs;
use crate::restart::deleted::LostSettings;
use crate::restart::digests::Digests;
use crate::restart::http_reload::HttpReloads;
use crate::restart::intake::Intake;
use crate::restart::kinds::{ServedAs, ServedKinds, version};
use crate::restart::lists::ListsDue;
use crate::restart::namespaces::SelectedNamespaces;
use crate::restart::parts::Parts;
use crate::restart::pins::{PinParts, PinnedContent, PinnedWorkloads, Rollbacks};
use crate::restart::progress::Progress;
use crate::restart::restraints::Restraints;
use crate::restart::rotations::RotatedPods;
use crate::restart::settings::Settings;
use crate::restart::slots::Slots;
use crate::restart::stages::Stages;
use crate::restart::stuck::StuckPods;
use crate::restart::workload_writes::WorkloadWrites;
use crate::restart::workloads::Workloads;
use crate::runtime::budget::Budget;
use crate::runtime::client::DEADLINE;
use crate::runtime::worker::Worker;

/// The state of the loop during one term of leadership. It starts empty: the current state is read.
pub(crate) struct Reconciler {
    settings: Arc<Settings>,
    keys: Arc<Keys>,
    pub(crate) metrics: Metrics,
    intake: Arc<Intake>,
    writes: Arc<WorkloadWrites>,
    pub(crate) workloads: Arc<Workloads>,
    digests: Arc<Digests>,
    stages: Arc<Stages>,
    slots: Option<Arc<Slots>>,
    pub(crate) restraints: Restraints,
    failures: Failures,
    /// The parts that work with pins. `None` if pins are switched off.
    pub(crate) pins: Option<PinParts>,
    certificates: LoadedCertificates,
    /// Finds out which pods have other versions of secrets. `None` if no class is tracked.
    pub(crate) rotated: Option<Arc<RotatedPods>>,
    stuck_pods: StuckPods,
    cron_jobs: CronJobs,
    lost_settings: LostSettings,
    http_reloads: Option<HttpReloads>,
    worker: Arc<Worker<WorkloadId>>,
    progress: Arc<Progress>,
    /// The lists of workloads that have not arrived yet.
    pub(crate) lists: Arc<ListsDue>,
    /// The kinds that the cluster serves.
    pub(crate) kinds: Arc<ServedKinds>,
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
        let calls = (&client, &budget);
        let parts = Parts::new(settings, &scope, progress, metrics.clone(), calls);
        let parts = Arc::new(parts);
        let (stages, slots) = (Arc::default(), Slots::of(&parts));
        let source = Source::new(
            client.clone(),
            DEADLINE,
            budget.clone(),
            &scope,
            metrics.config_reads.by(Reader::Reconcile),
        );
        let digests = Arc::new(Digests::new(source, parts.workloads.clone()));
        let kinds = ServedKinds::new(client, budget, &scope.custom_kinds);
        let kinds = Arc::new(kinds);
        let intake = Arc::new(Intake::new(&parts, &scope, &digests, &stages, &slots));
        let writes = Arc::new(WorkloadWrites::new(&parts, &intake, &kinds));
        let pins = scope.pins().then(|| {
            let content = Arc::new(PinnedContent::new(&parts, &keys, &digests));
            PinParts {
                rollbacks: Rollbacks::new(&parts, &digests, &content, &stages, &writes),
                workloads: Arc::new(PinnedWorkloads::new(&parts, &intake, &kinds)),
                content,
            }
        });
        let http_reloads = HttpReloads::of(&parts, &scope, &stages, &slots, &writes);
        Self {
            restraints: Restraints::new(&parts, &scope, &stages, &slots),
            failures: Failures::new(&parts, &stages, &slots),
            pins,
            certificates: LoadedCertificates::new(&parts, &digests),
            rotated: RotatedPods::of(&parts, &scope),
            stuck_pods: StuckPods::new(&parts),
            cron_jobs: CronJobs::new(&parts),
            http_reloads,
            digests,
            lost_settings: LostSettings::new(&parts, &intake, &kinds),
            writes,
            intake,
            kinds,
            settings: parts.settings.clone(),
            workloads: parts.workloads.clone(),
            lists: parts.lists.clone(),
            progress: parts.progress.clone(),
            stages,
            slots,
            worker: parts.worker.clone(),
            metrics,
            keys,
        }
    }

    /// Reconciles workloads as they become due, for ever.
    pub(crate) async fn run(self: &Arc<Self>) {
        self.restraints.releases.first_lists().await;
        self.worker.run(self).await;
    }

    /// Updates the metrics that are computed from all workloads, and forgets whatever is no longer of use.
    pub(crate) fn publish(&self) {
        gauges::publish(self);
    }

    /// Takes in a workload as a watch shows it, unless an answer to one of our calls has shown a later
    /// version: the two are not in step.
    pub(crate) fn workload_seen(&self, kind: WorkloadKind, object: impl Object) {
        let version = version(&object);
        if let Some(workload) = self.intake.read(kind, object) {
            let back = self.lost_settings.back(&workload);
            self.intake.take_in(workload, version);
            // It need not be managed until it has its settings again. It must have been taken in before it is queued:
            // otherwise its state without settings could be taken in after the answer that has them, and a hold is not
            // among the tests of a write.
            self.worker.push_all(back);
        }
    }

    /// Takes in a workload as a list shows it, even if its resourceVersion has gone back: the cluster was
    /// then restored. Returns its ID if it is managed, or is remembered as left out.
    pub(crate) fn workload_listed(
        &self,
        kind: WorkloadKind,
        object: impl Object,
    ) -> Option<WorkloadId> {
        let version = version(&object);
        let workload = self.intake.read(kind, object)?;
        let back = self.lost_settings.back(&workload);
        let id = self.intake.apply(workload, version);
        // Queued last, as in `workload_seen`.
        self.worker.push_all(back);
        id
    }

    /// Takes in the deletion of a workload, as a watch shows it.
    pub(crate) fn workload_deleted(&self, kind: WorkloadKind, object: impl Object) {
        // We may put it back one day.
        let lasting = match self.settings.observe {
            true => None,
            false => Lasting::of(&object, &self.intake.scope),
        };
        if let Some(workload) = self.intake.read(kind, object) {
            if let Some(lasting) = lasting
                && self.intake.includes(&workload)
            {
                self.lost_settings.remember(&workload, lasting);
            }
            self.workload_gone(&workload.id);
        }
    }

    /// Takes in that a workload is gone, or is no longer managed.
    pub(crate) fn workload_gone(&self, id: &WorkloadId) {
        self.intake.gone(id);
    }

    /// Takes in that the cluster serves a kind, with the version in which it is watched. `None` says that
    /// the cluster does not serve it any more, so its workloads are gone.
    pub(crate) fn kind_served(&self, kind: WorkloadKind, served: Option<ServedAs>) {
        let is_served = served.is_some();
        self.kinds.take_in(kind, served);
        if !is_served {
            for id in self.workloads.ids(|id| id.kind == kind) {
                self.workload_gone(&id);
            }
        }
    }

    /// Takes in that a namespace matches the selector. Returns true if its workloads have to be listed: they
    /// are unknown, or have been read with other annotations of the namespace.
    pub(crate) fn namespace_selected(&self, namespace: &Name, inherited: Inherited) -> bool {
        let inherited = match self.intake.scope.inherits {
            true => inherited,
            false => Inherited::default(),
        };
        let namespaces = self.namespaces();
        self.intake.scope.covers(namespace)
            && namespaces.is_some_and(|it| it.insert(namespace, inherited))
    }

    /// Takes in that a namespace does not, or no longer, match the selector.
    pub(crate) fn namespace_left(&self, namespace: &Name) {
        if let Some(namespaces) = self.namespaces() {
            namespaces.remove(namespace);
        }
        self.lost_settings.deleted.lock().forget_all_in(namespace);
        for id in self.workloads.ids(|id| id.namespace == *namespace) {
            self.workload_gone(&id);
        }
    }

    /// Returns the namespaces that match the selector. `None` if all namespaces do.
    pub(crate) fn namespaces(&self) -> Option<&Arc<SelectedNamespaces>> {
        self.intake.namespaces.as_ref()
    }

    /// Takes in that a config object has changed: a watch shows that it has this resourceVersion now, or is gone.
    pub(crate) fn config_seen(&self, reference: &Reference, resource_version: Option<&str>) {
        self.digests.hear_of(reference, Instant::now());
        self.config_listed(reference, resource_version);
    }

    /// Takes in that a config object has this resourceVersion now, or is gone. Its workloads are queued
    /// even if that is known already: the knowledge may come from a pass over just one of them.
    pub(crate) fn config_listed(&self, reference: &Reference, resource_version: Option<&str>) {
        let now = Instant::now();
        let is_news = self.digests.observe(reference, resource_version, now);
        let consumers = self.workloads.consumers(reference, is_news.then_some(now));
        self.stages.news(&consumers);
        if is_news {
            self.progress.news(&consumers);
        }
        self.worker.push_all(consumers);
    }

    /// Returns true if any workload references the object.
    pub(crate) fn is_referenced(&self, reference: &Reference) -> bool {
        self.workloads.ask(|it| it.is_referenced(reference))
    }

    /// Returns the config objects that were present when they were last read.
    pub(crate) fn present_config(&self) -> Vec<Reference> {
        self.digests.present()
    }
}

#[cfg(test)]
mod tests;
