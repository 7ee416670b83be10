//! Completes commands for kubectl, which runs `kubectl_complete-pod_reloader`, which calls us.

use clap::{Arg, CommandFactory, ValueEnum, ValueHint};
use clap_complete::Shell;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;

use crate::args::{Cli, Connection, DryRunStrategy, LIST_WATCH, Output, config_kind};
use crate::cluster::Cluster;
use crate::objects;
use crate::operators::Operators;
use crate::workloads::{self, Seen};

/// Tells the shell to offer the candidates only, and no files.
const NO_FILES: &str = ":4";
/// Tells the shell to offer files, too.
const FILES: &str = ":0";

/// Returns the candidates for the last of `words`, one a line, and the directive for the shell.
pub(crate) async fn candidates(words: &[String], cluster: Option<&Cluster>) -> String {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", &[][..]),
    };
    let with_value = with_value();
    let mut plain = Vec::new();
    let mut flag = None;
    for word in before {
        match flag.take() {
            Some(_) => {}
            None if with_value.contains(word) => flag = Some(word.as_str()),
            None if word.starts_with('-') => {}
            None => plain.push(word.as_str()),
        }
    }
    let (flag, last) = match last.split_once('=').filter(|_| last.starts_with('-')) {
        Some((flag, value)) => (Some(flag), value),
        None => (flag, last),
    };
    let with_path = all_flags(|flag| flag.get_value_hint() == ValueHint::AnyPath);
    let directive = match flag.is_some_and(|flag| with_path.iter().any(|it| it == flag)) {
        true => FILES,
        false => NO_FILES,
    };
    let mut all = match (flag, &*plain, cluster) {
        (Some(flag), plain, cluster) => values(flag, command(plain, before), cluster).await,
        (None, plain, _) if last.starts_with('-') => flags(plain.first().copied()),
        (None, [], _) => commands(),
        (None, ["completion"], _) => names::<Shell>(),
        (
            None,
            [
                "explain" | "wait" | "approve" | "history" | "undo" | "migrate",
                named @ ..,
            ],
            Some(cluster),
        ) => workloads(cluster, &Typed::of(named, last)).await,
        (None, ["impact", named @ ..], Some(cluster)) => {
            config_objects(cluster, &Typed::of(named, last)).await
        }
        (None, ["hold" | "release", named @ ..], Some(cluster)) => {
            let typed = Typed::of(named, last);
            let mut all = workloads(cluster, &typed).await;
            all.extend(config_objects(cluster, &typed).await);
            all
        }
        _ => Vec::new(),
    };
    all.retain(|candidate| candidate.starts_with(last));
    all.push(directive.to_owned());
    all.join("\n") + "\n"
}

/// Returns the command as [`Output::of`] knows it, given the words without flags, and all of them.
fn command<'a>(plain: &[&'a str], words: &[String]) -> Option<&'a str> {
    let is_watch = |word: &String| ["-w", "--watch"].contains(&word.as_str());
    match plain.first().copied() {
        Some("list") if words.iter().any(is_watch) => Some(LIST_WATCH),
        command => command,
    }
}

