//! The controller of FieldBindings, for one term of leadership at a time.

use std::sync::Arc;

use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::scope::Scope;
use prometheus_client::registry::Registry;
use tracing::info;

use super::binder::Binder;
use super::metrics::BindMetrics;
use super::watch;
use crate::runtime::controller::{Controller, Shown, beside_watches};
use crate::runtime::kit::Kit;

/// Returns the controller, which the log calls `name`, and whose metrics are shown among `ours`. It binds fields of
/// `kinds`.
pub fn bindings(
    name: &'static str,
    kit: Kit,
    ours: &mut Registry,
    scope: Scope,
    kinds: &[BoundKind],
) -> Controller {
    let metrics = BindMetrics::registered(ours);
    let kinds: Arc<[BoundKind]> = kinds.into();
    Controller::new(name, move || {
        let binder = Binder::new(kit.clone(), metrics.clone(), scope.clone(), kinds.clone());
        term(binder)
    })
}

async fn term(binder: Binder) {
    info!("binding fields");
    let _shown = Shown::new(binder.metrics.clone());
    let binder = Arc::new(binder);
    let work = binder.worker.run(&binder);
    beside_watches(work, binder.kit.resync_period, || watch::spawn(&binder)).await;
}
