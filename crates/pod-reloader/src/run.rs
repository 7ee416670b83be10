//! Builds the parts of the operator, and runs them until one ends or we are told to stop.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use axum::Router;
use pod_reloader_core::name::Name;
use pod_reloader_core::scope::Scope;
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};
use webhook_certs::{
    Acceptor, CertificateDirectory, ClientAuthorities, CurrentCertificate, MinTlsVersion,
};

use crate::config::keys::{self, Keys};
use crate::config::source::Source;
use crate::metrics::{Metrics, Reader};
use crate::report::notify::{FAREWELL, Notifications, Sink, Style};
use crate::restart::progress::{Brakes, Progress};
use crate::restart::reconcile::{Reconciler, Settings};
use crate::restart::watch;
use crate::runtime::admin;
use crate::runtime::budget::Budget;
use crate::runtime::client::{self, Clients, DEADLINE};
use crate::runtime::error::StartError;
use crate::runtime::events::Events;
use crate::runtime::heartbeat::{self, Heartbeat};
use crate::runtime::leader::lead;
use crate::runtime::logging::Complaint;
use crate::runtime::server::{self, Limits, Transport};
use crate::webhook::authority::{OwnAuthority, Places};
use crate::webhook::certificate;
use crate::webhook::readiness::Readiness;
use crate::webhook::{Told, Webhook};
use pod_reloader_settings::{Args, Reconcile, TlsVersion};

/// How long to wait before a call is tried again that must succeed before we are of use.
const RETRY: Duration = Duration::from_secs(1);

