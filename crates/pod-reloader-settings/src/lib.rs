//! The command line, which is also the reference of every setting.

mod choices;
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
use pod_reloader_core::dialects::Dialects;
use pod_reloader_core::name::Name;
use pod_reloader_core::scope::{Labels, Scope};
use pod_reloader_core::selector;

pub use self::choices::{FirstStampArg, LogFormat, NotifyFormat, NotifyOn, Reconcile, TlsVersion};
pub use self::values::{CustomKinds, IgnoredKind, Namespaces, OptionalAddress, Spoken};
use self::values::{
    address, custom_resources, duration, ignored_kind, log_level, memory, name, namespaces,
    optional_address, proxy, resync_period, spoken,
};

/// Restarts pods when the ConfigMaps and Secrets that they read change.
///
/// Talks to the cluster that KUBECONFIG names, or else to the one it runs in. Every flag can also be
/// given as the environment variable that is named with it, where an empty one counts as not set; of a
/// flag that is given twice, the last counts.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "pod-reloader",
    version,
    disable_help_flag = true,
    args_override_self = true
)]
pub struct Args {
    /// Print this.
    #[arg(short, long, action = ArgAction::HelpShort)]
    help: Option<bool>,

    /// Address of the webhook (HTTPS, at /mutate).
    #[arg(long, env = "POD_RELOADER_WEBHOOK_BIND_ADDRESS", value_name = "[HOST]:PORT", default_value = ":9443", value_parser = address)]
    pub webhook_bind_address: SocketAddr,

    /// Directory of the webhook's tls.crt and tls.key, reread when it changes; without it, or the Secret below, no webhook is served.
    #[arg(long, env = "POD_RELOADER_WEBHOOK_TLS_DIRECTORY", value_name = "PATH")]
    pub webhook_tls_directory: Option<PathBuf>,

    /// Secret, in the operator's own namespace, where it keeps a CA and a certificate of its own making.
    #[arg(long, env = "POD_RELOADER_WEBHOOK_TLS_SECRET", value_name = "NAME", conflicts_with = "webhook_tls_directory", value_parser = name)]
    pub webhook_tls_secret: Option<Name>,

    /// Service of the webhook, in the operator's own namespace: the name that such a certificate is for.
    #[arg(long, env = "POD_RELOADER_WEBHOOK_SERVICE", value_name = "NAME", default_value = "pod-reloader", value_parser = name)]
    pub webhook_service: Name,

    /// MutatingWebhookConfiguration that is told to trust such a CA, in its caBundle.
    #[arg(long, env = "POD_RELOADER_WEBHOOK_CONFIGURATION", value_name = "NAME", default_value = "pod-reloader", value_parser = name)]
    pub webhook_configuration: Name,

    /// Bundle of CAs, in PEM, reread when it changes: only clients with a certificate of one of them may call the webhook [default: all].
    #[arg(long, env = "POD_RELOADER_WEBHOOK_CLIENT_CA_FILE", value_name = "PATH")]
    pub webhook_client_ca_file: Option<PathBuf>,

    /// Oldest version of TLS that the webhook speaks.
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

    /// Address of the probes (HTTP, at /healthz and /readyz); 0 switches them off.
    #[arg(long, env = "POD_RELOADER_HEALTH_PROBE_BIND_ADDRESS", value_name = "[HOST]:PORT", default_value = ":8081", value_parser = optional_address)]
    pub health_probe_bind_address: OptionalAddress,

    /// Reconcile in one replica at a time, elected by a Lease.
    #[arg(long, env = "POD_RELOADER_LEADER_ELECT", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub leader_elect: bool,

    /// Namespace of that Lease [default: the operator's own].
    #[arg(long, env = "POD_RELOADER_LEADER_ELECTION_NAMESPACE", value_name = "NAMESPACE", value_parser = name)]
    pub leader_election_namespace: Option<Name>,

    /// Name of that Lease: one for each installation.
    #[arg(long, env = "POD_RELOADER_LEADER_ELECTION_LEASE", value_name = "NAME", default_value = "pod-reloader", value_parser = name)]
    pub leader_election_lease: Name,

