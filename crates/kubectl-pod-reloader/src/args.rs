//! The command line, which is also the reference.

mod chosen;
mod format;
mod migrated;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use http::Uri;
use jiff::SignedDuration;
use pod_reloader_core::gate;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;

pub(crate) use self::chosen::{Chosen, ChosenObjects, ChosenWorkloads};
use self::format::FormatParser;
pub(crate) use self::format::{Format, Output};
pub(crate) use self::migrated::Migrated;
pub(crate) use self::words::{Target, Words, config_kind};

/// Explains what restarts which pods, and why.
///
/// The plugin uses your own rights, and says what you are not allowed to see. To ask the operator something,
/// it sends a dry run. Only hold, release, approve and undo write: one annotation of the objects that you name.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl pod-reloader",
    bin_name = "kubectl pod-reloader",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 all is well, 1 something is wrong, 2 the command line is invalid, 3 the answer is unknown. Of plan: 0 nothing restarts, 10 something restarts, 11 something waits."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,

    /// Output format; each command has some of them.
    #[arg(short = 'o', long = "output", global = true, default_value = "text", value_parser = FormatParser)]
    pub(crate) format: Format,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The cluster, and the user to act as.
#[derive(Args, Debug)]
pub(crate) struct Connection {
    /// Namespace [default: the namespace of the context].
    #[arg(short, long, global = true, value_parser = name)]
    pub(crate) namespace: Option<Name>,

    /// Context of the kubeconfig [default: the current one].
    #[arg(long, global = true)]
    pub(crate) context: Option<String>,

    /// Cluster of the kubeconfig [default: the cluster of the context].
    #[arg(long, global = true)]
    pub(crate) cluster: Option<String>,

    /// User of the kubeconfig [default: the user of the context].
    #[arg(long, global = true)]
    pub(crate) user: Option<String>,

    /// URL of the apiserver [default: the URL of the cluster].
    #[arg(short, long, global = true, value_name = "URL", value_parser = server)]
    pub(crate) server: Option<Uri>,