/// The part of an object that has been typed so far.
enum Typed<'a> {
    /// The type, as a word of its own.
    Type(&'a str),
    /// The type, and the `/` after it.
    TypeAndSlash(&'a str),
    /// Part of a word that may still become type and name.
    Part,
}

impl<'a> Typed<'a> {
    fn of(named: &[&'a str], last: &'a str) -> Self {
        match (named, last.split_once('/')) {
            ([kind, ..], _) if !kind.contains('/') => Self::Type(kind),
            (_, Some((kind, _))) => Self::TypeAndSlash(kind),
            _ => Self::Part,
        }
    }

    /// Returns the type if it has been typed.
    fn kind(&self) -> Option<String> {
        match self {
            Self::Type(kind) | Self::TypeAndSlash(kind) => Some(kind.to_ascii_lowercase()),
            Self::Part => None,
        }
    }

    /// Returns the word that completes this to an object.
    fn completed(&self, usual: &str, name: &str) -> String {
        match self {
            Self::Type(_) => name.to_owned(),
            Self::TypeAndSlash(kind) => format!("{kind}/{name}"),
            Self::Part => format!("{usual}/{name}"),
        }
    }
}

async fn workloads(cluster: &Cluster, typed: &Typed<'_>) -> Vec<String> {
    let operators = Operators::find(cluster, None).await;
    let meant = typed.kind();
    let meant = meant.map(|it| workloads::kind(&operators.kinds(), &it));
    let candidate = |seen: Seen<'_>| {
        let id = &seen.workload.id;
        let is_meant = meant.is_none_or(|meant| meant == Some(id.kind));
        let usual = id.kind.as_str().to_ascii_lowercase();
        is_meant.then(|| typed.completed(&usual, &id.name))
    };
    let namespace = Some(&cluster.namespace);
    let (candidates, _) = workloads::list(cluster, &operators, namespace, None, candidate).await;
    candidates
}

async fn config_objects(cluster: &Cluster, typed: &Typed<'_>) -> Vec<String> {
    let meant = typed.kind();
    let meant = meant.map(|it| config_kind(&it));
    let mut candidates = Vec::new();
    for kind in ConfigKind::ALL {
        if meant.is_none_or(|meant| meant == Some(kind)) {
            let names = objects::names(cluster, kind, Some(&cluster.namespace), None).await;
            let usual = kind.as_str().to_ascii_lowercase();
            let names = names.unwrap_or_default().into_iter();
            candidates.extend(names.map(|it| typed.completed(&usual, it.name.as_str())));
        }
    }
    candidates
}

/// Takes the connection from the flags among `words`.
pub(crate) fn connection(mut connection: Connection, words: &[String]) -> Connection {
    let with_value = with_value();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None if with_value.contains(word) => (word.as_str(), words.next().cloned()),
            None => continue,
        };
        match flag {
            "-n" | "--namespace" => {
                connection.namespace = value.and_then(|it| Name::parse(&it).ok());
            }
            "--context" => connection.context = value,
            "--cluster" => connection.cluster = value,
            "--user" => connection.user = value,
            "-s" | "--server" => connection.server = value.and_then(|it| it.parse().ok()),
            "--as-uid" => connection.impersonate_uid = value,
            "--kubeconfig" => connection.kubeconfig = value.map(Into::into),
            "--as" => connection.impersonate = value,
            "--as-group" => connection.impersonate_groups.extend(value),
            _ => {}
        }
    }
    connection
}

