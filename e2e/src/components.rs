//! The components of a control plane, and the options it is started with.

use std::{path::PathBuf, time::Duration};

/// Options for starting a [`ControlPlane`](crate::ControlPlane).
#[derive(Clone, Debug)]
pub struct ControlPlaneOptions {
    /// Version of kube-apiserver.
    pub version: Version,
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
            version: Version::Current,
            nodes: 2,
            apiserver_args: Vec::new(),
            parent: None,
            keep: false,
            // Tests start several at once.
            patience: Duration::from_secs(180),
        }
    }
}

/// The version of kube-apiserver; all other components are the same for both versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The version of the other components.
    Current,
    /// An older version, which lacks what newer ones have.
    Older,
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
}
