//! Reads a page as a user does: types in what it shows, and writes the files that it shows.

use std::{collections::BTreeSet, env, fs, os::unix::fs::symlink, path::Path, process::Stdio};

use anyhow::{Context, Result, bail, ensure};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use pod_reloader_e2e::{
    Attempt, ControlPlane, Kubelet, OwnKind, PATIENCE, delete_release, of_the_workspace, own_kinds,
    try_apply, wait_for,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    process::Command,
    time::timeout,
};

use super::{
    block::{Block, Fate, Language},
    manifest::Manifest,
    output::matches,
    root,
};

/// A user with an empty cluster, and a checkout of the repository.
pub(super) struct Reader<'a> {
    control_plane: &'a ControlPlane,
    kubelet: Kubelet<'a>,
    directory: TempDir,
}

impl<'a> Reader<'a> {
    pub(super) fn new(control_plane: &'a ControlPlane) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("pod-reloader-e2e-")
            .tempdir()?;
        // A copy of the repository's layout, so that files written here stay here.
        for name in ["charts", "docs", "e2e", "examples", "scripts"] {
            symlink(root().join(name), directory.path().join(name))?;
        }
        // kubectl may write to it.
        fs::copy(
            control_plane.kubeconfig_path(),
            directory.path().join(KUBECONFIG),
        )?;
        let kubelet = Kubelet::new(control_plane, &ARGS, &directory.path().join("kubelet"));
        fs::create_dir(directory.path().join("kubelet"))?;
        Ok(Self {
            control_plane,
            kubelet,
            directory,
        })
    }