    /// Maximum time of one request, such as 90s or 5m; 0 waits without an end.
    #[arg(long, global = true, default_value = "15s", value_name = "TIME", value_parser = request_timeout)]
    pub(crate) request_timeout: Duration,

    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config, or the cluster it runs in].
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// User to impersonate.
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) impersonate: Option<String>,

    /// Group to impersonate; can be given more than once.
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub(crate) impersonate_groups: Vec<String>,

    /// UID to impersonate.
    #[arg(long = "as-uid", global = true, value_name = "UID")]
    pub(crate) impersonate_uid: Option<String>,

    /// Namespace of the operator [default: searches all, or pod-reloader if you are not allowed to].
    #[arg(long, global = true, value_name = "NAMESPACE", value_parser = name)]
    pub(crate) operator_namespace: Option<Name>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Explain what a workload tracks, whether its pods run the current configuration, and when and why they were restarted.
    ///
    /// For a custom resource with bound fields, it shows which field comes from which key.
    Explain {
        #[command(flatten)]
        workload: Words<Target>,
    },
    /// Show which workloads a change of a ConfigMap or Secret restarts, which cannot start without it, and what protects it.
    Impact {
        #[command(flatten)]
        object: Words<(ConfigKind, Name)>,
        /// The key that changes [default: any].
        #[arg(long)]
        key: Option<String>,
    },
    /// Show which workloads are restarted if manifests are applied, and why. Nothing is applied.
    ///
    /// The apiserver tries each manifest by a dry run. The exit code is 10 if something restarts, and 11 if something waits.
    Plan {
        #[command(flatten)]
        sources: Sources,
        /// Field manager that applies the manifests [default: the one that applied each object before].
        #[arg(long, value_name = "NAME")]
        field_manager: Option<String>,
    },
    /// Wait until no restart of workloads is pending, and their rollouts are done.
    ///
    /// The exit code is 1 if that takes longer than --timeout.
    Wait {
        #[command(flatten)]
        workloads: Words<ChosenWorkloads>,
        /// Maximum time to wait, such as 90s or 5m.
        #[arg(long, default_value = "5m", value_parser = duration)]
        timeout: Duration,
    },
    /// Keep workloads from being restarted until release ends the hold.
    ///
    /// The hold of a ConfigMap or Secret applies to all workloads that track it.
    Hold {
        #[command(flatten)]
        objects: Words<ChosenObjects>,
        #[command(flatten)]
        writing: Writing,
    },
    /// End the hold of workloads, ConfigMaps and Secrets. Restarts that waited for it begin.
    Release {
        #[command(flatten)]
        objects: Words<ChosenObjects>,
        #[command(flatten)]
        writing: Writing,
    },
    /// Approve the content with which workloads wait to be restarted.
    Approve {
        #[command(flatten)]
        workloads: Words<ChosenWorkloads>,
        /// Approve only this content: the eight digits that explain and the Event show.
        #[arg(long, value_name = "DIGITS", value_parser = digits)]
        content: Option<String>,
        #[command(flatten)]
        writing: Writing,
    },
    /// List the revisions of a workload, and what changed in its ConfigMaps from one to the next.
    History {
        #[command(flatten)]
        workload: Words<Target>,
        /// Compare the ConfigMaps that the workload pins, key by key.
        #[arg(long)]
        diff: bool,
        /// Show the values, too.
        #[arg(long, requires = "diff")]
        values: bool,
    },
    /// Restart a workload that pins its ConfigMaps with the ConfigMaps of an earlier revision.
    ///
    /// The image and all other fields stay as they are.
    Undo {
        #[command(flatten)]
        workload: Words<Target>,
        /// The revision [default: the latest one with different ConfigMaps].
        #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i64).range(1..))]
        to_revision: Option<i64>,
        #[command(flatten)]
        writing: Writing,
    },
    /// List the managed workloads: status, last restart, and what they wait for.
    ///
    /// The status is what the operator has reported in Events. Only workloads and Events are read, page by page, so list works for users who can only read, and while the operator is down.
    List {
        /// List the workloads of all namespaces.
        #[arg(short = 'A', long)]
        all_namespaces: bool,
        /// Selector of labels, for example app=web,tier!=db.
        #[arg(short = 'l', long, value_name = "SELECTOR")]
        selector: Option<String>,
        /// Ask the operator whether each workload is up to date: one dry run each, which needs the right to patch.
        #[arg(long)]
        live: bool,
        /// After the list, print each workload that changes, until Ctrl-C. Output formats: text and wide.
        #[arg(short, long, conflicts_with = "live")]
        watch: bool,
    },
    /// Print patches that replace the annotations of other controllers with pod-reloader's.
    ///
    /// Each patch is a YAML document with metadata alone, to be committed to Git or applied. It keeps what the workload tracks. What cannot be translated is printed as a comment, with the reason. Nothing is written to the cluster, and manifests are read without a cluster.
    Migrate {
        #[command(flatten)]
        source: Words<Migrated>,
    },
    /// Check whether the operator works: replicas, leader, webhook, certificate, policy, workloads, copies.
    Status {
        /// Maximum number of workloads to ask the operator about.
        #[arg(long, default_value = "100", value_name = "NUMBER")]
        ask: usize,
    },
    /// Draw which ConfigMaps and Secrets restart which workloads: -o mermaid, dot or html.
    Graph {
        /// Draw the workloads of all namespaces.
        #[arg(short = 'A', long)]
        all_namespaces: bool,
    },
    /// Print the versions of the plugin and of the operators, and warn if they differ too much.
    Version {
        /// Print the version of the plugin alone, without a cluster.
        #[arg(long)]
        client: bool,
    },
    /// Print a script with which a shell completes the commands of kubectl-pod_reloader.
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Candidates for what kubectl completes, as its plugins give them.
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete {
        /// The words so far, the last one unfinished.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// The command that watches, as [`Output::of`] knows it.
pub(crate) const LIST_WATCH: &str = "list --watch";

impl Command {
    /// Returns the name by which [`Output::of`] knows the command, if it is another one than it has in clap.
    pub(crate) fn own_name(&self) -> Option<&'static str> {
        let is_watch = matches!(self, Self::List { watch: true, .. });
        is_watch.then_some(LIST_WATCH)
    }

    /// Returns true if the user wants nothing to be stored.
    pub(crate) fn is_dry_run(&self) -> bool {
        match self {
            Self::Hold { writing, .. }
            | Self::Release { writing, .. }
            | Self::Approve { writing, .. }
            | Self::Undo { writing, .. } => writing.dry_run == DryRunStrategy::Server,
            _ => false,
        }
    }
}

/// The way in which a command writes.
#[derive(Args, Debug)]
pub(crate) struct Writing {
    /// Dry run: with server, the apiserver tries the write, and stores nothing.
    #[arg(long, value_name = "STRATEGY", default_value = "none")]
    pub(crate) dry_run: DryRunStrategy,
}

/// A value of kubectl's flag `--dry-run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRunStrategy {
    /// Store the write.
    None,
    /// Let the apiserver try the write.
    Server,
}

