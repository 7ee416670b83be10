//! Leader election: who reconciles. For economy only; two leaders for a while do no harm.

use std::time::Duration;

use kube::Client;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder};
use pod_reloader_core::name::Name;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::error::chain;

/// After how many seconds without renewal another replica takes over.
const LEASE_SECONDS: u64 = 15;
/// How many seconds before that the holder renews.
const GRACE_SECONDS: u64 = 5;
/// How long to wait before the Lease is asked for again that could not be reached.
const RETRY: Duration = Duration::from_secs(2);
/// How long releasing the Lease may take.
const RELEASE: Duration = Duration::from_secs(5);

/// Takes part in the election until it is dropped or left.
pub(crate) struct Candidate {
    leading: watch::Receiver<bool>,
    task: JoinHandle<kube_lease_manager::Result<LeaseManager>>,
}

impl Candidate {
    /// Stands for election by the Lease `name` of `namespace`, as soon as it can be reached.
    pub(crate) async fn stand(client: &Client, namespace: &Name, name: &Name) -> Self {
        loop {
            let manager = LeaseManagerBuilder::new(client.clone(), name.as_str())
                .with_namespace(namespace.as_str())
                .with_duration(LEASE_SECONDS)
                .with_grace(GRACE_SECONDS)
                .build()
                .await;
            match manager {
                Ok(manager) => {
                    let (leading, task) = manager.watch().await;
                    return Self { leading, task };
                }
                Err(error) => {
                    warn!(lease = %format_args!("{namespace}/{name}"), error = chain(&error), "cannot reach the Lease, trying again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Waits until this replica leads, or no longer does. False where the election has ended.
    pub(crate) async fn wait_until(&mut self, leading: bool) -> bool {
        self.leading.wait_for(|now| *now == leading).await.is_ok()
    }

    /// Releases the Lease, so that another replica goes on by the time at which it would have expired.
    pub(crate) async fn leave(self) {
        drop(self.leading);
        if tokio::time::timeout(RELEASE, self.task).await.is_err() {
            warn!(
                "the Lease could not be released in time: another replica takes over when it expires"
            );
        }
    }
}
