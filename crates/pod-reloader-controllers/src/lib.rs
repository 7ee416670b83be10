//! The controllers beside the one that restarts workloads. Each has a folder here, and knows no other.
//!
//! A function of each makes a [`Controller`](pod_reloader_runtime::controller::Controller) with a
//! [`Kit`](pod_reloader_runtime::kit::Kit). It shows metrics of its own. The operator decides which of them run, and in
//! which process.

pub mod bind;
pub mod keep;
pub mod sync;

use pod_reloader_live as live;
use pod_reloader_runtime as runtime;
#[cfg(test)]
use pod_reloader_runtime::mock;
