//! The controller of ClusterConfigSyncs, for one term of leadership at a time.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tracing::info;

use super::metrics::SyncMetrics;
pub use super::syncer::Own;
use super::syncer::Syncer;
use super::watch;
use crate::runtime::controller::{Shown, Terms, beside_watches};
use crate::runtime::kit::Kit;

/// The parts with which every term of this controller works.
#[derive(Clone)]
pub struct Syncs {
    kit: Kit,
    metrics: SyncMetrics,
    own: Own,
}

impl Syncs {
    /// Returns a controller whose metrics are shown among `ours`.
    pub fn new(kit: Kit, ours: &mut Registry, own: Own) -> Self {
        Self {
            kit,
            metrics: SyncMetrics::registered(ours),
            own,
        }
    }
}

impl Terms for Syncs {
    async fn term(self) {
        info!("copying to namespaces");
        let _shown = Shown::new(self.metrics.clone());
        let period = self.kit.resync_period;
        let syncer = Arc::new(Syncer::new(self.kit, self.metrics, self.own));
        let work = syncer.worker.run(&syncer);
        beside_watches(work, period, || watch::spawn(&syncer)).await;
    }
}
