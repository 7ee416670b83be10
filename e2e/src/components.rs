//! The components of a control plane, and the options it is started with.

use std::{path::PathBuf, time::Duration};

/// The options of a [`ControlPlane`](crate::ControlPlane).
#[derive(Clone, Debug)]
pub struct ControlPlaneOptions {
    /// Which kube-apiserver runs.
    pub version: Version,
    /// How many nodes kwok plays.
    pub nodes: usize,
    /// More arguments for kube-apiserver; one given twice counts as the last says.
    pub apiserver_args: Vec<String>,
    /// Where the directory with data and logs is made; without it, where the system has such things.
    pub parent: Option<PathBuf>,
    /// Leaves that directory behind.
    pub keep: bool,
    /// How long one component may take to become ready.
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

/// The kube-apiserver of a control plane; all other components are the same for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The one that the other components belong to.
    Current,
    /// An older one, which lacks what newer ones have.
    Older,
}

/// A process of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The store.
    Etcd,
    /// kube-apiserver.
    Apiserver,
    /// kube-controller-manager.
    ControllerManager,
    /// kube-scheduler.
    Scheduler,
    /// kwok, which plays the kubelets.
    Kwok,
    /// cert-manager: its controllers for self-signed and CA issuers, and its injector of CA bundles.
    CertManager,
}

impl Component {
    /// In an order in which they can be started. They are stopped the other way round: an apiserver
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