    /// Follows these blocks, in this order.
    ///
    /// # Errors
    /// When the outcome differs from what the page says: with the line of the block.
    pub(super) async fn read(&self, blocks: &[Block]) -> Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        for block in blocks {
            let outcome = tokio::select! {
                outcome = self.follow(block, port) => outcome,
                never = self.answer(&listener) => never,
            };
            outcome.with_context(|| format!("{}\n{}", block.line, block.text))?;
        }
        Ok(())
    }

    /// Returns the logs of the operators that run.
    pub(super) async fn logs(&self) -> String {
        self.kubelet.logs().await
    }

    /// Cleans the cluster up for the next reader.
    ///
    /// # Errors
    /// When something cannot be removed.
    pub(super) async fn clear(&self) -> Result<()> {
        let kubectl = self.control_plane.kubectl();
        let client = self.control_plane.admin_client().await?;
        // The CRDs stay when a release goes, and the next reader's operator would serve their objects.
        let definitions = api("/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
        let definitions: Value = client.request(definitions?).await?;
        let is_defined = |own: &&OwnKind| names(&definitions).any(|name| name == own.definition);
        for own in own_kinds().iter().filter(is_defined) {
            let path = format!("/apis/{}/{}", own.api_version, own.plural);
            let objects: Value = client.request(api(&path)?).await?;
            if names(&objects).next().is_some() {
                let delete = ["delete", &own.definition, "--all", "--all-namespaces"];
                kubectl.run(&delete).await?;
            }
        }
        let releases: Value = client.request(api(RELEASES)?).await?;
        for (namespace, name) in installed(&releases) {
            // What a failed `helm test` has left is in the namespace `default`.
            delete_release(&client, &[namespace, "default"], name).await?;
        }
        self.kubelet.sync().await?;
        let namespaces: Value = client.request(api("/api/v1/namespaces")?).await?;
        let is_own = |name: &&str| !["default", "pod-reloader"].contains(name);
        let made = names(&namespaces).filter(|name| !name.starts_with("kube-"));
        let (made, kept): (Vec<_>, Vec<_>) = made.partition(is_own);
        for namespace in kept {
            // Only the content: the releases are gone, and deleting a namespace takes long.
            for (version, resource) in CONTENT {
                let path = format!(
                    "{version}/namespaces/{namespace}/{resource}?propagationPolicy=Background"
                );
                let delete = http::Request::delete(path).body(Vec::new())?;
                client.request::<Value>(delete).await?;
            }
        }
        if !made.is_empty() {
            // The next page may create one of the same name. One that was being deleted may be gone by now.
            let mut delete = vec!["delete", "namespace", "--ignore-not-found", "--timeout=5m"];
            delete.extend(&made);
            kubectl.run(&delete).await?;
        }
        Ok(())
    }

    async fn follow(&self, block: &Block, port: u16) -> Result<()> {
        for script in &block.first {
            let prepares = format!("prepares=yes\n{script}");
            let (code, printed) = self.run(&prepares, port).await?;
            ensure!(
                code == Some(0),
                "what comes first ended by {code:?}: {script}\n{printed}"
            );
        }
        match (block.fate, block.language) {
            (Fate::NotRun, Language::Yaml) => Ok(()),
            // Checks at least that such targets and programs exist.
            (Fate::NotRun, Language::Shell) => {
                let builds = |line: &&str| {
                    ["make ", "cargo "]
                        .iter()
                        .any(|tool| line.starts_with(tool))
                };
                let lines: Vec<_> = block.text.lines().filter(builds).collect();
                self.succeeds(&lines.join("\n"), port).await.map(|_| ())
            }
            (fate, Language::Shell) => self.type_in(block, fate, port).await,
            (fate, Language::Yaml) => {
                let outcome = self.write(&block.text).await;
                match fate {
                    Fate::Fails => {
                        ensure!(outcome.is_err(), "it is accepted");
                        Ok(())
                    }
                    _ => outcome,
                }
            }
        }
    }

    async fn type_in(&self, block: &Block, fate: Fate, port: u16) -> Result<()> {
        let uses_jq = block.text.contains("jq ");
        ensure!(
            !uses_jq || is_installed("jq"),
            "jq is not installed, and this needs it"
        );
        let type_in = async || {
            let (code, printed) = self.run(&block.text, port).await?;
            let as_told = (code == Some(0)) == (fate == Fate::Succeeds);
            ensure!(as_told, "it ended by {code:?}\n{printed}");
            anyhow::Ok(printed)
        };
        let Some(shown) = &block.output else {
            return type_in().await.map(|_| ());
        };
        // A user would look again, too.
        wait_for(
            "it to print what the page shows",
            5 * PATIENCE,
            async || {
                Ok(match type_in().await {
                    Ok(printed) if matches(shown, &printed) => Attempt::Done(()),
                    Ok(printed) => Attempt::NotYet(format!("\n{printed}instead of\n{shown}")),
                    Err(error) => Attempt::NotYet(format!("{error:#}")),
                })
            },
        )
        .await
    }

    async fn succeeds(&self, script: &str, port: u16) -> Result<String> {
        let (code, printed) = self.run(script, port).await?;
        ensure!(code == Some(0), "it ended by {code:?}\n{printed}");
        Ok(printed)
    }

    /// Runs a script, and returns its exit code and everything that it has printed.
    async fn run(&self, script: &str, port: u16) -> Result<(Option<i32>, String)> {
        let programs = self.control_plane.bin("");
        let plugin = of_the_workspace("kubectl-pod_reloader").context("the plugin is not built")?;
        let plugins = plugin.parent().context("it lies in a folder")?.display();
        let path = env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command
            .args(["-c", &format!("{PRELUDE}\n{script}")])
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", format!("{}:{plugins}:{path}", programs.display()))
            .env("KUBECONFIG", self.directory.path().join(KUBECONFIG))
            // Shares what kubectl has cached about this cluster.
            .env("HOME", &self.control_plane.description().directory)
            .env("REPOSITORY", root())
            .env("TEST_PORT", port.to_string())
            // Garbage collection is a quarter of the processor time of kubectl and helm.
            .env("GOGC", "400")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        // Longer than what a script waits for itself.
        let patience = 10 * PATIENCE;
        let output = timeout(patience, command.output()).await;
        let output =
            output.with_context(|| format!("it takes longer than {patience:?}: {script}"))??;
        Ok((
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        ))
    }

    /// Writes a file, and gives it to the program that reads it.
    async fn write(&self, text: &str) -> Result<()> {
        let first = text.lines().next().unwrap_or_default();
        let name = first
            .strip_prefix("# ")
            .and_then(|line| line.split([':', ' ']).next());
        if let Some(name) = name.filter(|name| name.ends_with(".yaml")) {
            fs::write(self.directory.path().join(name), text)?;
        }
        match Manifest::parse(text)? {
            // Another test renders these.
            Manifest::Values => {}
            Manifest::Objects(objects) => {
                let client = self.control_plane.admin_client().await?;
                for object in objects {
                    let warnings = try_apply(&client, &object).await?;
                    // The objects that an example lists need not exist.
                    let is_complaint = |line: &str| !line.contains(" (yet)");
                    ensure!(!warnings.lines().any(is_complaint), "{warnings}");
                }
            }
        }
        Ok(())
    }

    /// Answers the requests of the scripts, for ever.
    async fn answer(&self, listener: &TcpListener) -> Result<()> {
        let mut answers = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (connection, _) = accepted?;
                    answers.push(self.answer_one(connection).boxed_local());
                }
                Some(answered) = answers.next() => answered?,
            }
        }
    }

    async fn answer_one(&self, mut connection: TcpStream) -> Result<()> {
        let (read, mut write) = connection.split();
        let mut question = String::new();
        BufReader::new(read).read_line(&mut question).await?;
        let answer = match self.answer_to(question.trim()).await {
            Ok(answer) => format!("ok {answer}\n"),
            Err(error) => format!("error {}\n", format!("{error:#}").replace('\n', " ")),
        };
        write
            .write_all(answer.as_bytes())
            .await
            .context("answering a script")
    }

    async fn answer_to(&self, question: &str) -> Result<String> {
        match question.split_once(' ').unwrap_or((question, "")) {
            ("sync", _) => self.kubelet.sync().await.map(|()| String::new()),
            ("test", _) => self.kubelet.test().await.map(|()| String::new()),
            ("values", release) => {
                let path = self
                    .directory
                    .path()
                    .join(format!("kubelet/{release}.json"));
                fs::write(&path, self.kubelet.values(release)?.to_string())?;
                Ok(path.display().to_string())
            }
            _ => bail!("nobody answers to {question:?}"),
        }
    }
}

