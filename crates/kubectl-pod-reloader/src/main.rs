//! `kubectl pod-reloader`: shows what restarts which pods, and why. It writes only when a user holds, releases,
//! approves or undoes.

// Others write what comes from the cluster, so `print` strips everything that a terminal would obey.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod approve;
mod args;
mod bindings;
mod cluster;
mod complete;
mod due;
mod events;
mod explain;
mod gates;
mod graph;
mod history;
mod hold;
#[cfg(test)]
mod hostile;
mod impact;
mod jsonpath;
mod list;
mod migrate;
mod objects;
mod operators;
mod picture;
mod plan;
mod print;
mod protection;
mod ready;
mod revisions;
mod rollout;
mod selection;
mod status;
mod steps;
mod syncs;
mod times;
mod undo;
mod version;
mod wait;
mod workloads;

use std::io;
use std::process::ExitCode;
use std::time::Instant;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;

use crate::args::{Chosen, Cli, Command, Format, Migrated, Output, Sources, Target, Words};
use crate::cluster::{Cluster, NoCluster, Unseen, Writes};
use crate::history::Compare;
use crate::list::Watch;
use crate::operators::Operators;
use crate::plan::Unreadable;
use crate::print::Answer;

/// The reason for having no answer.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    NoCluster(#[from] NoCluster),
    #[error(transparent)]
    Unseen(#[from] Unseen),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("printing: {0}")]
    Print(#[from] io::Error),
}

impl Failure {
    /// Returns the failure as kubectl words it, if kubectl has words for it.
    fn words(&self) -> String {
        let words = match self {
            Self::Unseen(error) => error.as_kubectl(),
            _ => None,
        };
        words.unwrap_or_else(|| format!("error: {self}"))
    }
}

fn main() -> ExitCode {
    let cli = parsed();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(run(cli)))
    {
        Ok(code) => code,
        Err(failure) => {
            print::note(&failure.words());
            ExitCode::from(match failure {
                Failure::Unseen(error) if error.is_absent() => 1,
                Failure::Unreadable(_) => 1,
                _ => 3,
            })
        }
    }
}

/// Parses the command line. Exits if it is invalid.
fn parsed() -> Cli {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches)
        .unwrap_or_else(|error| error.format(&mut Cli::command()).exit());
    let command = cli.command.own_name().or(matches.subcommand_name());
    if let Err(message) = cli.format.output.is_of(command.unwrap_or_default()) {
        Cli::command()
            .error(ErrorKind::InvalidValue, message)
            .exit();
    }
    cli
}

async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Completion { shell } => {
            let (mut command, name) = (Cli::command(), "kubectl-pod_reloader");
            clap_complete::generate(shell, &mut command, name, &mut io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Version { client: true } => printed(version::client(), &cli.format),
        Command::Migrate {
            source: Words(Migrated::Manifests(sources)),
        } => {
            let namespace = cli.connection.namespace.as_ref();
            printed(migrate::of_manifests(&sources, namespace)?, &cli.format)
        }
        Command::Complete { words } => {
            let connection = complete::connection(cli.connection, &words);
            let cluster = Cluster::connect(&connection).await.ok();
            print::plain(&complete::candidates(&words, cluster.as_ref()).await)?;
            Ok(ExitCode::SUCCESS)
        }
        command => {
            let mut cluster = Cluster::connect(&cli.connection).await?;
            if command.is_dry_run() {
                cluster.writes = Writes::DryRun;
            }
            let namespace = cli.connection.operator_namespace.as_ref();
            let operators = Operators::find(&cluster, namespace).await;
            let session = Session {
                cluster: &cluster,
                operators: &operators,
                format: &cli.format,
            };
            session.answer(command).await
        }
    }
}

/// The cluster that is asked, and how answers are printed.
#[derive(Clone, Copy)]
struct Session<'a> {
    cluster: &'a Cluster,
    operators: &'a Operators,
    format: &'a Format,
}

