//! Runs Argo CD beside the control plane of a real node: its controller, its repo server, and a Redis.

use std::path::Path;

use anyhow::{Result, ensure};
use kube::{Api, api::DynamicObject};
use serde_json::{Value, json};

use crate::{
    apply::api_of,
    beside::{Beside, create_types, files},
    git::{BRANCH, Repository},
    installation::free_port,
    process::Process,
    programs::go_program,
    real_scene::{LONG, RealScene},
    tool::Tool,
    wait::{Attempt, done_if, wait_for},
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
        let built = go_program("argo")?;
        let mut beside = Beside::new(&scene.control_plane, "argo", &built)?;
        let repository = Repository::create(beside.directory.join("repository")).await?;
        let kubectl = scene.control_plane.kubectl();
        configure(&kubectl, &built.join("manifests")).await?;
        let kubeconfig = scene.control_plane.kubeconfig_path();
        let processes = run(&mut beside, kubeconfig).await?;
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
            done_if(
                status.is_at_rest() && status.commit == commit,
                format!("{status:?}, not at {commit}"),
            )
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
            done_if(asked.is_null(), format!("{REFRESH} is {asked}"))
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
    create_types(kubectl, &manifests.join("crds")).await?;
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

/// Runs the processes, and waits until each listens.
async fn run(beside: &mut Beside, kubeconfig: &Path) -> Result<Vec<Process>> {
    let [redis_port, repo_port, repo_metrics, controller_metrics] =
        [free_port()?, free_port()?, free_port()?, free_port()?];
    let redis = format!("127.0.0.1:{redis_port}");
    let repo_server = [
        "--address=127.0.0.1".to_owned(),
        format!("--port={repo_port}"),
        "--metrics-address=127.0.0.1".to_owned(),
        format!("--metrics-port={repo_metrics}"),
        format!("--redis={redis}"),
        "--loglevel=warn".to_owned(),
    ];
    let controller = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--namespace={NAMESPACE}"),
        format!("--repo-server=127.0.0.1:{repo_port}"),
        format!("--redis={redis}"),
        format!("--metrics-port={controller_metrics}"),
        // It compares so often that a difference does not stay unnoticed.
        "--app-resync=15".to_owned(),
        "--app-resync-jitter=0".to_owned(),
    ];
    for (variable, folder) in [
        ("ARGOCD_TLS_DATA_PATH", "tls"),
        ("ARGOCD_SSH_DATA_PATH", "ssh"),
        ("ARGOCD_GNUPGHOME", "gnupg"),
    ] {
        beside.set_folder(variable, folder)?;
    }
    let address = [redis];
    // The path of a socket cannot be long. This folder is the cluster's own.
    let socket = format!("/run/ask-pass-{repo_port}.sock");
    beside.set("ARGOCD_ASK_PASS_SOCK", socket);
    beside.set("ARGOCD_GPG_ENABLED", "false");
    // The cluster that Applications name is that of KUBECONFIG.
    beside.set("ARGOCD_FAKE_IN_CLUSTER", "true");

    let run_redis = beside.run("argocd-redis", "redis", &address, redis_port);
    let mut processes = vec![run_redis.await?];
    for (name, args, port) in [
        ("argocd-repo-server", &repo_server[..], repo_port),
        (
            "argocd-application-controller",
            &controller[..],
            controller_metrics,
        ),
    ] {
        // It is one program, which goes by this variable.
        beside.set("ARGOCD_BINARY_NAME", name);
        processes.push(beside.run(name, "argocd", args, port).await?);
    }
    Ok(processes)
}

/// Namespace of Argo CD and its Applications.
pub const NAMESPACE: &str = "argocd";

const VERSION: &str = "argoproj.io/v1alpha1";
const REFRESH: &str = "argocd.argoproj.io/refresh";
