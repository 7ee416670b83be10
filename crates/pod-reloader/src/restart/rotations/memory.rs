//! Shares which statuses say that the Secrets Store CSI driver has given a pod other versions of secrets.

use parking_lot::Mutex;
use pod_reloader_core::name::Name;
use pod_reloader_core::rotation::{ChangedStatuses, Class, Statuses};
use pod_reloader_core::secret_provider_class::{Classes, PodStatus};
use tokio::time::Instant;

use crate::restart::clock::now;
use crate::runtime::complaint::Complaint;

/// The statuses that were changed since their creation.
#[derive(Default)]
pub(crate) struct Rotations {
    statuses: Mutex<Statuses>,
    /// What failed when live lists were read, so that it is logged once.
    pub(super) complaint: Mutex<Complaint>,
}

impl Rotations {
    /// Takes in a status. Returns its class if a restart may be due because of it.
    pub(crate) fn saw(&self, status: &PodStatus) -> Option<Class> {
        self.statuses.lock().saw(status, now())
    }

    /// Takes in that a status is gone. Returns its class if a restart may be due because of that.
    pub(crate) fn gone(&self, status: &PodStatus) -> Option<Class> {
        self.statuses.lock().gone(status, now())
    }

    /// Takes in a complete list, of a namespace or of all of them. Returns the classes of which a status was changed.
    pub(crate) fn listed(&self, namespace: Option<&Name>, listed: ChangedStatuses) -> Vec<Class> {
        self.statuses.lock().listed(namespace, listed, now())
    }

    /// Returns the time of the last news of the classes of a workload. `None` if no status was changed, so that nothing
    /// is due.
    pub(crate) fn last_news(&self, namespace: &Name, classes: &Classes) -> Option<Instant> {
        let news = self.statuses.lock().last_news(namespace, classes);
        news.map(Instant::from_std)
    }
}
