//! The controllers beside the one that restarts workloads. Each has a folder here, and knows no other.
//!
//! A controller is a type that implements [`Terms`](pod_reloader_runtime::controller::Terms). It is built with a
//! [`Kit`](pod_reloader_runtime::kit::Kit) and shows metrics of its own. The operator decides which of them run, and in
//! which process.

pub mod bind;
pub mod keep;
pub mod sync;

use pod_reloader_live as live;
use pod_reloader_runtime as runtime;
#[cfg(test)]
use pod_reloader_runtime::mock;
