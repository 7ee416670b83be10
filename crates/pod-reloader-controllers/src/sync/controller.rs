//! The controller of ClusterConfigSyncs, for one term of leadership at a time.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tracing::info;

use super::metrics::SyncMetrics;
pub use super::syncer::Own;
use super::syncer::Syncer;
use super::watch;
use crate::runtime::controller::{Controller, Shown, beside_watches};
use crate::runtime::kit::Kit;

/// Returns the controller, which the log calls `name`, and whose metrics are shown among `ours`.
pub fn syncs(name: &'static str, kit: Kit, ours: &mut Registry, own: Own) -> Controller {
    let metrics = SyncMetrics::registered(ours);
    Controller::new(name, move || {
        let syncer = Syncer::new(kit.clone(), metrics.clone(), own.clone());
        term(syncer)
    })
}

async fn term(syncer: Syncer) {
    info!("copying to namespaces");
    let _shown = Shown::new(syncer.metrics.clone());
    let syncer = Arc::new(syncer);
    let work = syncer.worker.run(&syncer);
    beside_watches(work, syncer.kit.resync_period, || watch::spawn(&syncer)).await;
}