    /// Namespace of the operator itself, never kept [default in a cluster: that of the pod].
    #[arg(long, env = "POD_NAMESPACE", value_parser = name)]
    pub namespace: Option<Name>,

    /// Namespaces to keep, comma-separated [default: all].
    #[arg(long, env = "POD_RELOADER_NAMESPACES", default_value = "", hide_default_value = true, value_parser = namespaces)]
    pub namespaces: Namespaces,

    /// Namespaces not to keep, comma-separated [default: none].
    #[arg(long, env = "POD_RELOADER_NAMESPACES_TO_IGNORE", value_name = "NAMESPACES", default_value = "", hide_default_value = true, value_parser = namespaces)]
    pub namespaces_to_ignore: Namespaces,

    /// Labels of the namespaces to keep: stage=live,team in (shop,web), or a LabelSelector in JSON [default: any].
    #[arg(long, env = "POD_RELOADER_NAMESPACE_SELECTOR", value_name = "SELECTOR", value_parser = selector::parse)]
    pub namespace_selector: Option<Selector>,

    /// Labels of the workloads to keep, likewise [default: any].
    #[arg(long, env = "POD_RELOADER_WORKLOAD_SELECTOR", value_name = "SELECTOR", value_parser = selector::parse)]
    pub workload_selector: Option<Selector>,

    /// Labels of the ConfigMaps and Secrets that count, likewise [default: any].
    #[arg(long, env = "POD_RELOADER_RESOURCE_LABEL_SELECTOR", value_name = "SELECTOR", value_parser = selector::parse)]
    pub resource_label_selector: Option<Selector>,

    /// Kind of config object that never counts: configmaps or secrets [default: none].
    #[arg(long, env = "POD_RELOADER_RESOURCES_TO_IGNORE", value_name = "KIND", default_value = "", hide_default_value = true, value_parser = ignored_kind)]
    pub resources_to_ignore: IgnoredKind,

    /// Whose annotations are understood, comma-separated: pod-reloader, stakater, wave, stackable, trigger-controller, fabric8.
    #[arg(long, env = "POD_RELOADER_DIALECTS", value_name = "DIALECTS", default_value = "pod-reloader", value_parser = spoken)]
    pub dialects: Spoken,

    /// Further kinds of workload, in JSON: [{"group":"argoproj.io","resource":"rollouts","kind":"Rollout","podTemplates":["spec.template"],"restartAt":"spec.restartAt"}] [default: none].
    #[arg(long, env = "POD_RELOADER_CUSTOM_RESOURCES", value_name = "KINDS", default_value = "", hide_default_value = true, value_parser = custom_resources)]
    pub custom_resources: CustomKinds,

    /// Run a CronJob at once when its config changes, where --custom-resources names CronJobs; one that is suspended stays so.
    #[arg(long, env = "POD_RELOADER_RUN_CRONJOBS_ON_CHANGE", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub run_cronjobs_on_change: bool,

    /// Keep every workload that does not opt out, as if it had auto: "true".
    #[arg(long, alias = "auto-reload-all", env = "POD_RELOADER_AUTO_ALL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    pub auto_all: bool,

    /// How long the objects of a workload must be quiet before it is restarted; at most five times as long in all.
    #[arg(long, env = "POD_RELOADER_SETTLE_PERIOD", value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub settle_period: Duration,

    /// How often everything is listed and compared again, whatever the watches say.
    #[arg(long, env = "POD_RELOADER_RESYNC_PERIOD", value_name = "DURATION", default_value = "10m", value_parser = resync_period)]
    pub resync_period: Duration,

