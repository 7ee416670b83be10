//! Rotations: finds out which pods the Secrets Store CSI driver has given other versions of secrets, and that are to be
//! restarted for that. Watches of its statuses say when to look.
//!
//! Its rule is `pod_reloader_core::rotation`.

pub(crate) mod watch;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_core::name::Name;
use pod_reloader_core::rotation::{ChangedStatuses, Class, MountingPod, Statuses, rotated};
use pod_reloader_core::scope::Scope;
use pod_reloader_core::secret_provider_class::{Classes, PodStatus, Rotated};
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;

use crate::metrics::RESTART;
use crate::restart::clock::now;
use crate::restart::digests::Snapshot;
use crate::restart::parts::Parts;
use crate::runtime::complaint::Complaint;
use crate::runtime::controller::ControllerErrors;
use crate::runtime::error::CallError;
use crate::runtime::resources::{PAGE, Resources, api};

/// The time after which lists are read again that could not be read.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// Finds that out, as far as the statuses of the driver have been seen.
pub(crate) struct RotatedPods {
    parts: Arc<Parts>,
    errors: ControllerErrors,
    /// The statuses that were changed since their creation.
    statuses: Mutex<Statuses>,
    /// What failed when live lists were read, so that it is logged once.
    complaint: Mutex<Complaint>,
}

impl RotatedPods {
    /// Returns what finds that out. `None` if no class is tracked.
    pub(crate) fn of(parts: &Arc<Parts>, scope: &Scope) -> Option<Arc<Self>> {
        scope.tracks_classes().then(|| {
            Arc::new(Self {
                parts: parts.clone(),
                errors: parts.metrics.errors.of(RESTART),
                statuses: Mutex::default(),
                complaint: Mutex::default(),
            })
        })
    }

    /// Takes in a status as it is now.
    pub(crate) fn seen(&self, status: &PodStatus) {
        let class = self.statuses.lock().saw(status, now());
        self.push_mounting(class);
    }

    /// Takes in that a status is gone.
    pub(crate) fn gone(&self, status: &PodStatus) {
        let class = self.statuses.lock().gone(status, now());
        self.push_mounting(class);
    }

    /// Takes in a complete list of the statuses in a namespace, or in all of them.
    pub(crate) fn listed(&self, namespace: Option<&Name>, changed: ChangedStatuses) {
        let classes = self.statuses.lock().listed(namespace, changed, now());
        self.push_mounting(classes);
    }

    fn push_mounting(&self, classes: impl IntoIterator<Item = Class>) {
        for (namespace, class) in classes {
            let mounting = self.parts.workloads.mounting(&namespace, &class);
            self.parts.worker.push_all(mounting);
        }
    }

    /// Adds to what is known of a workload to which versions its pods have been rotated. If that cannot be told yet, it
    /// adds when to look again: nothing else waits for that.
    ///
    /// The pods and their statuses are listed once nothing has happened to the statuses for the settle period, so that
    /// there is one look for many pods that are rotated one after the other.
    pub(crate) async fn add_to(&self, workload: &Workload, snapshot: &mut Snapshot) {
        let Some(classes) = workload.rare().classes.as_deref() else {
            return;
        };
        let namespace = &workload.id.namespace;
        let news = self.statuses.lock().last_news(namespace, classes);
        let Some(news) = news.map(Instant::from_std) else {
            return;
        };
        let settled = news + self.parts.settings.settle_period(workload);
        if Instant::now() < settled {
            snapshot.rotation_due = Some(settled);
            return;
        }
        let listed = self.rotated(workload, classes).await;
        let mut complaint = self.complaint.lock();
        match listed {
            Ok(rotated) => {
                complaint.settled();
                if !rotated.is_empty() {
                    snapshot.changed = match snapshot.objects.is_empty() {
                        true => news,
                        false => snapshot.changed.max(news),
                    };
                }
                snapshot.rotated = rotated;
            }
            Err(error) => {
                self.errors.count(Some(&error));
                complaint.warn(
                    &error,
                    "cannot find out whether mounted secrets were rotated, trying again",
                );
                snapshot.rotation_due = Some(Instant::now() + READ_AGAIN);
            }
        }
    }

    async fn rotated(&self, workload: &Workload, classes: &Classes) -> Result<Rotated, CallError> {
        let (client, budget) = (&self.parts.client, &self.parts.budget);
        let namespace = Some(&workload.id.namespace);
        let all = Resources::new(api(client, namespace, ()), "a status", budget);
        let mut statuses = Vec::new();
        let mut unreadable = None;
        all.list_all(
            &mut PAGE.clone(),
            |status: Result<PodStatus, _>| match status {
                Ok(status) => {
                    let class = status.class.as_ref();
                    if class.is_some_and(|class| classes.names.contains(class)) {
                        statuses.push(status);
                    }
                }
                Err(error) => unreadable = Some(error),
            },
        )
        .await?;
        let all = Resources::new(api(client, namespace, ()), "a pod", budget);
        let all = all.with_labels(classes.selector.to_string());
        let mut pods = Vec::new();
        all.list_all(&mut PAGE.clone(), |pod: Result<MountingPod, _>| match pod {
            Ok(pod) => pods.push(pod),
            Err(error) => unreadable = Some(error),
        })
        .await?;
        // What cannot be read may be what the others wait for.
        unreadable.map_or_else(|| Ok(rotated(workload, &statuses, &pods)), Err)
    }
}
