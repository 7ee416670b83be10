//! The command line, which is also the reference of every setting.

mod choices;
mod scope;
mod stakater;
mod values;

use std::env;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Command, CommandFactory, FromArgMatches, Parser};
use http::Uri;
use kube_core::Selector;
use pod_reloader_core::name::Name;
use pod_reloader_core::selector;
use pod_reloader_core::staging::Staged;

pub use self::choices::{
    ControllerName, FirstStampArg, LogFormat, NotifyFormat, NotifyOn, Reconcile, TlsVersion,
};
pub use self::values::{
    BoundKinds, Controllers, CustomKinds, IgnoredKind, Namespaces, OptionalAddress,
    PlacesOfReleases, Spoken,
};
use self::values::{
    address, controllers, custom_resources, duration, field_bindings, help_of_dialects,
    ignored_kind, log_level, memory, name, namespaces, optional_address, places, proxy,
    resync_period, spoken, staged,
};

/// Restarts pods when the ConfigMaps and Secrets that they read change.
///
/// Talks to the cluster that KUBECONFIG names, or else to the one it runs in. Every flag can also be
/// set by the environment variable that is shown with it; an empty variable counts as not set. If a flag
/// is given twice, the last one wins.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "pod-reloader",
    version,
    disable_help_flag = true,
    args_override_self = true
)]
pub struct Args {
    /// Print this help.
    #[arg(short, long, action = ArgAction::HelpShort)]
    help: Option<bool>,

    /// Address of the webhook (HTTPS, at /mutate).
    #[arg(long, env = "POD_RELOADER_WEBHOOK_BIND_ADDRESS", value_name = "[HOST]:PORT", default_value = ":9443", value_parser = address)]
    pub webhook_bind_address: SocketAddr,

    /// Directory with the webhook's tls.crt and tls.key, reread when it changes. Without this directory or --webhook-tls-secret, no webhook is served.
    #[arg(long, env = "POD_RELOADER_WEBHOOK_TLS_DIRECTORY", value_name = "PATH")]
    pub webhook_tls_directory: Option<PathBuf>,

    /// Secret in the operator's own namespace for a CA and a certificate that the operator issues itself.
    #[arg(long, env = "POD_RELOADER_WEBHOOK_TLS_SECRET", value_name = "NAME", conflicts_with = "webhook_tls_directory", value_parser = name)]
    pub webhook_tls_secret: Option<Name>,

    /// Service of the webhook in the operator's own namespace. Certificates that the operator issues itself are for this name.
    #[arg(long, env = "POD_RELOADER_WEBHOOK_SERVICE", value_name = "NAME", default_value = "pod-reloader", value_parser = name)]
    pub webhook_service: Name,

    /// MutatingWebhookConfiguration into whose caBundle the operator writes its own CA.
    #[arg(long, env = "POD_RELOADER_WEBHOOK_CONFIGURATION", value_name = "NAME", default_value = "pod-reloader", value_parser = name)]
    pub webhook_configuration: Name,

    /// PEM bundle of CAs, reread when it changes: only clients with a certificate from one of them may call the webhook [default: all clients].
    #[arg(long, env = "POD_RELOADER_WEBHOOK_CLIENT_CA_FILE", value_name = "PATH")]
    pub webhook_client_ca_file: Option<PathBuf>,

