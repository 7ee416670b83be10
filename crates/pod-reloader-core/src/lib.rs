//! The rules of pod-reloader: references, digests, config hashes and decisions, without I/O.
//!
//! Everything here takes values and returns values; the operator fetches and writes. Read the modules in
//! the order below: each group uses only those above it, which `make lint` checks.

pub mod annotations;
pub mod api_discovery;
mod conditions;
pub mod duration;
pub mod error;
pub mod foreign;
pub mod item;
pub mod kind;
mod list;
mod managers;
mod manifest;
pub mod mark;
mod metadata;
pub mod name;
mod name_regex;
mod operation;
pub mod raw;
pub mod ready;
pub mod reference;
pub mod release;
pub mod room;
pub mod selector;
pub mod texts;
pub mod window;
pub mod words;

pub mod dialect;
pub mod discovery;
pub mod extent;
pub mod staging;

pub mod config_sync;
pub mod digest;
pub mod gate;
pub mod hash;
pub mod http_reload;
pub mod pins;
pub mod revision;
pub mod seal;
pub mod secret_provider_class;
pub mod together;

pub mod claim;
pub mod field_binding;
pub mod references;

pub mod dialects;

pub mod advice;
pub mod brake;
pub mod object;
pub mod review;
pub mod sap;
pub mod scope;
mod weight;
pub mod workload;

pub mod certificates;
pub mod copies;
pub mod cron_job;
pub mod index;
pub mod limit;
mod owner;
pub mod stuck;
pub mod trials;

pub mod decision;

pub mod reload_round;
pub mod rotation;
pub mod stages;

pub mod kept;
pub mod lasting;
pub mod patch;
pub mod pinned_pod;
pub mod protect;
pub mod slim;
pub mod sync_status;

pub mod admission;
pub mod migration;
pub mod plan;
pub mod readers;

#[cfg(test)]
mod fixtures;
