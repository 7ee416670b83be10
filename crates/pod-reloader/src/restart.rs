//! The controller that restarts workloads.

pub(crate) mod brakes;
pub(crate) mod controller;
mod cron_jobs;
mod digests;
mod error;
mod namespaces;
pub(crate) mod progress;
pub(crate) mod reconcile;
pub(crate) mod watch;
mod workloads;

/// The name of this controller in the log and in metrics.
const CONTROLLER: &str = "restart";