/// Runs the operator until it is told to stop; the reconcile loop on a runtime of its own.
///
/// *Errors*: it could not start, or one of its tasks ended by itself.
pub(crate) async fn run(args: Args, reconciling: &Handle) -> Result<(), StartError> {
    let namespace = own_namespace(&args)?;
    let metrics = Metrics::new();
    let clients = Clients::infer(reconciling, &metrics.watches).await?;
    let scope = args.scope(namespace.clone());
    if scope
        .namespaces()
        .is_some_and(|mut namespaces| namespaces.next().is_none())
    {
        return Err(StartError::NothingToKeep);
    }
    metrics.keeps(scope.custom_kinds());
    metrics.mode(args.reconcile);
    let budget = Budget::new();
    let keys = Arc::new(Keys::new(
        clients.lease.clone(),
        &namespace,
        &args.hash_keys_secret,
    ));
    let ourselves = Arc::new(OnceLock::new());
    let has_webhook = args.webhook_tls_directory.is_some() || args.webhook_tls_secret.is_some();
    let certificate = has_webhook.then(CurrentCertificate::new);
    let is_trusted = Arc::new(AtomicBool::new(args.webhook_tls_secret.is_none()));
    let heartbeat = Arc::new(Heartbeat::default());
    let readiness = Arc::new(Readiness {
        certificate: certificate.clone(),
        is_trusted: is_trusted.clone(),
        keys: keys.clone(),
        ourselves: ourselves.clone(),
        stopping: AtomicBool::new(false),
    });
    let stop = CancellationToken::new();
    let mut tasks = Tasks::new(stop.clone());

    info!(version = env!("CARGO_PKG_VERSION"), %namespace, namespaces = ?args.namespaces.0, reconcile = ?args.reconcile, "starting");
    if let Some(address) = args.health_probe_bind_address.0 {
        let readiness = readiness.clone();
        let obstacle = move || readiness.obstacle(SystemTime::now());
        tasks.serve(
            "probes",
            admin::listen(address).await?,
            admin::probes(heartbeat.clone(), obstacle),
        );
    }
    if let Some(address) = args.metrics_bind_address.0 {
        tasks.serve(
            "metrics",
            admin::listen(address).await?,
            admin::metrics({
                let metrics = metrics.clone();
                move || metrics.text()
            }),
        );
    }
    tasks.spawn("keys", refresh_keys(keys.clone()));
    tasks.spawn(
        "identity",
        learn_username(clients.admission.clone(), ourselves.clone()),
    );

    if let Some(certificate) = certificate {
        if let Some(directory) = &args.webhook_tls_directory {
            let directory = CertificateDirectory::new(directory);
            tasks.spawn(
                "certificate",
                certificate::reload(directory, certificate.clone(), metrics.clone()),
            );
        }
        if let Some(secret) = args.webhook_tls_secret {
            let places = Places {
                namespace: namespace.clone(),
                secret,
                service: args.webhook_service,
                configuration: args.webhook_configuration,
            };
            let authority = OwnAuthority::new(
                &clients.lease,
                &places,
                certificate.clone(),
                is_trusted,
                metrics.clone(),
            );
            let authority = authority.map_err(|source| StartError::Authority { source })?;
            tasks.spawn("certificate", authority.keep());
        }
        let selector = scope.config_selector();
        let source = Source::new(
            clients.admission.clone(),
            DEADLINE,
            budget.clone(),
            selector,
            metrics.reads(Reader::Admission),
        );
        let webhook = Webhook::new(
            scope.clone(),
            keys.clone(),
            source,
            metrics.clone(),
            ourselves.clone(),
            Told {
                certificate: certificate.clone(),
                first_stamp: args.first_stamp.into(),
            },
            budget.clone(),
        );
        let minimum = minimum(args.webhook_tls_min_version);
        let acceptor = match args.webhook_client_ca_file {
            None => Acceptor::new(&certificate, minimum),
            Some(file) => {
                let authorities = ClientAuthorities::new();
                let read = authorities.reload(&file);
                read.map_err(|source| StartError::ClientAuthorities { source })?;
                let acceptor =
                    Acceptor::with_client_authorities(&certificate, minimum, &authorities);
                let reload = certificate::reload_client_authorities(file, authorities);
                tasks.spawn("client authorities", reload);
                acceptor
            }
        };
        let listener = admin::listen(args.webhook_bind_address).await?;
        let limits = Limits {
            drain: args.drain_period,
            ..Limits::default()
        };
        let stopped = stop.clone().cancelled_owned();
        tasks.spawn_draining(
            "webhook",
            server::serve(
                listener,
                Transport::Tls(acceptor),
                webhook.router(),
                limits,
                stopped,
            ),
        );
    } else {
        warn!(
            "no webhook is served: neither --webhook-tls-directory nor --webhook-tls-secret is given"
        );
    }

    if args.reconcile == Reconcile::Off {
        warn!("not reconciling: --reconcile=off");
    } else {
        let (events, send_events) = Events::new(clients.events.clone());
        tasks.spawn("events", on(reconciling.clone(), send_events));
        let notifications = match args.notify_url_file {
            None => None,
            Some(url_file) => {
                let sink = Sink::new(url_file, args.notify_ca_file, args.notify_proxy);
                let style = Style {
                    format: args.notify_format,
                    cluster: args.notify_cluster,
                };
                let (notifications, send) =
                    Notifications::new(sink, style, args.notify_on, metrics.clone(), stop.clone());
                let send = on(reconciling.clone(), send);
                tasks.spawn_draining("notifications", last_words(send, stop.clone()));
                Some(notifications)
            }
        };
        let settings = Settings {
            settle_period: args.settle_period,
            max_restarts: args.max_restarts,
            first_stamp: args.first_stamp.into(),
            observe: args.reconcile == Reconcile::Observe,
            run_cron_jobs: args.run_cronjobs_on_change,
            namespace_memory: args.namespace_memory,
        };
        let term = Term {
            clients: clients.clone(),
            scope: scope.clone(),
            settings,
            budget,
            resync_period: args.resync_period,
            keys: keys.clone(),
            events,
            notifications,
            metrics: metrics.clone(),
            brakes: Brakes::default(),
            heartbeat,
            ourselves: ourselves.clone(),
        };
        let reconciling = reconciling.clone();
        if args.leader_elect {
            let lease_namespace = args.leader_election_namespace.unwrap_or(namespace);
            let election = lead(
                clients.lease,
                lease_namespace,
                args.leader_election_lease,
                move || on(reconciling.clone(), term.clone().run()),
                stop.clone(),
            );
            tasks.spawn_draining("leader election", election);
        } else {
            tasks.spawn("reconcile loop", on(reconciling, term.run()));
        }
    }

    let ended = tasks.run_until(told_to_stop()).await;
    readiness.stopping.store(true, Ordering::Relaxed);
    stop.cancel();
    match ended {
        Some(name) => Err(StartError::TaskEnded(name)),
        None => {
            info!("stopping");
            tasks.drain().await;
            info!("stopped");
            Ok(())
        }
    }
}