impl Session<'_> {
    /// Answers a question about the cluster.
    async fn answer(self, command: Command) -> Result<ExitCode, Failure> {
        let Self {
            cluster, operators, ..
        } = self;
        match command {
            Command::Explain { workload } => self.explain(&workload.0).await,
            Command::Impact { object, key } => self.impact(&object.0, key.as_deref()).await,
            Command::Wait {
                workloads, timeout, ..
            } => self.print(wait::wait(cluster, operators, &workloads.0.0, timeout).await),
            Command::Hold { objects, .. } => self.set_hold(&objects.0.0, true).await,
            Command::Release { objects, .. } => self.set_hold(&objects.0.0, false).await,
            Command::Approve {
                workloads, content, ..
            } => self.approve(&workloads.0.0, content.as_deref()).await,
            Command::History {
                workload,
                diff,
                values,
            } => self.history(&workload.0, Compare::of(diff, values)).await,
            Command::Undo {
                workload,
                to_revision,
                ..
            } => self.print(undo::undo(cluster, operators, &workload.0, to_revision).await?),
            Command::Plan {
                sources,
                field_manager,
            } => self.plan(&sources, field_manager.as_deref()).await,
            Command::List {
                all_namespaces,
                selector,
                live,
                watch,
            } => {
                let query = list::Query {
                    namespace: (!all_namespaces).then_some(&cluster.namespace),
                    selector: selector.as_deref(),
                    live,
                    reads_events: self.format.output != Output::Name,
                };
                match watch {
                    true => self.watch(query).await,
                    false => self.print(list::list(cluster, operators, query).await?),
                }
            }
            Command::Status { ask } => self.print(status::status(cluster, operators, ask).await?),
            Command::Version { .. } => self.print(version::versions(operators)),
            Command::Graph { all_namespaces } => {
                let namespace = (!all_namespaces).then_some(&cluster.namespace);
                self.draw(namespace).await
            }
            Command::Migrate {
                source: Words(Migrated::Workloads(chosen)),
            } => self.print(migrate::of_cluster(cluster, operators, &chosen).await?),
            Command::Completion { .. } | Command::Complete { .. } | Command::Migrate { .. } => {
                unreachable!("done by `run`")
            }
        }
    }

    /// Explains a workload, or the bound fields of a custom resource.
    async fn explain(self, target: &Target) -> Result<ExitCode, Failure> {
        let (cluster, operators) = (self.cluster, self.operators);
        match bindings::bound_kind(operators, &target.kind) {
            Some(kind) => self.print(explain::bound_fields(cluster, kind, &target.name).await?),
            None => self.print(explain::explain(cluster, operators, target).await?),
        }
    }

    /// Shows the effect of a change of an object.
    async fn impact(
        self,
        object: &(ConfigKind, Name),
        key: Option<&str>,
    ) -> Result<ExitCode, Failure> {
        self.print(impact::impact(self.cluster, self.operators, object, key).await?)
    }

    /// Holds objects, or ends their hold.
    async fn set_hold(self, chosen: &Chosen, hold: bool) -> Result<ExitCode, Failure> {
        let (cluster, operators) = (self.cluster, self.operators);
        let (targets, known) = selection::targets(cluster, operators, chosen).await?;
        let (held, verdict) = hold::each(cluster, operators, chosen, &targets, hold).await;
        self.print((held, verdict.max(known)))
    }

    /// Approves the content that workloads wait with.
    async fn approve(self, chosen: &Chosen, content: Option<&str>) -> Result<ExitCode, Failure> {
        let (cluster, operators) = (self.cluster, self.operators);
        if let Chosen::Named(targets) = chosen
            && let [target] = &**targets
        {
            return self.print(approve::approve(cluster, operators, target, content).await?);
        }
        let (targets, known) = selection::targets(cluster, operators, chosen).await?;
        let (approvals, verdict) =
            approve::approve_each(cluster, operators, chosen, &targets, content).await;
        self.print((approvals, verdict.max(known)))
    }

    /// Lists the revisions of a workload.
    async fn history(self, target: &Target, compare: Compare) -> Result<ExitCode, Failure> {
        self.print(history::history(self.cluster, self.operators, target, compare).await?)
    }

    /// Shows what manifests would restart.
    async fn plan(self, sources: &Sources, manager: Option<&str>) -> Result<ExitCode, Failure> {
        self.print(plan::plan(self.cluster, self.operators, sources, manager).await?)
    }

    /// Lists workloads, and then those that change. Ends at the next line that nobody reads.
    async fn watch(self, query: list::Query<'_>) -> Result<ExitCode, Failure> {
        let mut watch = Watch::new(self.format.output == Output::Wide);
        let mut found = None;
        loop {
            let operators = found.as_ref().unwrap_or(self.operators);
            let began = Instant::now();
            let round = list::read(self.cluster, operators, query).await?;
            let took = began.elapsed();
            for note in watch.notes(&round) {
                print::note(&note);
            }
            if print::lines(&watch.lines(&round))?.is_break() {
                return Ok(round.verdict.into());
            }
            tokio::time::sleep(round.pause(took)).await;
            let again = operators.search_again(self.cluster).await;
            found = again.or(found);
        }
    }

    /// Draws a namespace, or all.
    async fn draw(self, namespace: Option<&Name>) -> Result<ExitCode, Failure> {
        let (graph, notes, verdict) = graph::draw(self.cluster, self.operators, namespace).await?;
        for note in &notes {
            print::note(note);
        }
        if let Some(template) = &self.format.template {
            print::plain(&print::filled(template, &graph))?;
            return Ok(verdict.into());
        }
        print::plain(&match self.format.output {
            Output::Json => print::json(&graph),
            Output::Yaml => print::yaml(&graph),
            Output::Dot => picture::dot(&graph),
            Output::Html => picture::html(&graph, &graph::title(namespace)),
            Output::Text | Output::Mermaid | Output::Wide | Output::Name | Output::JsonPath => {
                picture::mermaid(&graph)
            }
        })?;
        Ok(verdict.into())
    }

    fn print(self, answer: (impl Answer, impl Into<ExitCode>)) -> Result<ExitCode, Failure> {
        printed(answer, self.format)
    }
}

/// Prints an answer.
fn printed(
    (answer, outcome): (impl Answer, impl Into<ExitCode>),
    format: &Format,
) -> Result<ExitCode, Failure> {
    print::answer(&answer, format)?;
    Ok(outcome.into())
}