/// The places of manifests.
#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
pub(crate) struct Sources {
    /// File or folder with manifests, or - for standard input; can be given more than once.
    #[arg(short, long, value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,
    /// Folder with a kustomization, which kubectl builds.
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) kustomize: Option<PathBuf>,
    /// Read the folders below a folder, too.
    #[arg(short = 'R', long, requires = "filename")]
    pub(crate) recursive: bool,
}

#[cfg(test)]
impl Sources {
    /// Returns a folder with manifests.
    pub(crate) fn of_folder(path: &std::path::Path) -> Self {
        Self {
            filename: vec![path.to_owned()],
            kustomize: None,
            recursive: false,
        }
    }
}

/// Refuses a blank selector, which would select everything. An unset variable leaves such a selector.
fn selector(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is blank; --all selects everything".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

fn name(text: &str) -> Result<Name, String> {
    Name::parse(text).map_err(|error| error.to_string())
}

fn digits(text: &str) -> Result<String, String> {
    let digits = text.to_ascii_lowercase();
    match gate::are_digits(&digits) {
        true => Ok(digits),
        false => Err("write the first eight digits of the hash, such as 48a63946".to_owned()),
    }
}

fn server(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|_| "it is not a URL".to_owned())?;
    match url.scheme_str() {
        Some("http" | "https") => Ok(url),
        _ => Err("write it like https://127.0.0.1:6443".to_owned()),
    }
}

