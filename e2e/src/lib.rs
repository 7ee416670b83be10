//! End-to-end tests and demo of pod-reloader on a real control plane.
//!
//! [`ControlPlane`] runs etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok as
//! processes of this machine; [`AuditLog`] tells who asked the apiserver for what; [`Tool`] runs
//! kubectl and helm on it.

mod audit;
mod control_plane;
mod credentials;
mod description;
mod directory;
mod kubeconfig;
mod launch;
mod process;
mod programs;
mod readiness;
mod tool;
mod wait;

pub use audit::{AuditEvent, AuditLog, Mark};
pub use control_plane::{Component, ControlPlane, ControlPlaneOptions};
pub use description::{CONTROL_PLANE_VARIABLE, Description};
pub use kubeconfig::KubeconfigFile;
pub use process::{Process, Program};
pub use programs::{PROGRAMS_VARIABLE, Programs};
pub use tool::{Output, Tool};
pub use wait::{Attempt, wait_for};