    /// Oldest TLS version that the webhook accepts.
    #[arg(
        long,
        env = "POD_RELOADER_WEBHOOK_TLS_MIN_VERSION",
        value_name = "VERSION",
        default_value = "1.3"
    )]
    pub webhook_tls_min_version: TlsVersion,

    /// Address of the metrics (HTTP, at /metrics); 0 switches them off.
    #[arg(long, env = "POD_RELOADER_METRICS_BIND_ADDRESS", value_name = "[HOST]:PORT", default_value = ":8080", value_parser = optional_address)]
    pub metrics_bind_address: OptionalAddress,

    /// Count restarts and workloads that wait by namespace, too, in metrics with the label namespace: for 500 namespaces at most, and for all others together.
    #[arg(long, env = "POD_RELOADER_METRICS_BY_NAMESPACE", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub metrics_by_namespace: bool,

    /// Address of the probes (HTTP, at /healthz and /readyz); 0 switches them off.
    #[arg(long, env = "POD_RELOADER_HEALTH_PROBE_BIND_ADDRESS", value_name = "[HOST]:PORT", default_value = ":8081", value_parser = optional_address)]
    pub health_probe_bind_address: OptionalAddress,

    /// Run the reconcile loop in one replica at a time, elected by a Lease.
    #[arg(long, env = "POD_RELOADER_LEADER_ELECT", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub leader_elect: bool,

    /// Namespace of that Lease [default: the operator's own].
    #[arg(long, env = "POD_RELOADER_LEADER_ELECTION_NAMESPACE", value_name = "NAMESPACE", value_parser = name)]
    pub leader_election_namespace: Option<Name>,

    /// Name of that Lease. Each installation needs its own.
    #[arg(long, env = "POD_RELOADER_LEADER_ELECTION_LEASE", value_name = "NAME", default_value = "pod-reloader", value_parser = name)]
    pub leader_election_lease: Name,

    /// Namespace of the operator itself, whose workloads are never managed [default in a cluster: the namespace of the pod].
    #[arg(long, env = "POD_NAMESPACE", value_parser = name)]
    pub namespace: Option<Name>,

    /// Namespaces to manage, comma-separated [default: all].
    #[arg(long, env = "POD_RELOADER_WATCH_NAMESPACES", value_name = "NAMESPACES", default_value = "", hide_default_value = true, value_parser = namespaces)]
    pub watch_namespaces: Namespaces,

    /// Namespaces not to manage, comma-separated [default: none].
    #[arg(long, alias = "namespaces-to-ignore", env = "POD_RELOADER_IGNORE_NAMESPACES", value_name = "NAMESPACES", default_value = "", hide_default_value = true, value_parser = namespaces)]
    pub ignore_namespaces: Namespaces,

    /// Label selector for namespaces: stage=live,team in (shop,web), or a LabelSelector in JSON [default: all namespaces].
    #[arg(long, alias = "namespace-selector", env = "POD_RELOADER_WATCH_NAMESPACE_SELECTOR", value_name = "SELECTOR", value_parser = selector::parse)]
    pub watch_namespace_selector: Option<Selector>,

    /// Label selector for workloads, in the same form [default: all workloads].
    #[arg(long, env = "POD_RELOADER_WATCH_WORKLOAD_SELECTOR", value_name = "SELECTOR", value_parser = selector::parse)]
    pub watch_workload_selector: Option<Selector>,

    /// Label selector for the ConfigMaps and Secrets that can be tracked, in the same form [default: all].
    #[arg(long, env = "POD_RELOADER_RESOURCE_LABEL_SELECTOR", value_name = "SELECTOR", value_parser = selector::parse)]
    pub resource_label_selector: Option<Selector>,

    /// Kind of config object that is never tracked: configmaps or secrets [default: none].
    #[arg(long, env = "POD_RELOADER_RESOURCES_TO_IGNORE", value_name = "KIND", default_value = "", hide_default_value = true, value_parser = ignored_kind)]
    pub resources_to_ignore: IgnoredKind,

    /// Dialects (sets of annotations, mostly of other tools) to read, comma-separated.
    // The help adds their names.
    #[arg(long, help = help_of_dialects(), env = "POD_RELOADER_DIALECTS", value_name = "DIALECTS", default_value = "pod-reloader", value_parser = spoken)]
    pub dialects: Spoken,

    /// Track SecretProviderClasses of the Secrets Store CSI driver, too: restart pods once all of them have mounted other versions of secrets.
    #[arg(long, alias = "enable-csi-integration", env = "POD_RELOADER_SECRET_PROVIDER_CLASSES", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub secret_provider_classes: bool,
    /// More kinds of workload, in JSON: [{"group":"argoproj.io","resource":"rollouts","kind":"Rollout","podTemplates":["spec.template"],"restartAt":"spec.restartAt"}] [default: none].
    #[arg(long, env = "POD_RELOADER_CUSTOM_RESOURCES", value_name = "KINDS", default_value = "", hide_default_value = true, value_parser = custom_resources)]
    pub custom_resources: CustomKinds,

    /// Run a CronJob at once when its config changes, if --custom-resources names CronJobs. A suspended one stays suspended.
    #[arg(long, env = "POD_RELOADER_RUN_CRON_JOBS_ON_CHANGE", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub run_cron_jobs_on_change: bool,

    /// Time for which a pod of a StatefulSet with an earlier configuration is not ready, and keeps the current one from being rolled out, before it is deleted. 0s switches it off.
    #[arg(long, env = "POD_RELOADER_UNSTICK_AFTER", value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub unstick_after: Duration,

    /// Manage every workload as if it had the annotation auto: "true", unless it opts out.
    #[arg(long, env = "POD_RELOADER_AUTO_RELOAD_ALL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub auto_reload_all: bool,

    /// Time for which a workload's tracked objects must have been unchanged before the workload is restarted. The restart waits for at most five times that.
    #[arg(long, env = "POD_RELOADER_SETTLE_PERIOD", value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub settle_period: Duration,

    /// Time for which a restart waits for a release that is in progress, after the release was last seen to do something. The restart waits for at most twice that; 0s switches it off.
    #[arg(long, env = "POD_RELOADER_RELEASE_WAIT", value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub release_wait: Duration,

    /// Changes that restart workloads in stages, unless a workload says otherwise: all, configmaps or none.
    #[arg(long, env = "POD_RELOADER_STAGED_BY_DEFAULT", value_name = "KINDS", default_value = "none", value_parser = staged)]
    pub staged_by_default: Staged,

    /// Time for which a workload must be healthy after a staged restart before others follow.
    #[arg(long, env = "POD_RELOADER_STAGED_SOAK", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub staged_soak: Duration,

    /// Time within which a workload must become healthy after a staged restart. A Deployment has its progressDeadlineSeconds.
    #[arg(long, env = "POD_RELOADER_STAGED_DEADLINE", value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub staged_deadline: Duration,

    /// Read annotations of Namespaces, too: staged, soak, deadline, hold, restart-window and approval are for all their workloads that do not have them.
    #[arg(long, env = "POD_RELOADER_NAMESPACE_ANNOTATIONS", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub namespace_annotations: bool,

    /// Let workloads pin their ConfigMaps: each revision keeps copies of what it was rolled out with, so that an undo brings it back.
    #[arg(long, env = "POD_RELOADER_PIN", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub pin: bool,

    /// Ask pods to reload changed config, where the annotation reload-url says so, and restart them only if that does not work.
    #[arg(long, env = "POD_RELOADER_HTTP_RELOAD", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub http_reload: bool,

    /// Age from which on copies for pins are deleted that nobody uses, and interval at which they are looked for, and at which kept ConfigMaps are.
    #[arg(long, env = "POD_RELOADER_COPY_GRACE_PERIOD", value_name = "DURATION", default_value = "5m", value_parser = resync_period)]
    pub copy_grace_period: Duration,

    /// Copy ConfigMaps and Secrets to namespaces, as each ClusterConfigSync says.
    #[arg(long, env = "POD_RELOADER_SYNC", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub sync: bool,
    /// Answer reviews of protected ConfigMaps and Secrets that are deleted: those that pods use are not (/in-use), or come back (/keep).
    #[arg(long, env = "POD_RELOADER_PROTECT", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub protect: bool,
    /// Protect what the pod templates of workloads use, too, and not only what their pods do.
    #[arg(long, env = "POD_RELOADER_PROTECT_TEMPLATES", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub protect_templates: bool,
    /// Kinds of custom resource whose fields FieldBindings keep equal to keys of ConfigMaps and Secrets, in JSON: [{"group":"goharbor.io","version":"v1beta1","resource":"harbors","kind":"Harbor","fillOnCreate":true}] [default: none].
    #[arg(long, env = "POD_RELOADER_FIELD_BINDINGS_KINDS", value_name = "KINDS", default_value = "", hide_default_value = true, value_parser = field_bindings)]
    pub field_bindings_kinds: BoundKinds,
    /// Number of rollouts of managed workloads, no matter who began them, that may be in progress in the cluster when a restart begins. One namespace has only a part of it, and each can always restart one workload. 0 means no limit.
    #[arg(
        long,
        env = "POD_RELOADER_MAX_CONCURRENT_RESTARTS_CLUSTER",
        value_name = "NUMBER",
        default_value = "0"
    )]
    pub max_concurrent_restarts_cluster: usize,

    /// Number of such rollouts that may be in progress in one namespace, which is also its part of the number for the cluster. 0 means half of that, or no limit.
    #[arg(
        long,
        env = "POD_RELOADER_MAX_CONCURRENT_RESTARTS_NAMESPACE",
        value_name = "NUMBER",
        default_value = "0"
    )]
    pub max_concurrent_restarts_namespace: usize,

    /// Namespaces of Flux's Kustomizations that restarts wait for as for Helm releases, comma-separated, or * for all [default: none].
    #[arg(long, env = "POD_RELOADER_FLUX_NAMESPACES", value_name = "NAMESPACES", default_value = "", hide_default_value = true, value_parser = places)]
    pub flux_namespaces: PlacesOfReleases,

    /// Namespaces of Argo CD's Applications that restarts wait for as for Helm releases, comma-separated: first the one in which Argo CD itself is. * stands for all, with Argo CD in argocd [default: none].
    #[arg(long, env = "POD_RELOADER_ARGO_CD_NAMESPACES", value_name = "NAMESPACES", default_value = "", hide_default_value = true, value_parser = places)]
    pub argo_cd_namespaces: PlacesOfReleases,

    /// Interval at which everything is listed and compared again, whatever the watches report.
    #[arg(long, env = "POD_RELOADER_RESYNC_PERIOD", value_name = "DURATION", default_value = "10m", value_parser = resync_period)]
    pub resync_period: Duration,

    /// Number of restarts of one workload within ten minutes after which the next restart has to wait, a minute at first and then longer each time. 0 means no limit.
    #[arg(
        long,
        env = "POD_RELOADER_MAX_RESTARTS",
        value_name = "NUMBER",
        default_value = "5"
    )]
    pub max_restarts: usize,

    /// Memory that the workloads of one namespace may take in the leader, which runs the reconcile loop. Those that do not fit are not managed.
    #[arg(long, env = "POD_RELOADER_NAMESPACE_MEMORY", value_name = "QUANTITY", default_value = "32Mi", value_parser = memory)]
    pub namespace_memory: usize,

    /// Mode of the reconcile loop: restart workloads, only report which it would restart, or do nothing.
    #[arg(long, env = "POD_RELOADER_RECONCILE", default_value = "restart")]
    pub reconcile: Reconcile,

    /// Controllers to run of those that are switched on, comma-separated: restart, keep (ConfigMaps that come back), sync (copies), bind (fields). * stands for all, -NAME for all but this one.
    #[arg(long, env = "POD_RELOADER_CONTROLLERS", value_name = "NAMES", default_value = "*", allow_hyphen_values = true, value_parser = controllers)]
    pub controllers: Controllers,

    /// Treatment of a workload that has just opted in: a rollout, or a baseline (a record of the current content) and no rollout.
    #[arg(long, env = "POD_RELOADER_FIRST_STAMP", default_value = "rollout")]
    pub first_stamp: FirstStampArg,

    /// Name of the Secret with the hash keys, in the operator's own namespace.
    #[arg(long, env = "POD_RELOADER_HASH_KEYS_SECRET", value_name = "NAME", default_value = "pod-reloader-hash-keys", value_parser = name)]
    pub hash_keys_secret: Name,

    /// File with the URL that notifications are sent to, reread for each of them [default: none are sent].
    #[arg(long, env = "POD_RELOADER_NOTIFICATIONS_URL_FILE", value_name = "PATH")]
    pub notifications_url_file: Option<PathBuf>,

    /// Format of notifications, named after the receiver.
    #[arg(
        long,
        env = "POD_RELOADER_NOTIFICATIONS_FORMAT",
        value_name = "FORMAT",
        default_value = "webhook"
    )]
    pub notifications_format: NotifyFormat,

    /// Notifications to send: restarts (including those that --reconcile=observe only reports), problems (restarts that wait or fail), or all.
    #[arg(
        long,
        env = "POD_RELOADER_NOTIFICATIONS_SEND",
        value_name = "WHAT",
        default_value = "restarts"
    )]
    pub notifications_send: NotifyOn,

    /// Name of this cluster in notifications [default: none].
    #[arg(long, env = "POD_RELOADER_NOTIFICATIONS_CLUSTER", value_name = "NAME")]
    pub notifications_cluster: Option<String>,

    /// PEM bundle of CAs to trust for the receiver of notifications, instead of the public ones.
    #[arg(long, env = "POD_RELOADER_NOTIFICATIONS_CA_FILE", value_name = "PATH")]
    pub notifications_ca_file: Option<PathBuf>,

    /// HTTP proxy for notifications, such as http://proxy:3128, which must allow tunnels [default: none].
    #[arg(long, env = "POD_RELOADER_NOTIFICATIONS_PROXY", value_name = "URL", value_parser = proxy)]
    pub notifications_proxy: Option<Uri>,

    /// Time for which this process continues to serve after SIGTERM, because calls may still be sent to it.
    #[arg(long, env = "POD_RELOADER_DRAIN_PERIOD", value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub drain_period: Duration,

    /// Format of the log.
    #[arg(
        long,
        env = "POD_RELOADER_LOG_FORMAT",
        default_value = "text",
        ignore_case = true
    )]
    pub log_format: LogFormat,

    /// Level of the log: error, warn, info, debug or trace.
    #[arg(long, env = "POD_RELOADER_LOG_LEVEL", default_value = "info", value_parser = log_level)]
    pub log_level: tracing::Level,
}

