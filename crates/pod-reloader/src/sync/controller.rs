//! The controller of ClusterConfigSyncs, for one term of leadership at a time.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tracing::info;

use super::metrics::SyncMetrics;
pub(crate) use super::syncer::Own;
use super::syncer::Syncer;
use super::watch;
use crate::metrics::Metrics;
use crate::runtime::budget::Budget;
use crate::runtime::client::Clients;
use crate::runtime::controller::{Controller, ControllerErrors, beside_watches};
use crate::runtime::events::Events;
use crate::runtime::watch_age::Watches;

/// The name in the log and in metrics.
const SYNC: &str = "sync";

/// The parts with which every term of this controller works.
#[derive(Clone)]
pub(crate) struct Syncs {
    clients: Clients,
    budget: Budget,
    watches: Watches,
    events: Events,
    metrics: SyncMetrics,
    errors: ControllerErrors,
    own: Own,
    /// The period after which everything is listed again.
    resync_period: Duration,
}

impl Syncs {
    pub(crate) fn new(
        clients: Clients,
        budget: Budget,
        events: Events,
        metrics: &Metrics,
        own: Own,
        resync_period: Duration,
    ) -> Self {
        Self {
            clients,
            budget,
            watches: metrics.watches.clone(),
            events,
            errors: metrics.errors.of(SYNC),
            metrics: SyncMetrics::registered(metrics),
            own,
            resync_period,
        }
    }

    /// Runs one term, watches and worker, until the future is dropped.
    async fn term(self) {
        info!("copying to namespaces");
        let _shown = Shown::new(self.metrics.clone());
        let syncer = Arc::new(Syncer::new(
            self.clients,
            self.budget,
            self.watches,
            self.events,
            self.metrics,
            self.errors,
            self.own,
        ));
        beside_watches(syncer.run(), self.resync_period, || watch::spawn(&syncer)).await;
    }
}

impl Controller for Syncs {
    fn name(&self) -> &'static str {
        SYNC
    }

    fn lead(&self) -> BoxFuture<'static, ()> {
        self.clone().term().boxed()
    }
}

/// The guard of a term. It resets what the term shows in metrics.
struct Shown(SyncMetrics);

impl Shown {
    fn new(metrics: SyncMetrics) -> Self {
        // A task of the last term that was aborted late may have set metrics since.
        metrics.reset();
        Self(metrics)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.reset();
    }
}
