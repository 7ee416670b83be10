//! The controller that restarts workloads, for one term of leadership at a time.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use pod_reloader_core::scope::Scope;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};
use tracing::info;

use crate::live::keys::Keys;
use crate::metrics::Metrics;
use crate::report::notify::Notifications;
use crate::restart::loop_status::LoopStatus;
use crate::restart::pins::Keeper;
use crate::restart::progress::Progress;
use crate::restart::recent_writes::RecentWrites;
use crate::restart::reconcile::Reconciler;
use crate::restart::settings::Settings;
use crate::restart::watch;
use crate::runtime::budget::Budget;
use crate::runtime::client::Clients;
use crate::runtime::controller::beside_watches;
use crate::runtime::events::Events;
use crate::runtime::heartbeat;

/// The parts with which every term of this controller works.
#[derive(Clone)]
pub(crate) struct Restarts {
    pub(crate) clients: Clients,
    pub(crate) scope: Scope,
    pub(crate) settings: Settings,
    pub(crate) budget: Budget,
    /// The period after which everything is listed again.
    pub(crate) resync_period: Duration,
    /// The age from which on copies are deleted that nobody uses.
    pub(crate) copy_grace: Duration,
    pub(crate) keys: Arc<Keys>,
    pub(crate) events: Events,
    pub(crate) notifications: Option<Notifications>,
    pub(crate) metrics: Metrics,
    pub(crate) recent_writes: RecentWrites,
    /// What the webhook is told of the term.
    pub(crate) loop_status: LoopStatus,
    /// The user name by which the apiserver knows us, once it is known.
    pub(crate) ourselves: Arc<OnceLock<String>>,
}

impl Restarts {
    /// Runs one term, watches and worker.
    pub(crate) async fn term(self) {
        // Under a webhook configuration without match conditions, the webhook must recognise our patches by
        // our user name. Until the name is known, it would take them for those of somebody else.
        while self.ourselves.get().is_none() {
            sleep(Duration::from_millis(50)).await;
        }
        info!("reconciling");
        let progress = Progress::new(
            self.events,
            self.notifications,
            self.metrics.clone(),
            self.recent_writes,
        );
        self.loop_status.term_begins(&progress.memories);
        let reconciler = Arc::new(Reconciler::new(
            self.settings,
            self.scope.clone(),
            self.clients.reconcile.clone(),
            self.budget.clone(),
            self.keys,
            progress,
            self.metrics.clone(),
        ));
        let watches = || watch::spawn(&self.clients.watch, &self.scope, &reconciler, &self.budget);
        let mut keeping = JoinSet::new();
        if let Some(pins) = &reconciler.pins {
            let client = self.clients.watch.clone();
            let keeper = Keeper::new(
                client,
                self.budget.clone(),
                self.metrics.clone(),
                pins.content.clone(),
                pins.workloads.clone(),
                self.copy_grace,
            );
            keeping.spawn(Arc::new(keeper).keep(self.scope.watched()));
        }
        let mut running = pin!(reconciler.run());
        let mut beats = interval(heartbeat::INTERVAL);
        let work = async {
            loop {
                tokio::select! {
                    () = &mut running => return,
                    Some(_) = keeping.join_next() => return,
                    _ = beats.tick() => {
                        reconciler.publish();
                        self.metrics.heartbeat(Some(SystemTime::now()));
                    }
                }
            }
        };
        beside_watches(work, self.resync_period, watches).await;
    }
}
