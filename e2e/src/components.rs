//! The components of a control plane, and the options it is started with.

use std::{path::PathBuf, time::Duration};

/// The oldest version of Kubernetes that the operator supports, and that `make test` builds.
pub const OLDEST_KUBERNETES: &str = "1.30";

/// Options for starting a [`ControlPlane`](crate::ControlPlane).
#[derive(Clone, Debug)]
pub struct ControlPlaneOptions {
    /// Minor version of Kubernetes to take, such as `1.30`; by default, the current one. Those that there are
    /// have folders in `control-plane/versions`.
    pub kubernetes: Option<String>,
    /// Number of nodes that kwok plays.
    pub nodes: usize,
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
            nodes: 2,
            apiserver_args: Vec::new(),
            parent: None,
            keep: false,
            // Tests start several at once.
            patience: Duration::from_secs(180),
        }
    }
}

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
    /// kwok, which plays the kubelets.
    Kwok,
    /// The cert-manager controllers for self-signed and CA issuers, and its injector of CA bundles.
    CertManager,
}

impl Component {
    /// All components in an order in which they can be started. They are stopped in reverse: an apiserver
    /// without etcd does not end on SIGTERM.
    pub const ALL: [Self; 6] = [
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
}
