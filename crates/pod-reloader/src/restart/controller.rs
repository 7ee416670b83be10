//! The controller that restarts workloads, for one term of leadership at a time.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use futures::future::BoxFuture;
use pod_reloader_core::scope::Scope;
use tokio::time::{Instant, interval, interval_at, sleep};
use tracing::info;

use crate::config::keys::Keys;
use crate::metrics::Metrics;
use crate::report::notify::Notifications;
use crate::restart::CONTROLLER;
use crate::restart::brakes::Brakes;
use crate::restart::progress::Progress;
use crate::restart::reconcile::{Reconciler, Settings};
use crate::restart::watch;
use crate::runtime::budget::Budget;
use crate::runtime::client::Clients;
use crate::runtime::controller::Controller;
use crate::runtime::events::Events;
use crate::runtime::heartbeat;

/// What every term of restarting workloads works with.
#[derive(Clone)]
pub(crate) struct Restarts {
    pub(crate) clients: Clients,
    pub(crate) scope: Scope,
    pub(crate) settings: Settings,
    pub(crate) budget: Budget,
    /// How often everything is listed again.
    pub(crate) resync_period: Duration,
    pub(crate) keys: Arc<Keys>,
    pub(crate) events: Events,
    pub(crate) notifications: Option<Notifications>,
    pub(crate) metrics: Metrics,
    pub(crate) brakes: Brakes,
    /// The user that the apiserver takes us for, once it is known.
    pub(crate) ourselves: Arc<OnceLock<String>>,
}

impl Restarts {
    /// One term: watches and the loop, until dropped.
    async fn term(self) {
        // A webhook configuration without match conditions takes our patches for somebody else's until
        // it knows our name.
        while self.ourselves.get().is_none() {
            sleep(Duration::from_millis(50)).await;
        }
        info!("reconciling");
        let progress = Progress::new(
            self.events,
            self.notifications,
            self.metrics.clone(),
            self.brakes,
        );
        let reconciler = Arc::new(Reconciler::new(
            self.settings,
            self.scope.clone(),
            self.clients.reconcile.clone(),
            self.budget.clone(),
            self.keys,
            progress,
            self.metrics.clone(),
        ));
        let _leading = Leading::new(self.metrics.clone());
        let watches = || watch::spawn(&self.clients.watch, &self.scope, &reconciler, &self.budget);
        let mut watching = watches();
        let mut running = pin!(reconciler.run());
        let mut beats = interval(heartbeat::INTERVAL);
        let mut resync = interval_at(Instant::now() + self.resync_period, self.resync_period);
        loop {
            tokio::select! {
                () = &mut running => return,
                _ = watching.join_next() => return,
                _ = beats.tick() => {
                    reconciler.publish();
                    self.metrics.heartbeat(Some(SystemTime::now()));
                }
                // Everything is listed again, in case a watch has lost something.
                _ = resync.tick() => watching = watches(),
            }
        }
    }
}

impl Controller for Restarts {
    fn name(&self) -> &'static str {
        CONTROLLER
    }

    fn lead(&self) -> BoxFuture<'static, ()> {
        self.clone().term().boxed()
    }
}

/// Sets the gauge of leadership for as long as it lives; what else the loop shows ends with it.
struct Leading(Metrics);

impl Leading {
    fn new(metrics: Metrics) -> Self {
        // What is aborted late may have counted after the last term.
        metrics.reset();
        metrics.leading.set(1);
        Self(metrics)
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.reset();
    }
}