impl Args {
    /// Returns the arguments and environment of the process. Exits with a message if they are invalid.
    pub fn of_process() -> Self {
        let matches = command(|variable| env::var_os(variable)).try_get_matches();
        let args = matches.and_then(|mut matches| Self::from_arg_matches_mut(&mut matches));
        args.unwrap_or_else(|error| stakater::with_tip(error).exit())
    }

    /// Returns the settings of an operator whose container has these arguments and variables.
    ///
    /// # Errors
    ///
    /// Returns an error if the arguments belong to another version.
    pub fn of_container<'a>(
        arguments: impl IntoIterator<Item = &'a str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let mut all = vec![command.get_name().to_owned()];
        for flag in command.get_arguments() {
            let value = flag.get_env().and_then(OsStr::to_str).and_then(&variable);
            if let (Some(name), Some(value)) = (flag.get_long(), value)
                && !value.is_empty()
            {
                all.push(format!("--{name}={value}"));
            }
        }
        // After the environment: if a flag is given twice, the last one wins.
        all.extend(arguments.into_iter().map(ToOwned::to_owned));
        command = command.mut_args(|flag| flag.env(None));
        Self::from_arg_matches(&command.try_get_matches_from(all)?)
    }

    /// Returns true if a controller is switched on, whichever process runs it.
    pub fn switches_on(&self, controller: ControllerName) -> bool {
        match controller {
            ControllerName::Restart => true,
            ControllerName::Keep => self.protect,
            ControllerName::Sync => self.sync,
            ControllerName::Bind => !self.field_bindings_kinds.0.is_empty(),
        }
    }
}

/// Returns the command line, without the environment variables that are empty: a manifest often sets a
/// variable to an empty value to say none.
fn command(variable: impl Fn(&OsStr) -> Option<OsString>) -> Command {
    Args::command().mut_args(|flag| {
        let value = flag.get_env().and_then(&variable);
        if value.is_some_and(|value| value.is_empty()) {
            flag.env(None)
        } else {
            flag
        }
    })
}

#[cfg(test)]
mod tests;
