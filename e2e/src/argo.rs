//! Runs Argo CD beside the control plane of a real node: its controller, its repo server, and a Redis.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use kube::{Api, api::DynamicObject};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::{
    apply::api_of,
    control_plane::ControlPlane,
    credentials::random_hex,
    git::{BRANCH, Repository},
    installation::free_port,
    process::{Process, Program},
    programs::go_program,
    real_scene::{LONG, RealScene},
    tool::Tool,
    wait::{Attempt, PATIENCE, wait_for},
};

/// An Argo CD, whose Applications deploy to the namespace of a scene.
pub struct ArgoCd {
    /// Repository that its Applications read from.
    pub repository: Repository,
    kubectl: Tool,
    applications: Api<DynamicObject>,
    /// Namespace of the workloads.
    destination: String,
    processes: Vec<Process>,
}

/// How an Application compares and syncs.
#[derive(Clone, Copy, Debug)]
pub struct Application {
    /// Its name, and the folder in the repository.
    pub name: &'static str,
    /// Value of the annotation `compare-options`.
    pub compare_options: &'static str,
    /// Its `syncOptions`.
    pub sync_options: &'static [&'static str],
}

/// What the status of an Application says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Status {
    sync: Value,
    commit: Value,
    health: Value,
    /// Phase of the last operation.
    phase: Value,
    /// When the last operation began, which tells it from others.
    began: Value,
}

impl ArgoCd {
    /// Starts an Argo CD without Applications, in the namespace [`NAMESPACE`]. It ends when the value is dropped.
    ///
    /// # Errors
    /// When it is not built, or does not start.
    pub async fn start(scene: &RealScene) -> Result<Self> {
        let control_plane = &scene.control_plane;
        let built = go_program("argo")?;
        let directory = control_plane.description().directory.clone();
        let directory = directory.join(format!("argo-{}", &random_hex()?[..5]));
        fs::create_dir(&directory)?;
        let repository = Repository::create(directory.join("repository")).await?;
        let kubectl = control_plane.kubectl();
        configure(&kubectl, &built.join("manifests")).await?;
        let processes = run(control_plane, &built, &directory).await?;
        let kind = json!({"apiVersion": VERSION, "kind": "Application"});
        Ok(Self {
            repository,
            kubectl,
            applications: api_of(&scene.client, Some(NAMESPACE), &kind)?,
            destination: scene.namespace.clone(),
            processes,
        })
    }