/// Returns a request that reads what is at a path of the apiserver.
fn api(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

/// Returns the names of the objects of a list.
fn names(list: &Value) -> impl Iterator<Item = &str> {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["metadata"]["name"].as_str())
}

/// Returns the namespace and the name of each release of Helm, given the Secrets in which Helm stores them.
fn installed(releases: &Value) -> BTreeSet<(&str, &str)> {
    let stored = releases["items"].as_array().into_iter().flatten();
    let metadata = stored.map(|secret| &secret["metadata"]);
    let installed = metadata.filter(|it| it["labels"]["status"] != "uninstalled");
    let places = installed.map(|it| (it["namespace"].as_str(), it["labels"]["name"].as_str()));
    places
        .filter_map(|(namespace, name)| namespace.zip(name))
        .collect()
}

fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| Path::new(&folder).join(program).exists())
}

const PRELUDE: &str = include_str!("prelude.sh");
/// Arguments of the operators. They elect a leader, as in a cluster, which no other test needs. The settle
/// period is shorter than a user's.
const ARGS: [&str; 2] = ["--leader-elect", "--settle-period=1s"];
const KUBECONFIG: &str = "reader.kubeconfig";
/// The Secrets of Helm's releases.
const RELEASES: &str = "/api/v1/secrets?labelSelector=owner%3Dhelm";
/// The objects that pages leave behind in namespaces.
const CONTENT: [(&str, &str); 11] = [
    ("/apis/apps/v1", "deployments"),
    ("/apis/apps/v1", "statefulsets"),
    ("/apis/apps/v1", "daemonsets"),
    ("/apis/batch/v1", "cronjobs"),
    ("/apis/batch/v1", "jobs"),
    ("/apis/apps/v1", "replicasets"),
    ("/api/v1", "pods"),
    ("/api/v1", "configmaps"),
    ("/api/v1", "secrets"),
    ("/apis/coordination.k8s.io/v1", "leases"),
    ("/api/v1", "events"),
];
