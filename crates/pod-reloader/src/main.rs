//! Restarts pods when the ConfigMaps and Secrets that they read change.

mod admin;
mod args;
mod authority;
mod certificate;
mod client;
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
mod progress;
mod queue;
mod reconcile;
mod run;
mod server;
mod source;
mod watch;
mod webhook;
mod workloads;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args = args::Args::of_process();
    logging::init(args.log_format, args.log_level);
    let runtime = tokio::runtime::Runtime::new()
        .expect("a runtime needs threads, which this process may not have");
    match runtime.block_on(run::run(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = error::chain(&error), "stopped");
            ExitCode::FAILURE
        }
    }
}