    /// Creates an Application that syncs by itself, prunes, and heals.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn create(&self, application: &Application) -> Result<()> {
        let Application {
            name,
            compare_options,
            sync_options,
        } = application;
        let manifest = json!({
            "apiVersion": VERSION,
            "kind": "Application",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "annotations": {"argocd.argoproj.io/compare-options": compare_options},
            },
            "spec": {
                "project": "default",
                "source": {
                    "repoURL": format!("file://{}", self.repository.directory().display()),
                    "targetRevision": BRANCH,
                    "path": name,
                },
                "destination": {
                    "server": "https://kubernetes.default.svc",
                    "namespace": self.destination,
                },
                "syncPolicy": {
                    "automated": {"prune": true, "selfHeal": true},
                    "syncOptions": sync_options,
                },
            },
        });
        let manifest = manifest.to_string();
        let create = ["create", "--filename=-"];
        let created = self.kubectl.run_with_input(&create, &manifest).await;
        created.map(drop)
    }

    /// Waits until an Application has synced a commit, and is healthy.
    ///
    /// # Errors
    /// When that takes too long, or Argo CD has ended.
    pub async fn synced(&self, name: &str, commit: &str) -> Result<()> {
        self.refresh(name, "normal").await?;
        wait_for(&format!("{name} to be synced"), LONG, async || {
            self.must_run()?;
            let status = self.status(name).await?;
            Ok(match status.is_at_rest() && status.commit == commit {
                true => Attempt::Done(()),
                false => Attempt::NotYet(format!("{status:?}, not at {commit}")),
            })
        })
        .await
    }

    /// Has an Application compared again, from nothing, and fails if that finds a difference, or if there has been a sync.
    ///
    /// # Errors
    /// Same as [`ArgoCd::synced`], and when there is a difference.
    pub async fn no_drift(&self, name: &str) -> Result<()> {
        let before = self.settled(name).await?;
        self.refresh(name, "hard").await?;
        wait_for(&format!("{name} to be compared"), LONG, async || {
            self.must_run()?;
            let application = self.application(name).await?;
            let asked = &application["metadata"]["annotations"][REFRESH];
            Ok(match asked.is_null() {
                true => Attempt::Done(()),
                false => Attempt::NotYet(format!("{REFRESH} is {asked}")),
            })
        })
        .await?;
        let after = self.status(name).await?;
        ensure!(after == before, "{name}: {before:?}, then {after:?}");
        Ok(())
    }

    /// Waits until an Application is synced, whatever its commit, and healthy.
    async fn settled(&self, name: &str) -> Result<Status> {
        wait_for(&format!("{name} to be at rest"), LONG, async || {
            self.must_run()?;
            let status = self.status(name).await?;
            Ok(match status.is_at_rest() {
                true => Attempt::Done(status),
                false => Attempt::NotYet(format!("{status:?}")),
            })
        })
        .await
    }

    async fn refresh(&self, name: &str, how: &str) -> Result<()> {
        let refresh = format!("{REFRESH}={how}");
        let annotate = ["annotate", "--overwrite", "application", name, &refresh];
        let annotate = [&annotate[..], &["--namespace", NAMESPACE]].concat();
        self.kubectl.run(&annotate).await.map(drop)
    }

    async fn status(&self, name: &str) -> Result<Status> {
        let application = self.application(name).await?;
        let status = &application["status"];
        Ok(Status {
            sync: status["sync"]["status"].clone(),
            commit: status["sync"]["revision"].clone(),
            health: status["health"]["status"].clone(),
            phase: status["operationState"]["phase"].clone(),
            began: status["operationState"]["startedAt"].clone(),
        })
    }

    async fn application(&self, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.applications.get(name).await?)?)
    }

    fn must_run(&self) -> Result<()> {
        self.processes.iter().try_for_each(Process::must_run)
    }
}

impl Status {
    fn is_at_rest(&self) -> bool {
        self.sync == "Synced" && self.health == "Healthy" && self.phase == "Succeeded"
    }
}

/// Creates types, settings and project, and removes the Applications of an earlier test. `manifests` are those of Argo CD.
async fn configure(kubectl: &Tool, manifests: &Path) -> Result<()> {
    let in_argo = ["--namespace", NAMESPACE];
    let run = async |args: &[&str]| kubectl.run(args).await;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    kubectl
        .run_with_input(&["apply", "--filename=-"], &namespace.to_string())
        .await?;
    for file in files(&manifests.join("crds"))? {
        // They are too large for the annotation of a client-side apply.
        run(&["apply", "--server-side", &file]).await?;
    }
    let types = ["applications", "appprojects"].map(|name| format!("crd/{name}.argoproj.io"));
    let established = ["--for=condition=Established", "--timeout=60s"];
    run(&[&["wait", &types[0], &types[1]], &established[..]].concat()).await?;
    for file in files(&manifests.join("base/config"))? {
        run(&[&["apply", &file], &in_argo[..]].concat()).await?;
    }
    let settings = json!({"stringData": {
        "server.secretkey": "secret key of a test",
        "admin.password": "unused",
        "admin.passwordMtime": "2026-01-01T00:00:00Z",
    }});
    let patch = format!("--patch={settings}");
    run(&[&["patch", "secret", "argocd-secret", &patch], &in_argo[..]].concat()).await?;
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "argocd-redis"},
            "stringData": {"auth": ""},
        },
        {
            "apiVersion": VERSION,
            "kind": "AppProject",
            "metadata": {"name": "default"},
            "spec": {
                "sourceRepos": ["*"],
                "destinations": [{"namespace": "*", "server": "*"}],
                "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
            },
        },
    ]});
    let apply = [&["apply", "--filename=-"], &in_argo[..]].concat();
    kubectl.run_with_input(&apply, &objects.to_string()).await?;
    // They have no finalizer, so what they deployed stays.
    run(&[&["delete", "applications", "--all"], &in_argo[..]].concat()).await?;
    Ok(())
}

/// Returns the arguments of kubectl for the manifests in a folder, in the order of their names.
fn files(folder: &Path) -> Result<Vec<String>> {
    let listed = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut files = Vec::new();
    for file in listed {
        let path = file?.path();
        if path
            .file_name()
            .is_some_and(|name| name != "kustomization.yaml")
        {
            files.push(format!("--filename={}", path.display()));
        }
    }
    files.sort();
    Ok(files)
}

