//! The controller that restarts workloads.

mod action;
pub(crate) mod brakes;
mod certificates;
pub(crate) mod controller;
mod copies;
mod cron_jobs;
mod deleted;
mod digests;
mod error;
mod fingerprints;
mod lists;
mod memory;
mod namespaces;
mod passes;
pub(crate) mod progress;
pub(crate) mod reconcile;
mod releases;
mod reloads;
mod rotations;
mod rounds;
pub(crate) mod settings;
mod slots;
mod stages;
mod stuck;
mod trials;
pub(crate) mod watch;
mod workloads;
