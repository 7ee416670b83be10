//! Runs Flux beside the control plane of a real node: its source-controller and its kustomize-controller.

use anyhow::{Result, ensure};
use kube::{Api, Client, api::DynamicObject};
use serde_json::{Value, json};

use crate::{
    apply::api_of,
    beside::{Beside, create_types},
    credentials::random_hex,
    git::{BRANCH, Repository},
    git_server::GitServer,
    installation::{create_namespace, free_port, merge},
    process::Process,
    programs::go_program,
    real_scene::{LONG, RealScene},
    tool::Tool,
    wait::{Attempt, done_if, wait_for},
};

/// A Flux, whose Kustomizations deploy to the namespace of a scene.
pub struct Flux {
    /// Repository that its Kustomizations read from.
    pub repository: Repository,
    kubectl: Tool,
    /// Namespace of its objects. What it leaves there has finalizers, so each test has one of its own.
    namespace: String,
    kustomizations: Api<DynamicObject>,
    /// Namespace of the workloads.
    destination: String,
    processes: Vec<Process>,
    _server: GitServer,
}

impl Flux {
    /// Starts a Flux without Kustomizations, whose repository is empty. It ends when the value is dropped.
    ///
    /// # Errors
    /// When it is not built, or does not start.
    pub async fn start(scene: &RealScene) -> Result<Self> {
        let built = go_program("flux")?;
        let mut beside = Beside::new(&scene.control_plane, "flux", &built)?;
        let repository = Repository::create(beside.directory.join("repository")).await?;
        let kubectl = scene.control_plane.kubectl();
        create_types(&kubectl, &built.join("crds")).await?;
        let namespace = format!("{}-flux", scene.namespace);
        create_namespace(&scene.client, &namespace, &[]).await?;
        beside.set("RUNTIME_NAMESPACE", namespace.clone());
        let processes = run(&beside).await?;
        let server = GitServer::start(&repository).await?;
        let kustomizations = kustomizations(&scene.client, &namespace)?;
        let source = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "GitRepository",
            "metadata": {"name": SOURCE, "namespace": namespace},
            "spec": {"url": server.url, "ref": {"branch": BRANCH}, "interval": "1m"},
        });
        create(&kubectl, &source).await?;
        Ok(Self {
            repository,
            kubectl,
            namespace,
            kustomizations,
            destination: scene.namespace.clone(),
            processes,
            _server: server,
        })
    }

    /// Creates a Kustomization that prunes, with further fields. Its name is that of its folder.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn create(&self, name: &str, fields: &Value) -> Result<()> {
        let mut spec = json!({
            "sourceRef": {"kind": "GitRepository", "name": SOURCE},
            "path": format!("./{name}"),
            "targetNamespace": self.destination,
            "prune": true,
            "interval": "1m",
            "retryInterval": "5s",
            "timeout": "3m",
        });
        merge(&mut spec, fields);
        let manifest = json!({
            "apiVersion": VERSION,
            "kind": "Kustomization",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        });
        create(&self.kubectl, &manifest).await
    }

    /// Waits until a Kustomization has applied a commit, and is ready.
    ///
    /// # Errors
    /// When that takes too long, or Flux has ended.
    pub async fn synced(&self, name: &str, commit: &str) -> Result<()> {
        self.request("gitrepository", SOURCE).await?;
        let revision = format!("{BRANCH}@sha1:{commit}");
        wait_for(&format!("{name} to be applied"), LONG, async || {
            self.must_run()?;
            let status = self.status(name).await?;
            let is_applied = status["lastAppliedRevision"] == revision.as_str();
            done_if(
                is_applied && is_ready(&status),
                format!("{status}, not at {revision}"),
            )
        })
        .await
    }

    /// Has a Kustomization reconciled, which puts back what differs from Git, and waits for its end.
    ///
    /// # Errors
    /// Same as [`Flux::synced`], and when it is at another commit afterwards.
    pub async fn reconcile(&self, name: &str) -> Result<()> {
        let before = self.status(name).await?;
        let token = self.request("kustomization", name).await?;
        let what = format!("{name} to be reconciled");
        let after = wait_for(&what, LONG, async || {
            self.must_run()?;
            let status = self.status(name).await?;
            let is_handled = status["lastHandledReconcileAt"] == token.as_str();
            Ok(match is_handled && is_ready(&status) {
                true => Attempt::Done(status),
                false => Attempt::NotYet(status.to_string()),
            })
        })
        .await?;
        let revision = |status: &Value| status["lastAppliedRevision"].clone();
        ensure!(revision(&before) == revision(&after), "{before}, {after}");
        Ok(())
    }

    /// Asks for an object to be reconciled, and returns the token of this request.
    async fn request(&self, kind: &str, name: &str) -> Result<String> {
        let token = random_hex()?;
        let request = format!("reconcile.fluxcd.io/requestedAt={token}");
        let annotate = ["annotate", "--overwrite", kind, name, &request];
        let annotate = [&annotate[..], &["--namespace", &self.namespace]].concat();
        self.kubectl.run(&annotate).await?;
        Ok(token)
    }

    async fn status(&self, name: &str) -> Result<Value> {
        let kustomization = self.kustomizations.get(name).await?;
        Ok(kustomization.data["status"].clone())
    }

    fn must_run(&self) -> Result<()> {
        self.processes.iter().try_for_each(Process::must_run)
    }
}

fn is_ready(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    ready.any(|condition| condition["status"] == "True")
}

fn kustomizations(client: &Client, namespace: &str) -> Result<Api<DynamicObject>> {
    let kind = json!({"apiVersion": VERSION, "kind": "Kustomization"});
    api_of(client, Some(namespace), &kind)
}

async fn create(kubectl: &Tool, manifest: &Value) -> Result<()> {
    let create = ["create", "--filename=-"];
    let created = kubectl.run_with_input(&create, &manifest.to_string()).await;
    created.map(drop)
}

async fn run(beside: &Beside) -> Result<Vec<Process>> {
    let storage = free_port()?;
    let artifacts = format!("127.0.0.1:{storage}");
    let of_source = [
        format!("--storage-path={}", beside.folder("artifacts")?.display()),
        format!("--storage-addr={artifacts}"),
        format!("--storage-adv-addr={artifacts}"),
    ];
    let mut processes = Vec::new();
    for (name, own) in [
        ("source-controller", &of_source[..]),
        ("kustomize-controller", &[][..]),
    ] {
        let health = free_port()?;
        let common = [
            format!("--health-addr=127.0.0.1:{health}"),
            format!("--metrics-addr=127.0.0.1:{}", free_port()?),
            "--watch-all-namespaces=false".to_owned(),
            "--enable-leader-election=false".to_owned(),
        ];
        let args = [own, &common].concat();
        processes.push(beside.run(name, name, &args, health).await?);
    }
    Ok(processes)
}

const VERSION: &str = "kustomize.toolkit.fluxcd.io/v1";
/// Name of the GitRepository.
const SOURCE: &str = "repository";