/// Runs the processes, and waits until each listens.
async fn run(control_plane: &ControlPlane, built: &Path, directory: &Path) -> Result<Vec<Process>> {
    let [redis_port, repo_port, repo_metrics, controller_metrics] =
        [free_port()?, free_port()?, free_port()?, free_port()?];
    let redis = format!("127.0.0.1:{redis_port}");
    let repo_server = [
        format!("--address={LOCALHOST}"),
        format!("--port={repo_port}"),
        format!("--metrics-address={LOCALHOST}"),
        format!("--metrics-port={repo_metrics}"),
        format!("--redis={redis}"),
        "--loglevel=warn".to_owned(),
    ];
    let controller = [
        format!("--kubeconfig={}", control_plane.kubeconfig_path().display()),
        format!("--namespace={NAMESPACE}"),
        format!("--repo-server={LOCALHOST}:{repo_port}"),
        format!("--redis={redis}"),
        format!("--metrics-port={controller_metrics}"),
        // It compares so often that a difference does not stay unnoticed.
        "--app-resync=15".to_owned(),
        "--app-resync-jitter=0".to_owned(),
    ];
    let env = environment(control_plane, built, directory, repo_port)?;
    let program = |name: &str, executable: &str, args: &[String]| {
        let mut env = env.clone();
        env.push(("ARGOCD_BINARY_NAME".into(), name.into()));
        Program {
            name: name.to_owned(),
            executable: built.join(executable),
            args: args.iter().map(OsString::from).collect(),
            env,
            log: control_plane.logs_dir().join(format!("{name}.log")),
        }
    };
    let mut processes = Vec::new();
    for (program, port) in [
        (
            program("argocd-redis", "redis", &[redis.clone()]),
            redis_port,
        ),
        (
            program("argocd-repo-server", "argocd", &repo_server),
            repo_port,
        ),
        (
            program("argocd-application-controller", "argocd", &controller),
            controller_metrics,
        ),
    ] {
        let process = Process::start(program)?;
        let what = format!("{} to listen", process.name());
        wait_for(&what, PATIENCE, async || {
            process.must_run()?;
            Ok(Attempt::from(TcpStream::connect((LOCALHOST, port)).await))
        })
        .await?;
        processes.push(process);
    }
    Ok(processes)
}

/// Returns the environment of all its processes, with folders of their own.
fn environment(
    control_plane: &ControlPlane,
    built: &Path,
    directory: &Path,
    repo_port: u16,
) -> Result<Vec<(OsString, OsString)>> {
    let folder = |name: &str| {
        let folder = directory.join(name);
        fs::create_dir(&folder)?;
        anyhow::Ok(OsString::from(folder))
    };
    let own = env::var_os("PATH").unwrap_or_default();
    let programs = control_plane.description().programs.clone();
    let mut path: Vec<PathBuf> = vec![built.to_owned(), programs];
    path.extend(env::split_paths(&own));
    Ok(vec![
        ("PATH".into(), env::join_paths(path)?),
        ("KUBECONFIG".into(), control_plane.kubeconfig_path().into()),
        ("HOME".into(), folder("home")?),
        ("TMPDIR".into(), folder("temporary")?),
        ("ARGOCD_TLS_DATA_PATH".into(), folder("tls")?),
        ("ARGOCD_SSH_DATA_PATH".into(), folder("ssh")?),
        ("ARGOCD_GNUPGHOME".into(), folder("gnupg")?),
        // The path of a socket cannot be long. This folder is the cluster's own.
        (
            "ARGOCD_ASK_PASS_SOCK".into(),
            format!("/run/ask-pass-{repo_port}.sock").into(),
        ),
        ("ARGOCD_GPG_ENABLED".into(), "false".into()),
        // The cluster that Applications name is that of KUBECONFIG.
        ("ARGOCD_FAKE_IN_CLUSTER".into(), "true".into()),
    ])
}

/// Namespace of Argo CD and its Applications.
pub const NAMESPACE: &str = "argocd";

const VERSION: &str = "argoproj.io/v1alpha1";
const REFRESH: &str = "argocd.argoproj.io/refresh";
const LOCALHOST: &str = "127.0.0.1";
