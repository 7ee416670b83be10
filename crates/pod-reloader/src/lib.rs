//! Restarts pods when the ConfigMaps and Secrets that they read change.
//!
//! The operator is [`main`]. A group of modules below uses those above it, which `make lint` checks.

mod logging;

mod metrics;

mod report;

mod restart;
mod webhook;

mod release_test;
mod run;

use std::process::ExitCode;
use std::{future, thread};

use pod_reloader_core::error::chain;
use pod_reloader_live as live;
use pod_reloader_runtime as runtime;
#[cfg(test)]
use pod_reloader_runtime::mock;
use pod_reloader_settings::Args;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use tokio::runtime::Builder;

use self::release_test::ReleaseTest;

/// Runs the operator with the arguments and the environment of the process.
pub fn main() -> ExitCode {
    forbid_core_dumps();
    let arguments = std::env::args_os().skip(1);
    let arguments = arguments.map(|it| it.to_string_lossy().into_owned());
    match ReleaseTest::of(arguments) {
        Ok(None) => {}
        Ok(Some(test)) => return test.main(),
        Err(error) => {
            eprintln!("{}", chain(&error));
            return ExitCode::FAILURE;
        }
    }
    let args = Args::of_process();
    logging::init(args.log_format, args.log_level);
    runtime::server::allow_connections();
    // One thread serves the webhook and one runs the loop. So a fan-out keeps no review waiting, and
    // nothing is handed from thread to thread.
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
            tracing::error!(error = chain(&error), "stopped");
            ExitCode::FAILURE
        }
    }
}

/// Prevents memory from being written to a file, or read by another process of the same user. It holds
/// keys, and the parts of Secrets that are being hashed.
fn forbid_core_dumps() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // If the system refuses, we run without this protection, which is no reason not to run.
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
