//! Runs a control plane, or joins one that a parent process runs.

use std::{
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client,
    api::PostParams,
    discovery::{ApiGroup, Discovery},
};
use serde_json::{Value, json};

use crate::{
    audit::AuditLog,
    components::{Component, ControlPlaneOptions, Nodes, RealNode},
    credentials::User,
    description::{CONTROL_PLANE_VARIABLE, Description},
    directory::Directory,
    kubeconfig::{KubeconfigFile, client_as, client_from},
    launch::Launch,
    machine::kill_cgroup,
    process::Process,
    programs::Programs,
    readiness::{answers, create_nodes, create_types, ready, real_node_works},
    tool::Tool,
};

/// A real control plane without containers.
///
/// # Guarantees
/// Everything listens on 127.0.0.1 only. The processes end when the value is dropped, at the latest with this
/// process (see [`Process`]).
#[derive(Debug)]
pub struct ControlPlane {
    description: Description,
    own: Option<Own>,
}

/// The state that only the process that started a control plane has.
#[derive(Debug)]
struct Own {
    processes: Vec<(Component, Process)>,
    launch: Launch,
    patience: Duration,
    // Dropped last, when nobody writes there any more.
    _directory: Directory,
}

/// Another apiserver of a control plane.
#[derive(Debug)]
pub struct AnotherApiserver {
    /// Kubeconfig of an administrator.
    pub kubeconfig: KubeconfigFile,
    /// Process of the apiserver, for sending signals. Stop it before etcd.
    pub process: Process,
}