/// What every term of reconciling works with.
#[derive(Clone)]
struct Term {
    clients: Clients,
    scope: Scope,
    settings: Settings,
    budget: Budget,
    resync_period: Duration,
    keys: Arc<Keys>,
    events: Events,
    notifications: Option<Notifications>,
    metrics: Metrics,
    brakes: Brakes,
    heartbeat: Arc<Heartbeat>,
    ourselves: Arc<OnceLock<String>>,
}

impl Term {
    /// One term of reconciling: watches and the loop, until dropped.
    async fn run(self) {
        // A webhook configuration without match conditions takes our patches for somebody else's until
        // it knows our name.
        while self.ourselves.get().is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        info!("reconciling");
        let reconciler = Arc::new(Reconciler::new(
            self.settings.clone(),
            self.scope.clone(),
            self.clients.reconcile.clone(),
            self.budget.clone(),
            self.keys.clone(),
            Progress::new(
                self.events.clone(),
                self.notifications.clone(),
                self.metrics.clone(),
                self.brakes.clone(),
            ),
            self.metrics.clone(),
        ));
        let _leading = Leading::new(self.metrics.clone(), self.heartbeat.clone());
        let watches = || watch::spawn(&self.clients.watch, &self.scope, &reconciler, &self.budget);
        let mut watching = watches();
        let mut running = pin!(reconciler.run());
        let mut beats = tokio::time::interval(heartbeat::INTERVAL);
        let mut resync =
            tokio::time::interval_at(Instant::now() + self.resync_period, self.resync_period);
        loop {
            tokio::select! {
                () = &mut running => return,
                _ = watching.join_next() => return,
                _ = beats.tick() => {
                    reconciler.publish();
                    self.heartbeat.beat();
                    self.metrics.heartbeat(Some(SystemTime::now()));
                }
                // Everything is listed again, in case a watch has lost something.
                _ = resync.tick() => watching = watches(),
            }
        }
    }
}

