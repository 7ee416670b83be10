//! The components of a control plane, and the options it is started with.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The oldest version of Kubernetes that the operator supports, and that `make test` builds.
pub const OLDEST_KUBERNETES: &str = "1.30";

/// Options for starting a [`ControlPlane`](crate::ControlPlane).
#[derive(Clone, Debug)]
pub struct ControlPlaneOptions {
    /// Minor version of Kubernetes to take, such as `1.30`; by default, the current one. Those that there are
    /// have folders in `control-plane/versions`.
    pub kubernetes: Option<String>,
    /// Its nodes.
    pub nodes: Nodes,
    /// What it does without: the scheduler, kwok, cert-manager. Without kwok, there are no played nodes.
    pub without: &'static [Component],
    /// Further arguments of kube-apiserver. If one is given twice, the last one wins.
    pub apiserver_args: Vec<String>,
    /// Directory in which to create the one with data and logs; by default, the system's temporary directory.
    pub parent: Option<PathBuf>,
    /// True to leave that directory behind.
    pub keep: bool,
    /// Time limit for one component to become ready.
    pub patience: Duration,
}

impl Default for ControlPlaneOptions {
    fn default() -> Self {
        Self {
            kubernetes: None,
            nodes: Nodes::Played(Nodes::DEFAULT),
            without: &[],
            apiserver_args: Vec::new(),
            parent: None,
            keep: false,
            // Tests start several at once.
            patience: Duration::from_secs(180),
        }
    }
}

impl ControlPlaneOptions {
    /// Returns the defaults, without cert-manager and its types.
    pub fn without_cert_manager() -> Self {
        Self {
            without: &[Component::CertManager],
            ..Self::default()
        }
    }

    /// Returns the defaults, without cert-manager and without what lets pods run. Workloads get their revisions and
    /// pods all the same.
    pub fn without_running_pods() -> Self {
        Self {
            without: &[
                Component::Scheduler,
                Component::Kwok,
                Component::CertManager,
            ],
            ..Self::default()
        }
    }
}

/// The nodes of a control plane.
#[derive(Clone, Debug)]
pub enum Nodes {
    /// So many nodes that kwok plays: no container runs.
    Played(usize),
    /// This machine, on which pods run.
    Real(RealNode),
}

impl Nodes {
    /// Number of nodes that kwok plays, unless somebody asks for another one.
    pub const DEFAULT: usize = 2;

    /// Returns the real node, if it is one.
    pub(crate) fn real(&self) -> Option<&RealNode> {
        match self {
            Self::Played(_) => None,
            Self::Real(node) => Some(node),
        }
    }

    /// Returns the components that are its kubelets, in an order in which they can be started.
    pub(crate) fn components(&self) -> &'static [Component] {
        match self {
            Self::Played(_) => &[Component::Kwok],
            Self::Real(_) => &[
                Component::Containerd,
                Component::Kubelet,
                Component::KubeProxy,
            ],
        }
    }
}

/// A node with containers: the machine, or the namespaces, in which the control plane runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RealNode {
    /// Path of the cgroup that holds those of its pods, from the root of each hierarchy, such as `/name`.
    pub cgroup: String,
    /// Image that does nothing, which each pod has beside its containers.
    pub pause_image: String,
    /// Image of pods for tests, which answer with what they have read.
    pub answers_image: String,
    /// Image of the operator.
    pub operator: PushedImage,
    /// Version from which a test upgrades, if there is one.
    pub earlier: Option<EarlierVersion>,
}

impl RealNode {
    /// Name of the node.
    pub const NAME: &str = "real";
    /// Address of the node, which its pods reach.
    pub const ADDRESS: &str = "192.168.77.1";
}

/// An image of the operator in the registry of a real node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PushedImage {
    /// Its repository.
    pub repository: String,
    /// Its tag, with its digest: `TAG@sha256:...`.
    pub tag: String,
}

impl PushedImage {
    /// Returns the values of the chart that name it.
    pub fn values(&self) -> Value {
        json!({"image": {"repository": self.repository, "tag": self.tag}})
    }

    /// Returns its name in pods.
    pub fn reference(&self) -> String {
        format!("{}:{}", self.repository, self.tag)
    }
}

/// The chart of an earlier commit, and the operator of that commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EarlierVersion {
    /// Folder of the chart.
    pub chart: PathBuf,
    /// Image of the operator.
    pub operator: PushedImage,
}

/// Addresses of Services.
pub(crate) const SERVICES: &str = "10.0.0.0/16";
/// Address of the Service `kubernetes`: the first one of [`SERVICES`].
pub(crate) const KUBERNETES_SERVICE: &str = "10.0.0.1";
/// Address of the DNS server, if there is one.
pub(crate) const DNS_SERVICE: &str = "10.0.0.10";
/// Addresses of pods on a real node.
pub(crate) const PODS: &str = "10.88.0.0/16";

/// A process of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The etcd store.
    Etcd,
    /// kube-apiserver.
    Apiserver,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kwok, which plays the kubelets. It is not there with a real node.
    Kwok,
    /// containerd, on a real node.
    Containerd,
    /// The kubelet, on a real node.
    Kubelet,
    /// kube-proxy, on a real node.
    KubeProxy,
    /// The cert-manager controllers for self-signed and CA issuers, and its injector of CA bundles.
    CertManager,
}

impl Component {
    /// All components of a control plane with played nodes, in an order in which they can be started. They are
    /// stopped in reverse: an apiserver without etcd does not end on SIGTERM.
    pub const PLAYED: [Self; 6] = [
        Self::Etcd,
        Self::Apiserver,
        Self::ControllerManager,
        Self::Scheduler,
        Self::Kwok,
        Self::CertManager,
    ];

    /// Tells whether its version is that of Kubernetes.
    pub(crate) fn is_of_kubernetes(self) -> bool {
        matches!(
            self,
            Self::Apiserver | Self::ControllerManager | Self::Scheduler
        )
    }

    /// Tells whether it is a part of a real node.
    pub(crate) fn is_of_real_node(self) -> bool {
        matches!(self, Self::Containerd | Self::Kubelet | Self::KubeProxy)
    }
}
