//! Defines how each component of a control plane is run: its arguments, its files, its health URL.

mod real_node;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

pub(crate) use self::real_node::{CONTAINERD_SOCKET, REGISTRY};
use crate::{
    components::{Component, ControlPlaneOptions, KUBERNETES_SERVICE, RealNode, SERVICES},
    credentials::{Credentials, User},
    kubeconfig::KubeconfigFile,
    port::free_ports,
    process::Program,
    programs::Programs,
    tool::{KUBECTL_PREFERENCES, Tool},
};

/// The settings that the components of one control plane share.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) directory: PathBuf,
    pub(crate) logs: PathBuf,
    pub(crate) audit_log: PathBuf,
    pub(crate) credentials: Credentials,
    programs: Programs,
    ports: Ports,
    kubernetes: Option<String>,
    apiserver_args: Vec<String>,
    real_node: Option<RealNode>,
}

impl Launch {
    /// Chooses ports and writes the files that the components start from.
    pub(crate) fn prepare(
        directory: &Path,
        programs: Programs,
        options: &ControlPlaneOptions,
    ) -> Result<Self> {
        let logs = directory.join("logs");
        fs::create_dir_all(&logs).with_context(|| format!("creating {}", logs.display()))?;
        let launch = Self {
            audit_log: logs.join("audit.jsonl"),
            logs,
            credentials: Credentials::create(directory)?,
            ports: Ports::choose()?,
            directory: directory.to_owned(),
            programs,
            kubernetes: options.kubernetes.clone(),
            apiserver_args: options.apiserver_args.clone(),
            real_node: options.nodes.real().cloned(),
        };
        fs::write(launch.audit_policy(), AUDIT_POLICY)?;
        fs::write(launch.stages(), launch.all_stages()?)?;
        let preferences = directory.join(".kube");
        fs::create_dir_all(&preferences)?;
        fs::write(preferences.join("kuberc"), KUBECTL_PREFERENCES)?;
        for user in User::ALL {
            launch.kubeconfig_of(user).write(&launch.kubeconfig(user))?;
        }
        if let Some(node) = &launch.real_node {
            launch.write_real_node(node)?;
        }
        Ok(launch)
    }

