//! Watches what the Secrets Store CSI driver has mounted, for as long as the cluster serves its statuses.

use std::sync::Arc;

use kube::Client;
use pod_reloader_core::api_discovery::State;
use pod_reloader_core::name::Name;
use pod_reloader_core::rotation::{ChangedStatuses, add_status};
use pod_reloader_core::secret_provider_class::{GROUP, PodStatus, STATUSES};
use tokio::task::JoinSet;
use tracing::debug;

use crate::restart::api_groups::{INTERVAL, groups};
use crate::restart::rotations::RotatedPods;
use crate::runtime::budget::Budget;
use crate::runtime::client::{DEADLINE, within};
use crate::runtime::complaint::Complaint;
use crate::runtime::follower::Follower;
use crate::runtime::resources::{Resources, api};
use crate::runtime::watch_age::Watches;

/// The only version that is read. Versions of the driver before 1.0 serve an earlier one.
const VERSION: &str = "v1";
const KIND: &str = "SecretProviderClassPodStatus";

/// Watches the statuses in `namespaces` for as long as the cluster serves them. `None` stands for all namespaces at
/// once.
pub(crate) async fn watch_statuses(
    client: Client,
    namespaces: Vec<Option<Name>>,
    (rotated, ages): (Arc<RotatedPods>, Watches),
    budget: Budget,
) {
    let mut watches: Option<JoinSet<()>> = None;
    let mut complaint = Complaint::default();
    loop {
        match within(DEADLINE, groups(&client, &budget, &[GROUP])).await {
            Err(error) => complaint.warn(
                &error,
                "cannot find out whether the Secrets Store CSI driver is installed, trying again",
            ),
            Ok(groups) => {
                complaint.settled();
                match groups.state(GROUP, STATUSES) {
                    State::Served(VERSION) if watches.is_none() => {
                        debug!("the cluster serves the statuses of the Secrets Store CSI driver");
                        let mut begun = JoinSet::new();
                        for namespace in namespaces.clone() {
                            let statuses = api(&client, namespace.as_ref(), ());
                            let statuses = Resources::<PodStatus>::new(statuses, KIND, &budget);
                            let follower = StatusFollower {
                                rotated: rotated.clone(),
                                namespace,
                            };
                            begun.spawn(statuses.follow(ages.clone(), follower));
                        }
                        watches = Some(begun);
                    }
                    State::Served(VERSION) | State::Unknown => {}
                    State::Served(_) | State::Missing => {
                        if watches.take().is_some() {
                            debug!(
                                "the cluster no longer serves the statuses of the Secrets Store CSI driver"
                            );
                            for namespace in &namespaces {
                                rotated.listed(namespace.as_ref(), ChangedStatuses::new());
                            }
                        }
                    }
                }
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

struct StatusFollower {
    rotated: Arc<RotatedPods>,
    namespace: Option<Name>,
}

impl Follower<PodStatus> for StatusFollower {
    type Noted = PodStatus;
    type List = ListedStatuses;

    fn listed(&mut self, status: PodStatus) -> Option<PodStatus> {
        Some(status)
    }

    fn all_listed(&mut self, ListedStatuses(changed): ListedStatuses) {
        let namespace = self.namespace.as_ref();
        self.rotated.listed(namespace, changed);
    }

    fn seen(&mut self, status: PodStatus) {
        self.rotated.seen(&status);
    }

    fn gone(&mut self, status: PodStatus) {
        self.rotated.gone(&status);
    }
}

/// Those statuses of a list that were changed since their creation.
#[derive(Default)]
struct ListedStatuses(ChangedStatuses);

impl Extend<PodStatus> for ListedStatuses {
    fn extend<I: IntoIterator<Item = PodStatus>>(&mut self, statuses: I) {
        for status in statuses {
            add_status(&mut self.0, &status);
        }
    }
}