/// Parses a time as kubectl does: a number without a unit has seconds, and 0 stands for no limit.
fn request_timeout(text: &str) -> Result<Duration, String> {
    /// Nobody waits longer.
    const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    let timeout = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => duration(text)?,
    };
    Ok(match timeout.is_zero() {
        true => NO_LIMIT,
        false => timeout.min(NO_LIMIT),
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|_| "write it like 90s or 5m")?;
    Duration::try_from(duration).map_err(|_| "it must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::words::{config_object, target};
    use super::*;
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_target_is_a_type_and_a_name() {
        let deployment = Target::here("deploy", "web");
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
        let object = |words: &[&str]| {
            let words = words.iter().map(|it| (*it).to_owned());
            config_object(&Vec::from_iter(words))
        };
        let secret = (ConfigKind::Secret, Name::parse("a").unwrap());
        assert_eq!(object(&["secrets/a"]), Ok(secret.clone()));
        assert_eq!(object(&["secret", "a"]), Ok(secret));
        assert!(object(&["pod/a"]).is_err());
    }

    #[test]
    fn a_type_and_a_name_may_be_two_words() {
        let named = |line: &str| {
            let line = format!("kubectl-pod_reloader {line}");
            let cli = Cli::try_parse_from(line.split(' ')).ok()?;
            let chosen = |chosen: Chosen| match chosen {
                Chosen::Named(targets) => targets,
                Chosen::Selected { .. } => Vec::new(),
            };
            Some(match cli.command {
                Command::Explain { workload } => vec![workload.0],
                Command::Wait { workloads, .. } | Command::Approve { workloads, .. } => {
                    chosen(workloads.0.0)
                }
                Command::Hold { objects, .. } | Command::Release { objects, .. } => {
                    chosen(objects.0.0)
                }
                Command::History { workload, .. } | Command::Undo { workload, .. } => {
                    vec![workload.0]
                }
                _ => Vec::new(),
            })
        };
        let target = Target::here;
        let web = target("deploy", "web");
        assert_eq!(named("explain deploy web"), Some(vec![web.clone()]));
        assert_eq!(named("explain -n shop deploy/web"), Some(vec![web.clone()]));
        let both = Some(vec![web.clone(), target("deploy", "api")]);
        assert_eq!(named("wait deploy web api --timeout=1s"), both);
        let both = Some(vec![web, target("sts", "db")]);
        assert_eq!(named("wait deploy/web sts/db"), both);
        assert_eq!(named("wait --all"), Some(Vec::new()));
        assert!(named("impact cm app --key=a").is_some());
        for plan in ["-f -", "-f a.yaml -f b", "-Rf here -k there", "-k ."] {
            assert!(named(&format!("plan {plan}")).is_some(), "{plan}");
        }
        let both = Some(vec![target("deploy", "web"), target("cm", "app")]);
        assert_eq!(named("hold deploy/web cm/app"), both);
        let secrets = Some(vec![target("secret", "a"), target("secret", "b")]);
        assert_eq!(named("release secret a b"), secrets);
        let approved = named("approve deploy/web --content=48A63946");
        assert_eq!(approved, Some(vec![target("deploy", "web")]));
        let undone = named("undo deploy/web --to-revision=3");
        assert_eq!(undone, Some(vec![target("deploy", "web")]));
        for wrong in [
            "hold",
            "undo deploy/web --to-revision=0",
            "history deploy/web --values",
            "approve",
            "hold deploy/web -l app=web",
            "hold --all -l app=web",
            "hold --selector=",
            "hold --selector=\t",
            "hold -A",
            "hold cm -A --all",
            "release secrets --all-namespaces --all",
            "hold -A --all -n shop",
            "wait -n shop -A -l app=web",
            "release -A -l app=web --namespace=shop",
            "-n shop approve -A --all",
            "hold deploy/web -A",
            "wait deploy web -A",
            "hold deploy/web --dry-run=client",
            "wait deploy/web --dry-run=server",
            "wait deploy/web --all",
            "release deploy web --all",
            "approve deploy/web --content=48a6394",
            "approve deploy/web --content=48a6394x",
            "explain",
            "explain deploy",
            "explain deploy/web deploy/api",
            "explain deploy web api",
            "wait deploy/web api",
            "wait deploy api/web",
            "wait --all deploy web",
            "wait",
            "impact cm",
            "impact deploy web",
            "explain deploy/web -n /nope",
            "plan",
            "plan -R",
            "plan -R -k here",
        ] {
            assert_eq!(named(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn objects_can_be_selected_in_place_of_names() {
        let chosen = |line: &str| {
            let line = format!("kubectl-pod_reloader {line}");
            match Cli::try_parse_from(line.split(' ')).unwrap().command {
                Command::Hold { objects, .. } => objects.0.0,
                Command::Wait { workloads, .. } | Command::Approve { workloads, .. } => {
                    workloads.0.0
                }
                other => panic!("{other:?}"),
            }
        };
        let selected = |kind: Option<&str>, selector: Option<&str>| Chosen::Selected {
            kind: kind.map(ToOwned::to_owned),
            selector: selector.map(ToOwned::to_owned),
            all_namespaces: false,
        };
        assert_eq!(chosen("wait --all"), selected(None, None));
        let labelled = selected(None, Some("app=web"));
        assert_eq!(chosen("approve -l app=web"), labelled);
        let config_maps = selected(Some("cm"), Some("app=web"));
        assert_eq!(chosen("hold CM --selector=app=web"), config_maps);
        let deployments = selected(Some("deploy"), None);
        assert_eq!(chosen("hold deploy --all"), deployments);
        assert_eq!(chosen("hold deploy --all -n shop"), deployments);
        let all_config_maps = selected(Some("cm"), None);
        assert_eq!(chosen("hold cm --all"), all_config_maps);
        let of_team = Chosen::Selected {
            kind: None,
            selector: Some("team=a".to_owned()),
            all_namespaces: true,
        };
        for command in ["hold", "wait", "approve"] {
            assert_eq!(chosen(&format!("{command} -A -l team=a")), of_team);
        }
    }

    #[test]
    fn a_connection_is_described_as_for_kubectl() {
        let connection = |flags: &str| {
            let line = format!("kubectl-pod_reloader status {flags}");
            let cli = Cli::try_parse_from(line.split(' ')).ok()?;
            Some(cli.connection)
        };
        let of = connection("--cluster=far --user=me -s https://far:6443 --as-uid=7").unwrap();
        assert_eq!(of.cluster.as_deref(), Some("far"));
        assert_eq!(of.user.as_deref(), Some("me"));
        assert_eq!(of.server.unwrap().to_string(), "https://far:6443/");
        assert_eq!(of.impersonate_uid.as_deref(), Some("7"));
        assert_eq!(of.request_timeout, Duration::from_secs(15));
        let timeout = |text: &str| {
            let flags = format!("--request-timeout={text}");
            connection(&flags).map(|it| it.request_timeout.as_secs())
        };
        assert_eq!(timeout("30"), Some(30));
        assert_eq!(timeout("2m"), Some(120));
        assert!(timeout("0").unwrap() > 1_000_000);
        assert_eq!(timeout("soon"), None);
        assert!(connection("--server=far:6443").is_none());
    }

    #[test]
    fn annotations_of_manifests_or_of_workloads_are_migrated() {
        let source = |line: &str| {
            let line = format!("kubectl-pod_reloader migrate {line}");
            match Cli::try_parse_from(line.split(' ')).ok()?.command {
                Command::Migrate { source } => Some(source.0),
                other => panic!("{other:?}"),
            }
        };
        let paths = |line: &str| match source(line) {
            Some(Migrated::Manifests(sources)) => sources.filename,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(paths("-"), [PathBuf::from("-")]);
        let files = ["a.yaml", "there"].map(PathBuf::from);
        assert_eq!(paths("-f a.yaml -R -f there"), files);
        let chosen = |line: &str| match source(line) {
            Some(Migrated::Workloads(chosen)) => chosen,
            other => panic!("{line}: {other:?}"),
        };
        let selected = |kind: Option<&str>, all_namespaces| Chosen::Selected {
            kind: kind.map(str::to_owned),
            selector: None,
            all_namespaces,
        };
        assert_eq!(chosen("-A"), selected(None, true));
        assert_eq!(chosen("-A --all"), selected(None, true));
        assert_eq!(chosen("sts -A"), selected(Some("sts"), true));
        assert_eq!(chosen("--all"), selected(None, false));
        let Chosen::Named(named) = chosen("deploy web api") else {
            panic!("they are named");
        };
        assert_eq!(named.len(), 2);
        for wrong in [
            "-f a.yaml deploy/web",
            "-f a.yaml -A",
            "- --all",
            "deploy/web -A",
            "-A -n shop",
            "deploy/web -R",
            "deploy",
        ] {
            assert!(source(wrong).is_none(), "{wrong}");
        }
        assert!(Cli::try_parse_from(["kubectl-pod_reloader", "migrate"]).is_err());
    }

    #[test]
    fn a_command_has_its_own_output_formats() {
        let error =
            "explain has no output format dot; its formats are text, json, yaml, jsonpath=TEMPLATE";
        assert_eq!(Output::Dot.is_of("explain"), Err(error.to_owned()));
        assert_eq!(Output::Dot.is_of("graph"), Ok(()));
        assert_eq!(Output::Yaml.is_of("status"), Ok(()));
        assert_eq!(Output::JsonPath.is_of("list"), Ok(()));
    }

    #[test]
    fn a_template_is_parsed_with_the_command_line() {
        let parsed =
            |output: &str| Cli::try_parse_from(["kubectl-pod_reloader", "list", "-o", output]);
        let format = parsed("jsonpath={.items[*].name}").unwrap().format;
        assert_eq!(format.output, Output::JsonPath);
        assert!(format.template.is_some());
        assert!(parsed("json").unwrap().format.template.is_none());
        let error = parsed("jsonpath={.items").unwrap_err().to_string();
        let problem = "} is missing, at character 8 of the template";
        assert!(error.contains(problem), "{error}");
        let error = parsed("jsonpath").unwrap_err().to_string();
        assert!(error.contains("jsonpath=TEMPLATE"), "{error}");
    }

    #[test]
    fn a_list_that_is_watched_is_for_people() {
        let list = |line: &str| {
            let line = format!("kubectl-pod_reloader list {line}");
            Cli::try_parse_from(line.split(' '))
        };
        let watched = list("-w -A -o wide").unwrap().command.own_name();
        assert_eq!(watched, Some(LIST_WATCH));
        assert_eq!(list("-o json").unwrap().command.own_name(), None);
        assert_eq!(Output::Wide.is_of(LIST_WATCH), Ok(()));
        let error = "list --watch has no output format json; its formats are text, wide";
        assert_eq!(Output::Json.is_of(LIST_WATCH), Err(error.to_owned()));
        // It would send a dry run for each workload again and again.
        assert!(list("--watch --live").is_err());
    }

    /// Flags are not compared here: another test runs the commands of the pages.
    #[test]
    fn the_first_page_has_every_command_and_no_page_has_another() {
        let overview = include_str!("../../../docs/kubectl.md");
        let pages = [
            overview,
            include_str!("../../../docs/kubectl-change.md"),
            include_str!("../../../docs/kubectl-explain.md"),
            include_str!("../../../docs/kubectl-operate.md"),
            include_str!("../../../docs/kubectl-status.md"),
        ];
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
        let shown = BTreeSet::from_iter(shown.map(|it| it.get_name()));
        let after = |text: &'static str| {
            let mut words = text.split(|it: char| !it.is_ascii_lowercase() && it != '_');
            words.next().unwrap_or_default()
        };
        let told = |page: &'static str| -> BTreeSet<_> {
            let words = page.split("kubectl pod-reloader ").skip(1).map(after);
            words
                .filter(|it| !it.is_empty() && *it != "__complete")
                .collect()
        };
        assert_eq!(told(overview), shown);
        for page in pages {
            let unknown: Vec<_> = told(page).difference(&shown).copied().collect();
            assert!(unknown.is_empty(), "{unknown:?}");
        }
    }
}