    pub(crate) fn api_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.apiserver)
    }

    /// Returns the file with the kubeconfig of `user`.
    pub(crate) fn kubeconfig(&self, user: User) -> PathBuf {
        let name = user.name().trim_start_matches("system:");
        let name = name.replace(':', "-");
        self.directory.join(format!("{name}.kubeconfig"))
    }

    /// Returns a client's way to the apiserver through its Service.
    pub(crate) fn through_service(&self) -> KubeconfigFile {
        KubeconfigFile {
            server: format!("https://{KUBERNETES_SERVICE}:443"),
            ..self.kubeconfig_of(User::Admin)
        }
    }

    /// Returns a client's way to the health of `component`: the server, and the path to ask there. `None` for
    /// containerd, which only `ctr` asks.
    pub(crate) fn health(&self, component: Component) -> Option<(KubeconfigFile, &'static str)> {
        let Ports {
            etcd,
            controller_manager,
            scheduler,
            kwok,
            cert_manager,
            ..
        } = self.ports;
        let (server, path) = match component {
            Component::Etcd => (format!("http://127.0.0.1:{etcd}"), "/readyz"),
            Component::Apiserver => (self.api_url(), "/readyz"),
            Component::ControllerManager => (
                format!("https://127.0.0.1:{controller_manager}"),
                "/healthz",
            ),
            Component::Scheduler => (format!("https://127.0.0.1:{scheduler}"), "/healthz"),
            Component::Kwok => (format!("http://127.0.0.1:{kwok}"), "/healthz"),
            Component::CertManager => (format!("http://127.0.0.1:{cert_manager}"), "/healthz"),
            Component::Containerd => return None,
            Component::Kubelet => (format!("http://{}", real_node::KUBELET_HEALTH), "/healthz"),
            Component::KubeProxy => (format!("http://{}", real_node::KUBE_PROXY_HEALTH), "/livez"),
        };
        let client = KubeconfigFile {
            server,
            ..self.kubeconfig_of(User::Admin)
        };
        Some((client, path))
    }

    pub(crate) fn program(&self, component: Component) -> Program {
        let (name, args) = match component {
            Component::Etcd => ("etcd", self.etcd()),
            Component::Apiserver => ("kube-apiserver", self.apiserver(self.ports.apiserver)),
            Component::ControllerManager => ("kube-controller-manager", self.controller_manager()),
            Component::Scheduler => ("kube-scheduler", self.scheduler()),
            Component::Kwok => ("kwok", self.kwok()),
            Component::CertManager => ("cert-manager", self.cert_manager()),
            Component::Containerd => ("containerd", self.containerd()),
            Component::Kubelet => ("kubelet", self.kubelet()),
            Component::KubeProxy => ("kube-proxy", self.kube_proxy()),
        };
        let mut env: Vec<(OsString, OsString)> = vec![
            // kwok reads the configuration of its user: there is none in this home.
            ("HOME".into(), self.directory.clone().into()),
            // At the default of 100, the garbage collector takes four times the processor time.
            ("GOGC".into(), "400".into()),
        ];
        if component.is_of_real_node() {
            env.extend(self.env_of_real_node());
        }
        Program {
            name: name.to_owned(),
            executable: self.executable(component, name),
            args: args.into_iter().map(OsString::from).collect(),
            env,
            log: self.logs.join(format!("{name}.log")),
        }
    }

    /// Returns the file of a program. Of another version of Kubernetes, there are only the parts of Kubernetes.
    fn executable(&self, component: Component, name: &str) -> PathBuf {
        match &self.kubernetes {
            Some(version) if component.is_of_kubernetes() => {
                self.programs.of_version(version).program(name)
            }
            _ => self.programs.program(name),
        }
    }

    /// Returns another apiserver on the same etcd, with an administrator's kubeconfig for it.
    pub(crate) fn another_apiserver(&self) -> Result<(KubeconfigFile, Program)> {
        let port = free_ports().next().context("every port is taken")?;
        let program = self.program(Component::Apiserver);
        let mut args = self.apiserver(port);
        args.push(format!(
            "--audit-log-path={}",
            self.logs.join(format!("audit-{port}.jsonl")).display()
        ));
        let program = Program {
            name: format!("{} at {port}", program.name),
            args: args.into_iter().map(OsString::from).collect(),
            log: self.logs.join(format!("kube-apiserver-{port}.log")),
            ..program
        };
        let kubeconfig = KubeconfigFile {
            server: format!("https://127.0.0.1:{port}"),
            ..self.kubeconfig_of(User::Admin)
        };
        Ok((kubeconfig, program))
    }

    /// Returns the folder with the CRDs that cert-manager needs before it starts.
    pub(crate) fn cert_manager_types(&self) -> PathBuf {
        self.programs.program("cert-manager-crds")
    }

    /// Returns one of the command-line programs, as admin. Ctrl-C during the start does not reach it: the start would
    /// fail, and leave the directory with the logs behind.
    pub(crate) fn tool(&self, name: &str) -> Tool {
        Tool::new(
            self.programs.program(name),
            self.kubeconfig(User::Admin),
            self.directory.clone(),
        )
        .apart()
    }

    fn etcd(&self) -> Vec<String> {
        let clients = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peers = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        vec![
            format!("--data-dir={}", self.path("etcd")),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            // The data is gone with the test: no need to wait for the disk.
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]
    }

    fn apiserver(&self, port: u16) -> Vec<String> {
        let credentials = &self.credentials;
        let mut args = self.serving(port);
        args.extend([
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd),
            format!("--token-auth-file={}", credentials.tokens.display()),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!(
                "--service-account-key-file={}",
                credentials.service_account_public_key.display()
            ),
            format!(
                "--service-account-signing-key-file={}",
                credentials.service_account_key.display()
            ),
            format!("--service-cluster-ip-range={SERVICES}"),
            "--endpoint-reconciler-type=none".to_owned(),
            "--allow-privileged".to_owned(),
            // Ends watches on SIGTERM. Without it the apiserver waits a minute for them.
            "--shutdown-watch-termination-grace-period=5s".to_owned(),
            format!("--audit-policy-file={}", self.audit_policy().display()),
            format!("--audit-log-path={}", self.audit_log.display()),
            "--audit-log-mode=blocking".to_owned(),
            // In MB. A rotated log would hide events from a reader that holds a position.
            "--audit-log-maxsize=1000000".to_owned(),
        ]);
        if self.real_node.is_some() {
            args.extend(self.apiserver_of_real_node());
        }
        args.extend(self.apiserver_args.iter().cloned());
        args
    }

    fn controller_manager(&self) -> Vec<String> {
        let mut args = self.serving(self.ports.controller_manager);
        args.extend(self.client(User::ControllerManager));
        args.extend([
            format!(
                "--service-account-private-key-file={}",
                self.credentials.service_account_key.display()
            ),
            format!("--root-ca-file={}", self.credentials.ca.display()),
            // The defaults would make a rollout of thousands take minutes.
            "--kube-api-qps=1000".to_owned(),
            "--kube-api-burst=2000".to_owned(),
        ]);
        if self.real_node.is_none() {
            // It compiles each expression of each new policy once for each kind that the policy is about. All that comes of
            // it is a note in the policy's status. The apiserver checks and evaluates policies without it.
            let unused = "--controllers=*,-validatingadmissionpolicy-status-controller";
            args.push(unused.to_owned());
        }
        args
    }

    fn scheduler(&self) -> Vec<String> {
        let mut args = self.serving(self.ports.scheduler);
        args.extend(self.client(User::Scheduler));
        args.extend([
            "--kube-api-qps=1000".to_owned(),
            "--kube-api-burst=2000".to_owned(),
        ]);
        args
    }

    fn kwok(&self) -> Vec<String> {
        vec![
            format!("--kubeconfig={}", self.kubeconfig(User::Kwok).display()),
            format!("--config={}", self.stages().display()),
            format!("--server-address=127.0.0.1:{}", self.ports.kwok),
            "--manage-all-nodes".to_owned(),
            "--node-ip=127.0.0.1".to_owned(),
            "--cidr=10.64.0.0/10".to_owned(),
        ]
    }

    fn cert_manager(&self) -> Vec<String> {
        vec![
            format!(
                "--kubeconfig={}",
                self.kubeconfig(User::CertManager).display()
            ),
            format!("--health-address=127.0.0.1:{}", self.ports.cert_manager),
        ]
    }

    fn serving(&self, port: u16) -> Vec<String> {
        vec![
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!(
                "--tls-cert-file={}",
                self.credentials.serving_certificate.display()
            ),
            format!(
                "--tls-private-key-file={}",
                self.credentials.serving_key.display()
            ),
        ]
    }

    fn client(&self, user: User) -> Vec<String> {
        let kubeconfig = self.kubeconfig(user);
        let kubeconfig = kubeconfig.display();
        vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--leader-elect=false".to_owned(),
        ]
    }

    fn kubeconfig_of(&self, user: User) -> KubeconfigFile {
        KubeconfigFile {
            server: self.api_url(),
            certificate_authority: self.credentials.ca.clone(),
            token: self.credentials.token(user).to_owned(),
        }
    }

    fn all_stages(&self) -> Result<String> {
        let directory = self.programs.program("stages");
        let context = || format!("reading kwok's stages in {}", directory.display());
        let mut stages = String::new();
        for entry in fs::read_dir(&directory).with_context(context)? {
            stages.push_str(&fs::read_to_string(entry?.path()).with_context(context)?);
            stages.push_str("\n---\n");
        }
        Ok(stages)
    }

    fn audit_policy(&self) -> PathBuf {
        self.directory.join("audit-policy.yaml")
    }

    fn stages(&self) -> PathBuf {
        self.directory.join("stages.yaml")
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

#[derive(Debug)]
struct Ports {
    etcd: u16,
    etcd_peer: u16,
    apiserver: u16,
    controller_manager: u16,
    scheduler: u16,
    kwok: u16,
    cert_manager: u16,
}

impl Ports {
    fn choose() -> Result<Self> {
        let mut free = free_ports();
        let mut next = || free.next().context("no free port between 12000 and 32000");
        Ok(Self {
            etcd: next()?,
            etcd_peer: next()?,
            apiserver: next()?,
            controller_manager: next()?,
            scheduler: next()?,
            kwok: next()?,
            cert_manager: next()?,
        })
    }
}

/// Audit policy: whole requests of service accounts, which tests ask about; for others, who did what. It leaves out the
/// scheduler, kwok, and what controllers write into Events and the status of workloads. No test asks about these, and
/// they are most of all writes.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [kwok, system:kube-scheduler]
- level: None
  users: [system:kube-controller-manager]
  resources:
  - group: apps
    resources: [daemonsets/status, deployments/status, replicasets/status, statefulsets/status]
  - group: ''
    resources: [events]
  - group: events.k8s.io
    resources: [events]
- level: Request
  userGroups: [system:serviceaccounts]
- level: Metadata
";
