//! What kubectl completes: it asks `kubectl_complete-pod_reloader`, which calls us.

use clap::CommandFactory;
use pod_reloader_core::reference::ConfigKind;

use crate::args::{Cli, Connection};
use crate::cluster::Cluster;
use crate::objects;
use crate::operators::Operators;
use crate::workloads::{self, Seen};

/// That nothing but the candidates is meant: no files.
const NO_FILES: &str = ":4";

/// The candidates for the last of `words`, one a line, and what the shell is to do with them.
pub(crate) async fn candidates(words: &[String], cluster: Option<&Cluster>) -> String {
    let (last, before) = match words.split_last() {
        Some((last, before)) => (last.as_str(), before),
        None => ("", &[][..]),
    };
    let mut plain = Vec::new();
    let mut before = before.iter();
    while let Some(word) = before.next() {
        if WITH_VALUE.contains(&word.as_str()) {
            before.next();
        } else if !word.starts_with('-') {
            plain.push(word);
        }
    }
    let command = plain.first();
    let mut all = match (command.map(|it| it.as_str()), cluster) {
        _ if last.starts_with('-') => flags(command.map(|it| it.as_str())),
        (None, _) => commands(),
        (Some("completion"), _) => ["bash", "elvish", "fish", "powershell", "zsh"]
            .map(str::to_owned)
            .to_vec(),
        (Some("explain" | "wait"), Some(cluster)) => {
            let operators = Operators::find(cluster, None).await;
            let namespace = Some(&cluster.namespace);
            let address = |seen: Seen<'_>| Some(seen.address());
            workloads::list(cluster, &operators, namespace, address)
                .await
                .0
        }
        (Some("impact"), Some(cluster)) => {
            let mut names = Vec::new();
            for kind in ConfigKind::ALL {
                let of_kind = objects::names(cluster, kind, Some(&cluster.namespace)).await;
                let prefix = kind.as_str().to_ascii_lowercase();
                let of_kind = of_kind.unwrap_or_default().into_iter();
                names.extend(of_kind.map(|it| format!("{prefix}/{}", it.name)));
            }
            names
        }
        _ => Vec::new(),
    };
    all.retain(|candidate| candidate.starts_with(last));
    all.push(NO_FILES.to_owned());
    all.join("\n") + "\n"
}

/// Where the cluster is to be looked at, by the flags among `words`.
pub(crate) fn connection(mut connection: Connection, words: &[String]) -> Connection {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None if WITH_VALUE.contains(&word.as_str()) => (word.as_str(), words.next().cloned()),
            None => continue,
        };
        match flag {
            "-n" | "--namespace" => connection.namespace = value,
            "--context" => connection.context = value,
            "--kubeconfig" => connection.kubeconfig = value.map(Into::into),
            _ => {}
        }
    }
    connection
}

/// The flags that a word of its own may follow.
const WITH_VALUE: [&str; 12] = [
    "-n",
    "--namespace",
    "--context",
    "--kubeconfig",
    "--as",
    "--as-group",
    "--operator-namespace",
    "-o",
    "--output",
    "--key",
    "--timeout",
    "--ask",
];

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
    all.filter_map(|flag| Some(format!("--{}", flag.get_long()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
