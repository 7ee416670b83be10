//! The controller of FieldBindings, for one term of leadership at a time.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use pod_reloader_core::field_binding::kind::BoundKind;
use pod_reloader_core::scope::Scope;
use tracing::info;

use super::binder::{Binder, Parts};
use super::metrics::BindMetrics;
use super::watch;
use crate::metrics::Metrics;
use crate::runtime::budget::Budget;
use crate::runtime::client::Clients;
use crate::runtime::controller::{Controller, beside_watches};
use crate::runtime::events::Events;

/// The name in the log and in metrics.
const BIND: &str = "bind";

/// The parts with which every term of this controller works.
#[derive(Clone)]
pub(crate) struct Bindings {
    pub(super) parts: Parts,
    /// The period after which everything is listed again.
    resync_period: Duration,
}

impl Bindings {
    pub(crate) fn new(
        clients: Clients,
        budget: Budget,
        events: Events,
        metrics: &Metrics,
        scope: Scope,
        kinds: &[BoundKind],
        resync_period: Duration,
    ) -> Self {
        Self {
            parts: Parts {
                clients,
                budget,
                watches: metrics.watches.clone(),
                events,
                errors: metrics.errors.of(BIND),
                metrics: BindMetrics::registered(metrics),
                scope,
                kinds: kinds.into(),
            },
            resync_period,
        }
    }

    /// Runs one term, watches and worker, until the future is dropped.
    async fn term(self) {
        info!("binding fields");
        let _shown = Shown::new(self.parts.metrics.clone());
        let binder = Arc::new(Binder::new(self.parts));
        beside_watches(binder.run(), self.resync_period, || watch::spawn(&binder)).await;
    }
}

impl Controller for Bindings {
    fn name(&self) -> &'static str {
        BIND
    }

    fn lead(&self) -> BoxFuture<'static, ()> {
        self.clone().term().boxed()
    }
}

/// The guard of a term. It resets what the term shows in metrics.
struct Shown(BindMetrics);

impl Shown {
    fn new(metrics: BindMetrics) -> Self {
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
