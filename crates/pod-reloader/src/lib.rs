//! Restarts pods when the ConfigMaps and Secrets that they read change.
//!
//! The operator is [`main`]; its command line is [`args`], which also says how others are to read its
//! settings. What else is public, the plugin for kubectl uses as well.

mod admin;
pub mod args;
mod authority;
mod budget;
mod certificate;
mod client;
mod cron_jobs;
mod custom;
mod digests;
mod error;
mod events;
mod keys;
mod leader;
mod logging;
mod metrics;
#[cfg(test)]
mod mock;
mod namespaces;
mod notify;
mod objects;
mod progress;
mod pulse;
mod queue;
mod reconcile;
mod resources;
mod run;
mod server;
pub mod serving;
mod source;
mod watch;
mod webhook;
mod workloads;

pub use crate::error::chain;

use std::process::ExitCode;
use std::{future, thread};

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use tokio::runtime::Builder;

/// Runs the operator with the arguments and the environment of the process.
pub fn main() -> ExitCode {
    forbid_core_dumps();
    let args = args::Args::of_process();
    logging::init(args.log_format, args.log_level);
    server::allow_connections();
    // One thread for the webhook, and one for the loop: a fan-out keeps no review waiting, and nothing is
    // handed from thread to thread.
    let runtime = || Builder::new_current_thread().enable_all().build();
    let threads = "a runtime needs threads, which this process may not have";
    let (serving, reconciling) = (runtime().expect(threads), runtime().expect(threads));
    let loop_runtime = reconciling.handle().clone();
    let _ended_with_the_process = thread::Builder::new()
        .name("reconcile".to_owned())
        .spawn(move || reconciling.block_on(future::pending::<()>()))
        .expect(threads);
    let outcome = serving.block_on(run::run(args, &loop_runtime));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = error::chain(&error), "stopped");
            ExitCode::FAILURE
        }
    }
}

/// Keeps memory, which holds keys and what of Secrets is just being hashed, from ever being written to
/// a file, or read by another process of the same user.
fn forbid_core_dumps() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // Where the system refuses, it is as it would be without: no reason not to run.
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
