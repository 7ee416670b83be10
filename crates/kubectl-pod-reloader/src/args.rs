//! The command line, which is also the reference.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use jiff::SignedDuration;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;

/// Tells what restarts which pods, and why.
///
/// It looks with your own rights, and never writes: where it asks the operator something, it sends a dry
/// run. What you may not see is said.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl pod-reloader",
    bin_name = "kubectl pod-reloader",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 all is well, 1 something is not, 2 the command line is wrong, 3 it cannot be told."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,

    /// Form of the answer.
    #[arg(short, long, global = true, default_value = "text")]
    pub(crate) output: Output,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which cluster, as whom.
#[derive(Args, Debug)]
pub(crate) struct Connection {
    /// Namespace [default: that of the context].
    #[arg(short, long, global = true)]
    pub(crate) namespace: Option<String>,

    /// Context of the kubeconfig [default: the current one].
    #[arg(long, global = true)]
    pub(crate) context: Option<String>,

    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config, or the cluster it runs in].
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// User to impersonate.
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) impersonate: Option<String>,

    /// Group to impersonate; may be given again.
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub(crate) impersonate_groups: Vec<String>,

    /// Namespace of the operator [default: all; where you may not look for it in all, pod-reloader].
    #[arg(long, global = true, value_name = "NAMESPACE", value_parser = name)]
    pub(crate) operator_namespace: Option<Name>,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// Of a graph: Mermaid, which Markdown shows.
    Mermaid,
    /// Of a graph: the language of Graphviz.
    Dot,
    /// Of a graph: a page that opens offline.
    Html,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Tell what counts for a workload, whether it is up to date, and when and why it was restarted.
    Explain {
        /// Such as deployment/web, sts/db or rollout/shop.
        #[arg(value_name = "TYPE/NAME", value_parser = target)]
        workload: Target,
    },
    /// Tell which workloads a change of an object restarts, and which could not start without it.
    Impact {
        /// Such as secret/db-creds or cm/app.
        #[arg(value_name = "TYPE/NAME", value_parser = config_object)]
        object: (ConfigKind, Name),
        /// Only this key of it changes.
        #[arg(long)]
        key: Option<String>,
    },
    /// Wait until nothing is pending for workloads and their rollouts are done, such as after a release.
    Wait {
        /// Such as deployment/web.
        #[arg(value_name = "TYPE/NAME", value_parser = target, required_unless_present = "all")]
        workloads: Vec<Target>,
        /// All workloads of the namespace that are kept.
        #[arg(long, conflicts_with = "workloads")]
        all: bool,
        /// How long.
        #[arg(long, default_value = "5m", value_parser = duration)]
        timeout: Duration,
    },
    /// Tell whether the operator is well: replicas, leader, webhook, certificate, policy, workloads.
    Status {
        /// Ask about at most so many workloads whether they are up to date.
        #[arg(long, default_value = "100", value_name = "NUMBER")]
        ask: usize,
    },
    /// Draw config objects and the workloads that they restart: -o mermaid, dot, html or json.
    Graph {
        /// Of all namespaces.
        #[arg(short = 'A', long)]
        all_namespaces: bool,
    },
    /// Print a script that completes commands in a shell.
    Completion {
        /// For which.
        shell: Shell,
    },
    /// Candidates for what kubectl completes, as its plugins give them.
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete {
        /// What is there, the last of it unfinished.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// A workload as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// `deployment`, `deploy`, `rollouts.argoproj.io` and the like.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: String,
}

fn target(text: &str) -> Result<Target, String> {
    let (kind, name) = text.split_once('/').ok_or("write it like deployment/web")?;
    let is_kind = |it: &str| {
        it.bytes()
            .all(|it| it.is_ascii_alphanumeric() || b".-".contains(&it))
    };
    if kind.is_empty() || !is_kind(kind) {
        return Err("write it like deployment/web".to_owned());
    }
    Name::parse(name).map_err(|error| error.to_string())?;
    Ok(Target {
        kind: kind.to_ascii_lowercase(),
        name: name.to_owned(),
    })
}

fn config_object(text: &str) -> Result<(ConfigKind, Name), String> {
    let target = target(text).map_err(|_| "write it like secret/db-creds".to_owned())?;
    let kind = match &*target.kind {
        "cm" | "configmap" | "configmaps" => ConfigKind::ConfigMap,
        "secret" | "secrets" => ConfigKind::Secret,
        _ => return Err("only configmaps and secrets restart workloads".to_owned()),
    };
    let name = Name::parse(&target.name).map_err(|error| error.to_string())?;
    Ok((kind, name))
}

fn name(text: &str) -> Result<Name, String> {
    Name::parse(text).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|_| "write it like 90s or 5m")?;
    Duration::try_from(duration).map_err(|_| "it must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_target_is_a_type_and_a_name() {
        let deployment = Target {
            kind: "deploy".to_owned(),
            name: "web".to_owned(),
        };
        assert_eq!(target("Deploy/web"), Ok(deployment));
        for wrong in [
            "web",
            "/web",
            "deploy/",
            "deploy/a/b",
            "deploy/../x",
            "de?ploy/web",
        ] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_config_objects_have_an_impact() {
        let secret = (ConfigKind::Secret, Name::parse("a").unwrap());
        assert_eq!(config_object("secrets/a"), Ok(secret));
        assert!(config_object("pod/a").is_err());
    }
}
