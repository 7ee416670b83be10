//! Builds the parts of the operator, and runs them until one ends or we are told to stop.

mod controllers;
mod error;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use pod_reloader_core::name::Name;
use pod_reloader_core::scope::Scope;
use pod_reloader_settings::{Args, ControllerName, Reconcile, TlsVersion};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use webhook_certs::{
    Acceptor, CertificateDirectory, ClientAuthorities, CurrentCertificate, MinTlsVersion,
};

use self::error::RunError;
use crate::live::covered::Covered;
use crate::live::fields::FieldReads;
use crate::live::kept::KeptCalls;
use crate::live::keys::{self, Keys};
use crate::live::protected::ProtectedReads;
use crate::live::reads::Reader;
use crate::live::source::Source;
use crate::live::users::Users;
use crate::metrics::Metrics;
use crate::restart::loop_status::LoopStatus;
use crate::runtime::admin;
use crate::runtime::budget::Budget;
use crate::runtime::client::{self, Clients, DEADLINE};
use crate::runtime::complaint::Complaint;
use crate::runtime::heartbeat::Heartbeat;
use crate::runtime::server::{self, Limits, Transport};
use crate::runtime::tasks::Tasks;
use crate::webhook::fields::Fields;
use crate::webhook::in_use::InUse;
use crate::webhook::keep::Keep;
use crate::webhook::own_ca::{OwnAuthority, Places};
use crate::webhook::readiness::Readiness;
use crate::webhook::{SwitchedOn, Webhook, body, certificate};

/// The pause before a call is tried again that must succeed before we are of any use.
const RETRY: Duration = Duration::from_secs(1);

/// Runs the operator until it is told to stop. The reconcile loop has a runtime of its own.
///
/// # Errors
///
/// Returns an error if the operator could not start, or if one of its tasks ended by itself.
pub(crate) async fn run(args: Args, reconciling: &Handle) -> Result<(), RunError> {
    let mut parts = Parts::new(args, reconciling).await?;
    info!(
        version = env!("CARGO_PKG_VERSION"),
        namespace = %parts.namespace,
        namespaces = ?parts.args.watch_namespaces.0,
        reconcile = ?parts.args.reconcile,
        "starting"
    );
    let readiness = parts.serve_probes_and_metrics().await?;
    match readiness.certificate.clone() {
        Some(certificate) => {
            parts.keep_certificate(&certificate, readiness.is_trusted.clone())?;
            parts.serve_webhook(&certificate).await?;
        }
        None => warn!(
            "no webhook is served: neither --webhook-tls-directory nor --webhook-tls-secret is given"
        ),
    }
    match parts.args.reconcile {
        Reconcile::Nothing => warn!("not reconciling: --reconcile=none"),
        Reconcile::Restart | Reconcile::Observe => parts.reconcile(reconciling),
    }

    let ended = parts.tasks.run_until(told_to_stop()).await;
    readiness.stopping.store(true, Ordering::Relaxed);
    parts.stop.cancel();
    match ended {
        Some(name) => Err(RunError::TaskEnded(name)),
        None => {
            info!("stopping");
            parts.tasks.drain().await;
            info!("stopped");
            Ok(())
        }
    }
}

/// The shared parts of the operator.
struct Parts {
    args: Args,
    namespace: Name,
    clients: Clients,
    scope: Scope,
    budget: Budget,
    keys: Arc<Keys>,
    metrics: Metrics,
    /// The user name by which the apiserver knows us, once it is known.
    ourselves: Arc<OnceLock<String>>,
    /// What the loop tells the webhook.
    loop_status: LoopStatus,
    heartbeat: Arc<Heartbeat>,
    stop: CancellationToken,
    tasks: Tasks,
}

impl Parts {
    async fn new(args: Args, reconciling: &Handle) -> Result<Self, RunError> {
        let namespace = own_namespace(&args)?;
        let mut metrics = Metrics::new();
        if args.metrics_by_namespace {
            metrics = metrics.and_namespaces();
        }
        let clients = Clients::infer(reconciling, &metrics.watches).await?;
        let scope = args.scope(namespace.clone());
        if scope
            .namespaces()
            .is_some_and(|mut namespaces| namespaces.next().is_none())
        {
            return Err(RunError::NothingToManage);
        }
        metrics.add_kinds(&scope.custom_kinds);
        metrics.mode(args.reconcile);
        let lease = clients.lease.clone();
        let keys = Keys::new(lease, &namespace, &args.hash_keys_secret);
        // The writer has no right to make them, and waits until the operator has.
        let keys = Arc::new(match args.controllers.include(ControllerName::Restart) {
            true => keys,
            false => keys.made_by_others(),
        });
        let ourselves = Arc::default();
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn("keys", refresh_keys(keys.clone()));
        tasks.spawn(
            "identity",
            learn_username(clients.admission.clone(), Arc::clone(&ourselves)),
        );
        Ok(Self {
            args,
            namespace,
            clients,
            scope,
            budget: Budget::new(),
            keys,
            metrics,
            ourselves,
            loop_status: LoopStatus::default(),
            heartbeat: Arc::default(),
            stop,
            tasks,
        })
    }

