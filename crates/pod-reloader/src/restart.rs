//! The controller that restarts workloads.

mod cron_jobs;
mod digests;
mod error;
mod namespaces;
pub(crate) mod progress;
pub(crate) mod reconcile;
pub(crate) mod watch;
mod workloads;