impl ControlPlane {
    /// Starts a control plane, and waits until it works: each component answers, and the nodes are ready.
    ///
    /// # Errors
    /// When a program is missing, or a component does not become ready. Then the error includes the end of
    /// its log, and the directory with all logs is left behind.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self> {
        let mut directory = Directory::create(&options)?;
        let result = Self::start_in(&directory, &options).await;
        if result.is_err() {
            directory.keep();
        }
        let (description, launch, processes) = result
            .with_context(|| format!("starting a control plane in {}", directory.path.display()))?;
        let own = Own {
            processes,
            launch,
            patience: options.patience,
            _directory: directory,
        };
        Ok(Self {
            description,
            own: Some(own),
        })
    }

    /// Joins the control plane that [`CONTROL_PLANE_VARIABLE`] names.
    ///
    /// # Errors
    /// When the variable is not set, or does not name a control plane.
    pub fn connect() -> Result<Self> {
        let description = Description::from_environment()?.with_context(|| {
            format!(
                "{CONTROL_PLANE_VARIABLE} is not set: run this under `control-plane -- COMMAND`"
            )
        })?;
        Ok(Self {
            description,
            own: None,
        })
    }

    /// Returns the same control plane for one of several users, who leave it as they have found it: for them, it is not their
    /// own. It ends with `self`.
    #[must_use]
    pub fn joined(&self) -> Self {
        Self {
            description: self.description.clone(),
            own: None,
        }
    }

    /// Stops everything, etcd last, and waits for the end. Does nothing to a control plane that was joined.
    pub async fn stop(self) {
        let Some(own) = self.own else { return };
        for (component, process) in own.processes.iter().rev() {
            process.stop(STOP_PATIENCE).await;
            // Nobody would start them again, and the apiserver need not wait for their connections.
            if let (Component::Kubelet, Some(node)) = (component, &self.description.real_node) {
                kill_cgroup(&node.cgroup);
            }
        }
    }

    /// Returns true if it was started here, so that nobody else uses it.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns its location, and how to reach it.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns the node on which pods really run; `None` if kwok plays the nodes.
    pub fn real_node(&self) -> Option<&RealNode> {
        self.description.real_node.as_ref()
    }

    /// Starts the parts of a real node again whenever they end, as systemd does on every node. Never returns.
    ///
    /// # Errors
    /// When one cannot be started, or this control plane was joined.
    pub async fn keep_node_running(&self) -> Result<Infallible> {
        let processes = self.own()?.processes.iter();
        let of_node = processes.filter(|(component, _)| component.is_of_real_node());
        let never = of_node.map(|(_, process)| process.keep_running());
        try_join_all(never).await?;
        std::future::pending().await
    }

    /// Returns the URL of the apiserver.
    pub fn api_url(&self) -> &str {
        &self.description.api_url
    }

    /// Returns the CA of the apiserver, in PEM.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub fn ca_pem(&self) -> Result<String> {
        let path = &self.description.certificate_authority;
        fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
    }

    /// Returns the kubeconfig of a user in `system:masters`.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.description.kubeconfig
    }

    /// Returns a kubeconfig for the holder of `token`. Change its server to go through a proxy.
    pub fn kubeconfig_for(&self, token: String) -> KubeconfigFile {
        KubeconfigFile {
            server: self.description.api_url.clone(),
            certificate_authority: self.description.certificate_authority.clone(),
            token,
        }
    }

    /// Requests a new token of a service account, as a pod has it.
    ///
    /// # Errors
    /// When there is no such account.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin_client().await?, namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(24 * 60 * 60),
                ..Default::default()
            },
            ..Default::default()
        };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("asking for a token of {namespace}/{name}"))?;
        Ok(answer
            .status
            .context("no status in the token request")?
            .token)
    }

    /// Returns a client in `system:masters` for the current runtime. It never repeats a request.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn admin_client(&self) -> Result<Client> {
        client_from(&self.description.kubeconfig).await
    }

    /// Returns a client of a user, who may do what RBAC says.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client_as(&self, user: &str) -> Result<Client> {
        client_as(&self.description.kubeconfig, user).await
    }

    /// Returns kubectl, as admin.
    pub fn kubectl(&self) -> Tool {
        self.tool("kubectl")
    }

    /// Tells whether the apiserver serves a resource, such as `deployments.apps`.
    ///
    /// # Errors
    /// When the apiserver does not answer.
    pub async fn serves(&self, resource: &str) -> Result<bool> {
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let discovery = Discovery::new(self.admin_client().await?).filter(&[group]);
        let discovery = discovery.run_aggregated().await?;
        let is_served = |group: &ApiGroup| {
            let mut versions = group.versions();
            versions.any(|version| {
                let resources = group.versioned_resources(version);
                resources.iter().any(|(served, _)| served.plural == plural)
            })
        };
        Ok(discovery.groups().any(is_served))
    }

    /// Returns helm 4, as admin.
    pub fn helm(&self) -> Tool {
        self.tool("helm")
    }

    /// Returns helm 3, as admin.
    pub fn helm3(&self) -> Tool {
        self.tool("helm3")
    }

    fn tool(&self, name: &str) -> Tool {
        let Description {
            kubeconfig,
            directory,
            ..
        } = &self.description;
        Tool::new(self.bin(name), kubeconfig.clone(), directory.clone())
    }

    /// Returns the path of one of the programs.
    pub fn bin(&self, name: &str) -> PathBuf {
        Programs::at(&self.description.programs).program(name)
    }

    /// Returns the file to which the apiserver writes its audit events.
    pub fn audit_log_path(&self) -> &Path {
        &self.description.audit_log
    }

    /// Returns the audit log: the requests to the apiserver.
    ///
    /// # Errors
    /// Same as [`ControlPlane::admin_client`].
    pub async fn audit_log(&self) -> Result<AuditLog> {
        Ok(AuditLog::new(
            self.description.audit_log.clone(),
            self.admin_client().await?,
        ))
    }

    /// Returns the directory with one log for each process.
    pub fn logs_dir(&self) -> &Path {
        &self.description.logs
    }

    /// Returns etcd's data directory. To play a restore, copy it while etcd is stopped, and swap it in later.
    pub fn etcd_data_dir(&self) -> PathBuf {
        self.description.directory.join("etcd")
    }

    /// Returns one process, to pause, kill or start again.
    ///
    /// # Errors
    /// When this control plane was joined, not started.
    pub fn process(&self, component: Component) -> Result<&Process> {
        self.own()?
            .processes
            .iter()
            .find_map(|(of, process)| (*of == component).then_some(process))
            .context("start() has started every component")
    }

    /// Makes etcd forget all revisions except the latest, as an apiserver does every five minutes.
    ///
    /// # Errors
    /// When this control plane was joined, or etcd does not answer.
    pub async fn compact(&self) -> Result<()> {
        let health = self.own()?.launch.health(Component::Etcd);
        let (etcd, _) = health.context("etcd has a port")?;
        let client = etcd.client().await?;
        let ask = async |path: &str, body: Value| {
            let request = http::Request::post(path).body(body.to_string().into_bytes())?;
            let answer = client.request_text(request).await?;
            anyhow::Ok(serde_json::from_str::<Value>(&answer)?)
        };
        let status = ask("/v3/maintenance/status", json!({})).await?;
        let revision = &status["header"]["revision"];
        ask(
            "/v3/kv/compaction",
            json!({"revision": revision, "physical": true}),
        )
        .await
        .map(|_| ())
    }

    /// Starts a second apiserver on the same etcd, and waits until it is ready. Its certificate is issued by
    /// the same CA. The audit log does not contain its requests.
    ///
    /// # Errors
    /// When this control plane was joined, or the apiserver does not become ready.
    pub async fn start_another_apiserver(&self) -> Result<AnotherApiserver> {
        let own = self.own()?;
        let (kubeconfig, program) = own.launch.another_apiserver()?;
        let process = Process::start(program)?;
        answers(&kubeconfig, "/readyz", &process, own.patience).await?;
        Ok(AnotherApiserver {
            kubeconfig,
            process,
        })
    }

    /// Stops one component, starts it again, and waits until it is ready.
    ///
    /// # Errors
    /// When this control plane was joined, or the component does not come back.
    pub async fn restart(&self, component: Component) -> Result<()> {
        let process = self.process(component)?;
        process.stop(STOP_PATIENCE).await;
        process.start_again()?;
        self.ready(component).await
    }

    /// Waits until a component answers.
    ///
    /// # Errors
    /// When this control plane was joined, or the component does not become ready.
    pub async fn ready(&self, component: Component) -> Result<()> {
        let own = self.own()?;
        ready(
            &own.launch,
            component,
            self.process(component)?,
            own.patience,
        )
        .await
    }

    fn own(&self) -> Result<&Own> {
        self.own
            .as_ref()
            .context("this control plane belongs to another process: start one to break it")
    }

    async fn start_in(
        directory: &Directory,
        options: &ControlPlaneOptions,
    ) -> Result<(Description, Launch, Vec<(Component, Process)>)> {
        let programs = match options.nodes {
            Nodes::Played(_) => Programs::find()?,
            Nodes::Real(_) => Programs::find_with_real_node()?,
        };
        if let Some(version) = &options.kubernetes {
            programs.must_have_version(version)?;
        }
        let launch = Launch::prepare(&directory.path, programs.clone(), options)?;
        let description = Description {
            directory: launch.directory.clone(),
            api_url: launch.api_url(),
            certificate_authority: launch.credentials.ca.clone(),
            kubeconfig: launch.kubeconfig(User::Admin),
            programs: programs.directory().to_owned(),
            audit_log: launch.audit_log.clone(),
            logs: launch.logs.clone(),
            real_node: options.nodes.real().cloned(),
        };
        description.write()?;

        let start = async |component| {
            let process = Process::start(launch.program(component))?;
            ready(&launch, component, &process, options.patience).await?;
            anyhow::Ok((component, process))
        };
        let mut processes = vec![
            start(Component::Etcd).await?,
            start(Component::Apiserver).await?,
        ];
        let is_wanted = |component: Component| !options.without.contains(&component);
        let cluster = async {
            let mut processes = vec![start(Component::ControllerManager).await?];
            if is_wanted(Component::Scheduler) {
                processes.push(start(Component::Scheduler).await?);
            }
            for component in options.nodes.components() {
                if is_wanted(*component) {
                    processes.push(start(*component).await?);
                }
            }
            let client = client_from(&description.kubeconfig).await?;
            let patience = options.patience;
            match options.nodes {
                Nodes::Played(count) => {
                    let count = if is_wanted(Component::Kwok) { count } else { 0 };
                    create_nodes(client, count, patience).await?;
                }
                Nodes::Real(_) => {
                    real_node_works(client, &launch.through_service(), patience).await?;
                }
            }
            anyhow::Ok(processes)
        };
        // New types take the apiserver a second or two, in which the others can start.
        let cert_manager = async {
            if !is_wanted(Component::CertManager) {
                return anyhow::Ok(None);
            }
            let kubectl = launch.tool("kubectl");
            create_types(&kubectl, &launch.cert_manager_types(), options.patience).await?;
            Ok(Some(start(Component::CertManager).await?))
        };
        let (cluster, cert_manager) = tokio::try_join!(cluster, cert_manager)?;
        processes.extend(cluster);
        processes.extend(cert_manager);
        Ok((description, launch, processes))
    }
}

const STOP_PATIENCE: Duration = Duration::from_secs(15);