/// Runs `task` on another runtime, until it ends or nobody waits for it any more.
async fn on(runtime: Handle, task: impl Future<Output = ()> + Send + 'static) {
    if let Err(error) = AbortOnDropHandle::new(runtime.spawn(task)).await
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Runs `send`, and once we stop for only as long as it may take then: its own timers stand still where the
/// thread does that it runs on.
async fn last_words(send: impl Future<Output = ()>, stop: CancellationToken) {
    let too_late = async {
        stop.cancelled().await;
        tokio::time::sleep(FAREWELL * 2).await;
    };
    tokio::select! {
        () = send => {}
        () = too_late => warn!("stopping, without a word from those who send notifications"),
    }
}

async fn refresh_keys(keys: Arc<Keys>) {
    let mut complaint = Complaint::default();
    loop {
        let pause = match keys.read_since(Instant::now()).await {
            Ok(_) => {
                complaint.settled();
                keys::REFRESH_INTERVAL
            }
            Err(error) => {
                complaint.warn(&error, "cannot read the hash keys, trying again");
                RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn learn_username(client: kube::Client, ourselves: Arc<OnceLock<String>>) {
    while ourselves.get().is_none() {
        match client::own_username(&client).await {
            Ok(username) => {
                info!(username, "known to the apiserver");
                ourselves.get_or_init(|| username);
            }
            // A cluster may not let us ask: then its webhook configuration must have the condition.
            Err(error) if error.is_refusal() => {
                warn!(%error, "cannot ask for our own name: the webhook configuration must exclude our writes");
                ourselves.get_or_init(String::new);
            }
            Err(error) => {
                warn!(%error, "cannot ask for our own name, trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
    std::future::pending().await
}

/// Returns the oldest version of TLS that clients may speak.
fn minimum(version: TlsVersion) -> MinTlsVersion {
    match version {
        TlsVersion::Tls12 => MinTlsVersion::Tls12,
        TlsVersion::Tls13 => MinTlsVersion::Tls13,
    }
}

fn own_namespace(args: &Args) -> Result<Name, StartError> {
    let pod_namespace = || Name::parse(&client::pod_namespace()?).ok();
    args.namespace
        .clone()
        .or_else(pod_namespace)
        .ok_or(StartError::NoNamespace)
}

async fn told_to_stop() {
    let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be handled");
    let mut interrupt = signal(SignalKind::interrupt()).expect("SIGINT can be handled");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Sets the gauge of leadership for as long as it lives; what else the loop shows ends with it.
struct Leading(Metrics, Arc<Heartbeat>);

impl Leading {
    fn new(metrics: Metrics, heartbeat: Arc<Heartbeat>) -> Self {
        let this = Self(metrics, heartbeat);
        // What is aborted late may have counted after the last term.
        this.reset();
        this.0.leading.set(1);
        this
    }

    fn reset(&self) {
        let metrics = &self.0;
        for gauge in [
            &metrics.leading,
            &metrics.workloads,
            &metrics.waiting,
            &metrics.braked,
            &metrics.reverted,
            &metrics.refused,
            &metrics.unreadable,
            &metrics.left_out,
            &metrics.foreign,
            &metrics.config_objects,
            &metrics.references,
            &metrics.digests,
        ] {
            gauge.set(0);
        }
        self.0.heartbeat(None);
        self.0.hashes([]);
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.reset();
        self.1.rest();
    }
}

/// The tasks of the process: none of them ends before it is told to.
struct Tasks {
    stop: CancellationToken,
    /// Those that are dropped when we stop.
    running: JoinSet<&'static str>,
    /// Those that finish by themselves when we stop.
    draining: JoinSet<&'static str>,
}

impl Tasks {
    fn new(stop: CancellationToken) -> Self {
        Self {
            stop,
            running: JoinSet::new(),
            draining: JoinSet::new(),
        }
    }

    fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.running.spawn(async move {
            task.await;
            name
        });
    }

    fn spawn_draining(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.draining.spawn(async move {
            task.await;
            name
        });
    }

    fn serve(&mut self, name: &'static str, listener: tokio::net::TcpListener, router: Router) {
        // They answer until the very end: that we are about to stop, too.
        let never = std::future::pending();
        let limits = Limits::of_a_small_port();
        self.spawn(
            name,
            server::serve(listener, Transport::Plain, router, limits, never),
        );
    }

    /// Waits for `stop`, or for the first task that ends before, and says which.
    async fn run_until(&mut self, stop: impl Future<Output = ()>) -> Option<&'static str> {
        let name = |ended: Option<Result<&'static str, _>>| match ended {
            Some(Ok(name)) => name,
            _ => "(panicked)",
        };
        tokio::select! {
            () = stop => None,
            ended = self.running.join_next(), if !self.running.is_empty() => Some(name(ended)),
            ended = self.draining.join_next(), if !self.draining.is_empty() => Some(name(ended)),
        }
    }

    /// Waits for the tasks that finish by themselves; drops the rest.
    async fn drain(mut self) {
        self.stop.cancel();
        while self.draining.join_next().await.is_some() {}
        self.running.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_stands_still_does_not_keep_the_process() {
        let stop = CancellationToken::new();
        let words = last_words(std::future::pending(), stop.clone());
        let mut words = pin!(words);
        let hour = Duration::from_secs(60 * 60);
        let before = tokio::time::timeout(hour, &mut words).await;
        assert!(before.is_err(), "nobody has told it to stop");
        stop.cancel();
        let began = Instant::now();
        words.await;
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}
