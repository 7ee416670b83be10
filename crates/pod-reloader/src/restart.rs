//! The controller that restarts workloads.
//!
//! A feature is one file, or a folder if it has several parts: `memory.rs` is what it remembers beyond one workload,
//! `restraint.rs` what holds a restart back, and `watch.rs` what it watches. What it remembers of each workload is a part of
//! [`memory::WorkloadMemory`].
//!
//! Features know what `parts` has, and each other in one direction. `intake` tells them of workloads, and
//! `workload_writes` writes for them. `restraints` lists what may hold a restart back, `reconcile` is the pass that asks the
//! features in turn, and `watch` brings it what happens in the cluster.
//!
//! A feature whose field is an `Option` is not built if the operator's settings switch it off, so nothing asks it.

mod action;
mod api_groups;
mod brake;
mod certificates;
mod clock;
pub(crate) mod controller;
mod cron_jobs;
mod deleted;
mod digests;
mod error;
mod gates;
mod http_reload;
mod intake;
mod kinds;
mod left_out;
mod lists;
pub(crate) mod loop_status;
mod memory;
mod moment;
mod namespaces;
mod parts;
mod passes;
mod pins;
pub(crate) mod progress;
pub(crate) mod recent_writes;
pub(crate) mod reconcile;
mod releases;
mod reload_rounds;
mod restraint;
mod restraints;
mod rotations;
pub(crate) mod settings;
mod settle;
mod slots;
mod stages;
mod stuck;
mod together;
pub(crate) mod watch;
mod workload_writes;
mod workloads;
