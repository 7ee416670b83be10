//! End-to-end tests and demo of pod-reloader on a real control plane.
//!
//! [`ControlPlane`] runs etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok and
//! cert-manager as processes of this machine; [`AuditLog`] shows who asked the apiserver for what;
//! [`Tool`] runs kubectl and helm on it.

pub mod answers;
mod apply;
pub mod argo;
mod audit;
mod balancer;
mod beside;
pub mod caller;
mod capability;
pub mod cluster;
pub mod command;
mod components;
mod control_plane;
pub mod crds;
mod credentials;
mod description;
mod directory;
mod etcd_copy;
mod failure;
pub mod features;
pub mod flux;
mod git;
mod git_server;
mod installation;
mod kubeconfig;
mod kubelet;
pub mod kyverno;
mod launch;
pub mod load;
mod machine;
mod mentions;
mod mounted_secret;
mod operator;
pub mod oracle;
mod oracles;
mod own_kinds;
mod port;
mod process;
mod programs;
pub mod proxy;
mod readiness;
pub mod real_scene;
pub mod receiver;
mod scene;
mod stop_signals;
mod tool;
mod usage;
mod version;
mod wait;
pub mod workload;

pub use audit::{AuditEvent, AuditLog, Mark};
pub use balancer::Balancer;
pub use capability::{has_mutating_policies, lacks_mutating_policies};
pub use components::{
    Component, ControlPlaneOptions, EarlierVersion, Nodes, OLDEST_KUBERNETES, PushedImage, RealNode,
};
pub use control_plane::{AnotherApiserver, ControlPlane};
pub use description::{CONTROL_PLANE_VARIABLE, Description};
pub use etcd_copy::{EtcdCopy, Restore};
pub use git::{BRANCH, Repository};
pub use installation::{
    Installation, OF_A_RELEASE, OF_THE_CLUSTER, VALUES_VARIABLE, delete_release, dialects,
    free_port, has_own_values, merge,
};
pub use kubeconfig::KubeconfigFile;
pub use kubelet::{Kubelet, play_test_pod};
pub use machine::MachineProcess;
pub use mentions::mentions;
pub use operator::Operator;
pub use oracles::{CANARY, Expected, FailedCalls, Oracles};
pub use own_kinds::{OwnKind, own_kinds};
pub use process::{Process, Program};
pub use programs::{PROGRAMS_VARIABLE, Programs, go_program, of_the_workspace, prometheus};
pub use real_scene::RealScene;
pub use scene::{Options, Replica, Scene, Snapshot, THIS_NAMESPACE, Tested, crowd, try_apply};
pub use stop_signals::{INTERRUPTED, StopSignals};
pub use tool::{Output, Tool};
pub use version::{OPERATOR_VARIABLE, Version, chart};
pub use wait::{Attempt, PATIENCE, done_if, done_with, wait_for};

/// Returns true if tests run at full size, which takes too long for every change: `FULL=1`.
pub fn full() -> bool {
    std::env::var_os("FULL").is_some_and(|value| value == "1")
}
