//! Builds the controllers, and runs them while this replica leads.

use std::future::Future;

use jiff::Timestamp;
use pod_reloader_controllers::bind::controller::bindings;
use pod_reloader_controllers::keep::controller::keeping;
use pod_reloader_controllers::sync::controller::{Own, syncs};
use pod_reloader_core::limit;
use pod_reloader_settings::{ControllerName, Reconcile};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Parts;
use crate::report::notify::{FAREWELL, Notifications, Sink, Style};
use crate::restart::controller::Restarts;
use crate::restart::recent_writes::RecentWrites;
use crate::restart::settings::Settings;
use crate::runtime::controller::{Controller, term};
use crate::runtime::events::Events;
use crate::runtime::kit::Kit;
use crate::runtime::leader::lead;
use crate::runtime::tasks::on;

impl Parts {
    /// Runs the controllers on the runtime `reconciling`, while this replica leads.
    pub(super) fn reconcile(&mut self, reconciling: &Handle) {
        let (events, send_events) = Events::new(self.clients.events.clone());
        self.tasks
            .spawn("events", on(reconciling.clone(), send_events));
        let controllers = self.controllers(&events, reconciling);
        if controllers.is_empty() {
            warn!("nothing to do while leading: --controllers names none that is switched on");
        }
        let (reconciling, heartbeat) = (reconciling.clone(), self.heartbeat.clone());
        let metrics = self.metrics.clone();
        let term = move || {
            let term = term(controllers.clone(), heartbeat.clone());
            on(reconciling.clone(), metrics.clone().shown_to_lead(term))
        };
        if !self.args.leader_elect {
            self.tasks.spawn("reconcile loop", term());
            return;
        }
        let namespace = self.args.leader_election_namespace.as_ref();
        let election = lead(
            self.clients.lease.clone(),
            namespace.unwrap_or(&self.namespace).clone(),
            self.args.leader_election_lease.clone(),
            term,
            self.stop.clone(),
        );
        self.tasks.spawn_draining("leader election", election);
    }

    /// Returns those controllers that are switched on, and that this process runs.
    fn controllers(&mut self, events: &Events, reconciling: &Handle) -> Vec<Controller> {
        let chosen = self.args.controllers.0.clone().into_iter();
        chosen
            .filter_map(|name| self.controller(name, events.clone(), reconciling))
            .collect()
    }

    /// Returns the controller with this name, if it is switched on.
    fn controller(
        &mut self,
        name: ControllerName,
        events: Events,
        reconciling: &Handle,
    ) -> Option<Controller> {
        if !self.args.switches_on(name) {
            return None;
        }
        let writes = self.args.reconcile == Reconcile::Restart;
        let called = name.as_str();
        // Not for one that is left out: its errors would be among the metrics.
        let kit = || self.kit(called, events.clone());
        Some(match name {
            ControllerName::Restart => {
                let restarts = self.restarts(events, reconciling);
                Controller::new(called, move || restarts.clone().term())
            }
            ControllerName::Keep if !self.keeps() => return None,
            ControllerName::Keep => self.keeping(called, kit()),
            ControllerName::Sync if !writes => return idle("copying to namespaces"),
            ControllerName::Sync => self.syncs(called, kit()),
            ControllerName::Bind if !writes => return idle("binding fields"),
            ControllerName::Bind => self.bindings(called, kit()),
        })
    }

    fn restarts(&mut self, events: Events, reconciling: &Handle) -> Restarts {
        Restarts {
            clients: self.clients.clone(),
            scope: self.scope.clone(),
            settings: Settings {
                settle_period: self.args.settle_period,
                max_restarts: self.args.max_restarts,
                first_stamp: self.args.first_stamp.into(),
                release_wait: self.args.release_wait,
                observe: self.args.reconcile == Reconcile::Observe,
                run_cron_jobs: self.args.run_cron_jobs_on_change,
                unstick_after: self.args.unstick_after,
                namespace_memory: self.args.namespace_memory,
                limits: limit::Limits {
                    cluster: self.args.max_concurrent_restarts_cluster,
                    namespace: self.args.max_concurrent_restarts_namespace,
                },
                clock: Timestamp::now,
            },
            budget: self.budget.clone(),
            resync_period: self.args.resync_period,
            copy_grace: self.args.copy_grace_period,
            keys: self.keys.clone(),
            events,
            notifications: self.notifications(reconciling),
            metrics: self.metrics.clone(),
            recent_writes: RecentWrites::default(),
            loop_status: self.loop_status.clone(),
            ourselves: self.ourselves.clone(),
        }
    }

    fn kit(&self, controller: &'static str, events: Events) -> Kit {
        Kit {
            clients: self.clients.clone(),
            budget: self.budget.clone(),
            watches: self.metrics.watches.clone(),
            events,
            errors: self.metrics.errors.of(controller),
            resync_period: self.args.resync_period,
        }
    }

    fn syncs(&self, called: &'static str, kit: Kit) -> Controller {
        let own = Own {
            namespace: self.namespace.clone(),
            keys: self.keys.clone(),
        };
        self.metrics.register(|ours| syncs(called, kit, ours, own))
    }

    fn bindings(&self, called: &'static str, kit: Kit) -> Controller {
        let kinds = &self.args.field_bindings_kinds.0;
        let scope = self.scope.clone();
        self.metrics
            .register(|ours| bindings(called, kit, ours, scope, kinds))
    }

    /// Returns true if ConfigMaps come back that are deleted while they are in use: somebody must bring them back.
    pub(super) fn keeps(&self) -> bool {
        self.args.protect && self.args.reconcile == Reconcile::Restart
    }

    fn keeping(&self, called: &'static str, kit: Kit) -> Controller {
        let (scope, keys) = (self.scope.clone(), self.keys.clone());
        keeping(called, kit, scope, keys, self.args.copy_grace_period)
    }

    fn notifications(&mut self, reconciling: &Handle) -> Option<Notifications> {
        let args = &self.args;
        let sink = Sink::new(
            args.notifications_url_file.clone()?,
            args.notifications_ca_file.clone(),
            args.notifications_proxy.clone(),
        );
        let style = Style {
            format: args.notifications_format,
            cluster: args.notifications_cluster.clone(),
        };
        let (metrics, stop) = (self.metrics.clone(), self.stop.clone());
        let (notifications, send) =
            Notifications::new(sink, style, args.notifications_send, metrics, stop.clone());
        let send = last_words(on(reconciling.clone(), send), stop);
        self.tasks.spawn_draining("notifications", send);
        Some(notifications)
    }
}

/// Warns that a controller is switched on but must not write, so it is left out.
fn idle(doing: &str) -> Option<Controller> {
    warn!("not {doing}: --reconcile is not restart");
    None
}

/// Runs `send`, and gives it only a short time once we stop. The time is measured here, because the timers
/// of `send` stand still if the thread that it runs on does.
pub(super) async fn last_words(send: impl Future<Output = ()>, stop: CancellationToken) {
    let too_late = async {
        stop.cancelled().await;
        tokio::time::sleep(FAREWELL * 2).await;
    };
    tokio::select! {
        () = send => {}
        () = too_late => warn!("stopping: the task that sends notifications does not answer"),
    }
}

#[cfg(test)]
mod tests;