    /// How often one workload is restarted in ten minutes before the next restart waits, a minute at first and longer each time; 0 for no limit.
    #[arg(
        long,
        env = "POD_RELOADER_MAX_RESTARTS",
        value_name = "NUMBER",
        default_value = "5"
    )]
    pub max_restarts: usize,

    /// How much memory the workloads of one namespace may take, as long as the operator manages them; those that do not fit are left out.
    #[arg(long, env = "POD_RELOADER_NAMESPACE_MEMORY", value_name = "QUANTITY", default_value = "32Mi", value_parser = memory)]
    pub namespace_memory: usize,

    /// What the reconcile loop does: restart workloads, only say which it would restart, or nothing at all.
    #[arg(long, env = "POD_RELOADER_RECONCILE", default_value = "on")]
    pub reconcile: Reconcile,

    /// What a workload gets that has just subscribed: a rollout, or a baseline without one.
    #[arg(long, env = "POD_RELOADER_FIRST_STAMP", default_value = "rollout")]
    pub first_stamp: FirstStampArg,

    /// Name of the Secret with the keys of the config hash, in the operator's own namespace.
    #[arg(long, env = "POD_RELOADER_HASH_KEYS_SECRET", value_name = "NAME", default_value = "pod-reloader-hash-keys", value_parser = name)]
    pub hash_keys_secret: Name,

    /// File with the URL to send notifications to, read again for each of them [default: none are sent].
    #[arg(long, env = "POD_RELOADER_NOTIFY_URL_FILE", value_name = "PATH")]
    pub notify_url_file: Option<PathBuf>,

    /// What the receiver of notifications understands.
    #[arg(
        long,
        env = "POD_RELOADER_NOTIFY_FORMAT",
        value_name = "FORMAT",
        default_value = "webhook"
    )]
    pub notify_format: NotifyFormat,

    /// What is notified of: restarts (also those that --reconcile=observe only tells of), problems (what waits, or cannot be written), or all.
    #[arg(
        long,
        env = "POD_RELOADER_NOTIFY_ON",
        value_name = "WHAT",
        default_value = "restarts"
    )]
    pub notify_on: NotifyOn,

    /// What notifications call this cluster [default: they do not name it].
    #[arg(long, env = "POD_RELOADER_NOTIFY_CLUSTER", value_name = "NAME")]
    pub notify_cluster: Option<String>,

    /// Bundle of CAs, in PEM, that the receiver of notifications is trusted by, in place of the public ones.
    #[arg(long, env = "POD_RELOADER_NOTIFY_CA_FILE", value_name = "PATH")]
    pub notify_ca_file: Option<PathBuf>,

    /// HTTP proxy on the way there, such as http://proxy:3128, which is asked for a tunnel [default: none].
    #[arg(long, env = "POD_RELOADER_NOTIFY_PROXY", value_name = "URL", value_parser = proxy)]
    pub notify_proxy: Option<Uri>,

    /// How long to go on serving after SIGTERM, until nobody sends calls here any more.
    #[arg(long, env = "POD_RELOADER_DRAIN_PERIOD", value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub drain_period: Duration,

    /// Form of the log.
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
    /// The arguments and environment of the process; ends it with a message if they are wrong.
    pub fn of_process() -> Self {
        let matches = command(|variable| env::var_os(variable)).try_get_matches();
        let args = matches.and_then(|mut matches| Self::from_arg_matches_mut(&mut matches));
        args.unwrap_or_else(|error| stakater::with_tip(error).exit())
    }

    /// Returns the settings of an operator whose container has these arguments and variables.
    ///
    /// # Errors
    /// The arguments are those of another version.
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
        // After what the environment says: of two, the last counts.
        all.extend(arguments.into_iter().map(ToOwned::to_owned));
        command = command.mut_args(|flag| flag.env(None));
        Self::from_arg_matches(&command.try_get_matches_from(all)?)
    }

    /// What is kept by an operator in the namespace `own`, and what is read of it.
    pub fn scope(&self, own: Name) -> Scope {
        let labels = Labels {
            namespace: self.namespace_selector.clone(),
            workload: self.workload_selector.clone(),
            config: self.resource_label_selector.clone(),
        };
        let dialects = Dialects {
            spoken: self.dialects.0.clone(),
            auto_all: self.auto_all,
            ignored: self.resources_to_ignore.0,
        };
        Scope::new(self.namespaces.0.iter().cloned(), own)
            .without(self.namespaces_to_ignore.0.iter().cloned())
            .and_kinds(self.custom_resources.0.clone())
            .with(labels, dialects)
    }
}

/// The command line, blind to those environment variables that are empty: a manifest often sets a
/// variable to an empty value where it means none.
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