    async fn serve_probes_and_metrics(&mut self) -> Result<Arc<Readiness>, RunError> {
        let args = &self.args;
        let has_webhook = args.webhook_tls_directory.is_some() || args.webhook_tls_secret.is_some();
        let readiness = Arc::new(Readiness {
            certificate: has_webhook.then(CurrentCertificate::new),
            is_trusted: Arc::new(AtomicBool::new(args.webhook_tls_secret.is_none())),
            keys: self.keys.clone(),
            ourselves: self.ourselves.clone(),
            stopping: AtomicBool::new(false),
        });
        if let Some(address) = args.health_probe_bind_address.0 {
            let listener = admin::listen(address).await?;
            let readiness = readiness.clone();
            let obstacle = move || readiness.obstacle(SystemTime::now());
            let probes = admin::probes(self.heartbeat.clone(), obstacle);
            self.tasks.serve("probes", listener, probes);
        }
        if let Some(address) = args.metrics_bind_address.0 {
            let listener = admin::listen(address).await?;
            let metrics = self.metrics.clone();
            let metrics = admin::metrics(move || metrics.text());
            self.tasks.serve("metrics", listener, metrics);
        }
        Ok(readiness)
    }

    /// Starts rereading `certificate` from its directory, or issuing it by a CA of our own.
    fn keep_certificate(
        &mut self,
        certificate: &CurrentCertificate,
        is_trusted: Arc<AtomicBool>,
    ) -> Result<(), RunError> {
        let args = &self.args;
        if let Some(directory) = &args.webhook_tls_directory {
            let directory = CertificateDirectory::new(directory);
            let reload = certificate::reload(directory, certificate.clone(), self.metrics.clone());
            self.tasks.spawn("certificate", reload);
        }
        if let Some(secret) = &args.webhook_tls_secret {
            let places = Places {
                namespace: self.namespace.clone(),
                secret: secret.clone(),
                service: args.webhook_service.clone(),
                configuration: args.webhook_configuration.clone(),
            };
            let authority = OwnAuthority::new(
                &self.clients.lease,
                &places,
                certificate.clone(),
                is_trusted,
                self.metrics.clone(),
            );
            let authority = authority.map_err(|source| RunError::Authority { source })?;
            self.tasks.spawn("certificate", authority.keep());
        }
        Ok(())
    }

    async fn serve_webhook(&mut self, certificate: &CurrentCertificate) -> Result<(), RunError> {
        let source = Source::new(
            self.clients.admission.clone(),
            DEADLINE,
            self.budget.clone(),
            &self.scope,
            self.metrics.config_reads.by(Reader::Admission),
        );
        let webhook = Webhook {
            scope: self.scope.clone(),
            keys: self.keys.clone(),
            source,
            metrics: self.metrics.clone(),
            ourselves: self.ourselves.clone(),
            certificate: certificate.clone(),
            first_stamp: self.args.first_stamp.into(),
            loop_status: self.loop_status.clone(),
            limits: body::Limits::new(self.budget.clone()),
        };
        let client = &self.clients.admission;
        let users = Users::new(client.clone(), self.budget.clone());
        let reads = ProtectedReads::new(client.clone(), self.budget.clone());
        let covered = Covered::new(client.clone(), self.scope.clone(), self.budget.clone());
        let in_use = self.args.protect.then(|| InUse {
            covered: covered.clone(),
            reads: reads.clone(),
            users: users.clone(),
            templates_protect: self.args.protect_templates,
        });
        let keep = self.keeps().then(|| Keep {
            covered,
            reads,
            users,
            calls: KeptCalls::new(client.clone(), self.budget.clone()),
            clock: Timestamp::now,
        });
        let transport = Transport::Tls(self.acceptor(certificate)?);
        let listener = admin::listen(self.args.webhook_bind_address).await?;
        let limits = Limits {
            drain: self.args.drain_period,
            ..Limits::default()
        };
        let stopped = self.stop.clone().cancelled_owned();
        let router = webhook.router(SwitchedOn {
            in_use,
            keep,
            fields: self.fields(),
        });
        let serve = server::serve(listener, transport, router, limits, stopped);
        self.tasks.spawn_draining("webhook", serve);
        Ok(())
    }

    /// Returns what fills the fields of new objects, if those of any kind are to be filled.
    fn fields(&self) -> Option<Fields> {
        let kinds = self.args.field_bindings_kinds.0.iter();
        let kinds: Arc<[_]> = kinds.filter(|it| it.fill_on_create).cloned().collect();
        let (client, budget) = (&self.clients.admission, &self.budget);
        (!kinds.is_empty()).then(|| Fields {
            kinds,
            reads: FieldReads::new(client.clone(), budget.clone()),
        })
    }

    fn acceptor(&mut self, certificate: &CurrentCertificate) -> Result<Acceptor, RunError> {
        let minimum = minimum(self.args.webhook_tls_min_version);
        let Some(file) = self.args.webhook_client_ca_file.clone() else {
            return Ok(Acceptor::new(certificate, minimum));
        };
        let authorities = ClientAuthorities::new();
        let read = authorities.reload(&file);
        read.map_err(|source| RunError::ClientAuthorities { source })?;
        let acceptor = Acceptor::with_client_authorities(certificate, minimum, &authorities);
        let reload = certificate::reload_client_authorities(file, authorities);
        self.tasks.spawn("client authorities", reload);
        Ok(acceptor)
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
            // A cluster may not let us ask. Its webhook configuration must then have the match condition.
            Err(error) if error.is_refusal() => {
                warn!(%error, "cannot read our own user name: the webhook configuration must exclude our writes");
                ourselves.get_or_init(String::new);
            }
            Err(error) => {
                warn!(%error, "cannot read our own user name, trying again");
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

fn own_namespace(args: &Args) -> Result<Name, RunError> {
    let pod_namespace = || Name::parse(&client::pod_namespace()?).ok();
    args.namespace
        .clone()
        .or_else(pod_namespace)
        .ok_or(RunError::NoNamespace)
}

async fn told_to_stop() {
    let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be handled");
    let mut interrupt = signal(SignalKind::interrupt()).expect("SIGINT can be handled");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::controllers::last_words;
    use super::*;
    use std::pin::pin;

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_is_stuck_does_not_keep_the_process_from_ending() {
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
