//! The controller of FieldBindings, for one term of leadership at a time.

use std::sync::Arc;

use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::scope::Scope;
use prometheus_client::registry::Registry;
use tracing::info;

use super::binder::Binder;
use super::metrics::BindMetrics;
use super::watch;
use crate::runtime::controller::{Shown, Terms, beside_watches};
use crate::runtime::kit::Kit;

/// The parts with which every term of this controller works.
#[derive(Clone)]
pub struct Bindings {
    kit: Kit,
    metrics: BindMetrics,
    scope: Scope,
    /// The kinds whose fields may be bound.
    kinds: Arc<[BoundKind]>,
}

impl Bindings {
    /// Returns a controller that binds fields of `kinds`, and whose metrics are shown among `ours`.
    pub fn new(kit: Kit, ours: &mut Registry, scope: Scope, kinds: &[BoundKind]) -> Self {
        Self {
            kit,
            metrics: BindMetrics::registered(ours),
            scope,
            kinds: kinds.into(),
        }
    }
}

impl Terms for Bindings {
    async fn term(self) {
        info!("binding fields");
        let _shown = Shown::new(self.metrics.clone());
        let period = self.kit.resync_period;
        let binder = Binder::new(self.kit, self.metrics, self.scope, self.kinds);
        let binder = Arc::new(binder);
        let work = binder.worker.run(&binder);
        beside_watches(work, period, || watch::spawn(&binder)).await;
    }
}