/// Returns the candidates for the value of a flag.
async fn values(flag: &str, command: Option<&str>, cluster: Option<&Cluster>) -> Vec<String> {
    match (flag, cluster) {
        ("-o" | "--output", _) => {
            let formats = command.map_or(Output::value_variants(), Output::of);
            let names = formats.iter().map(|format| format.name());
            // The user writes the template.
            let begun = |name: String| name.trim_end_matches("TEMPLATE").to_owned();
            names.map(begun).collect()
        }
        ("--dry-run", _) => names::<DryRunStrategy>(),
        ("-n" | "--namespace" | "--operator-namespace", Some(cluster)) => {
            cluster.namespaces().await.unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// Returns all values of a flag or an argument.
fn names<T: ValueEnum>() -> Vec<String> {
    let values = T::value_variants().iter();
    let values = values.filter_map(ValueEnum::to_possible_value);
    values.map(|it| it.get_name().to_owned()).collect()
}

fn commands() -> Vec<String> {
    let cli = Cli::command();
    let shown = cli.get_subcommands().filter(|it| !it.is_hide_set());
    shown.map(|it| it.get_name().to_owned()).collect()
}

fn flags(command: Option<&str>) -> Vec<String> {
    let cli = Cli::command();
    let of_command = command.and_then(|name| cli.find_subcommand(name));
    let of_command = of_command.into_iter().flat_map(|it| it.get_arguments());
    let all = cli.get_arguments().chain(of_command);
    all.flat_map(forms).collect()
}

/// Returns the flags of all commands that take their value as a separate word.
fn with_value() -> Vec<String> {
    all_flags(|flag| flag.get_action().takes_values())
}

/// Returns those flags of all commands that are wanted.
fn all_flags(is_wanted: impl Fn(&Arg) -> bool) -> Vec<String> {
    let cli = Cli::command();
    let of_commands = cli.get_subcommands().flat_map(|it| it.get_arguments());
    let all = cli.get_arguments().chain(of_commands);
    all.filter(|it| is_wanted(it)).flat_map(forms).collect()
}

/// Returns the forms of a flag: `--namespace` and `-n`.
fn forms(flag: &Arg) -> impl Iterator<Item = String> {
    let short = flag.get_short().map(|it| format!("-{it}"));
    let long = flag.get_long().map(|it| format!("--{it}"));
    long.into_iter().chain(short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{Canned, deployment};
    use serde_json::json;

    #[tokio::test]
    async fn commands_and_flags_are_completed_without_a_cluster() {
        let of = |words: &'static [&str]| async {
            let words: Vec<_> = words.iter().map(|it| (*it).to_owned()).collect();
            candidates(&words, None).await
        };
        assert_eq!(of(&["e"]).await, "explain\n:4\n");
        assert_eq!(of(&["wait", "--ti"]).await, "--timeout\n:4\n");
        assert_eq!(of(&["completion", "z"]).await, "zsh\n:4\n");
        assert!(!of(&[""]).await.contains("__complete"));
        assert_eq!(of(&["-n", "shop", "gra"]).await, "graph\n:4\n");
        assert_eq!(of(&["explain", "dep"]).await, ":4\n");
        assert_eq!(of(&["hold", "--dry-run=s"]).await, "server\n:4\n");
        assert_eq!(of(&["list", "-o", "n"]).await, "name\n:4\n");
        assert_eq!(of(&["list", "--al"]).await, "--all-namespaces\n:4\n");
        for watch in [
            &["list", "-w", "-o", ""][..],
            &["list", "--watch", "-o", ""],
            &["list", "-A", "-w", "--output="],
        ] {
            assert_eq!(of(watch).await, "text\nwide\n:4\n", "{watch:?}");
        }
        assert_eq!(of(&["graph", "-o", "d"]).await, "dot\n:4\n");
        assert_eq!(of(&["graph", "--output=m"]).await, "mermaid\n:4\n");
        assert_eq!(
            of(&["explain", "-o", ""]).await,
            "text\njson\nyaml\njsonpath=\n:4\n"
        );
        assert_eq!(of(&["explain", "-o"]).await, "-o\n:4\n");
        assert_eq!(
            of(&["plan", "--k"]).await,
            "--kubeconfig\n--kustomize\n:4\n"
        );
        assert_eq!(of(&["plan", "-f", "char"]).await, ":0\n");
        assert_eq!(of(&["plan", "--kustomize=o"]).await, ":0\n");
    }

    #[tokio::test]
    async fn objects_are_completed_by_every_name_of_their_type() {
        let shop = "/apis/apps/v1/namespaces/shop";
        let app = json!({"metadata": {"name": "app", "namespace": "shop"}});
        let canned = Canned::shop()
            .with_all(&format!("{shop}/deployments"), &[deployment("web")])
            .with_all(&format!("{shop}/statefulsets"), &[deployment("wiki")])
            .with_all("/api/v1/namespaces/shop/configmaps", &[app])
            .with(
                "/api/v1/namespaces",
                json!({"items": [{"metadata": {"name": "shop"}}]}),
            );
        let cluster = canned.cluster();
        let of = |words: &'static [&str]| {
            let words = words.iter().map(|it| (*it).to_owned());
            let words = Vec::from_iter(words);
            let cluster = &cluster;
            async move { candidates(&words, Some(cluster)).await }
        };
        for (typed, completed) in [
            (&["explain", "deploy/w"][..], "deploy/web"),
            (&["explain", "Deployments.apps/w"], "Deployments.apps/web"),
            (&["explain", "stat"], "statefulset/wiki"),
            (&["explain", "deploy", "w"], "web"),
            (&["wait", "deployment/web", "sts/"], "sts/wiki"),
            (&["impact", "cm/"], "cm/app"),
            (&["approve", "deploy/"], "deploy/web"),
            (&["undo", "deploy/"], "deploy/web"),
            (&["history", "deploy/"], "deploy/web"),
            (&["hold", "deployment/web", "cm/"], "cm/app"),
            (&["release", "deploy/"], "deploy/web"),
            (&["hold", "config"], "configmap/app"),
            (&["impact", "configmap", ""], "app"),
            (&["graph", "-n", "s"], "shop"),
            (&["status", "--operator-namespace=s"], "shop"),
        ] {
            assert_eq!(of(typed).await, format!("{completed}\n:4\n"), "{typed:?}");
        }
        assert_eq!(of(&["explain", "pod/"]).await, ":4\n");
        assert_eq!(of(&["impact", "secret/"]).await, ":4\n");
    }
}
