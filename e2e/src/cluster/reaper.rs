//! The first process of a PID namespace: it reaps every process whose parent has ended.

use std::{
    ffi::OsString,
    process::{Command, ExitCode},
    thread,
};

use anyhow::{Context, Result};
use rustix::{
    io::Errno,
    process::{Pid, WaitOptions, WaitStatus, wait},
};
use tokio::runtime;

use crate::{command::forward, stop_signals::StopSignals};

/// Runs a program, forwards SIGINT and SIGTERM to it, and ends as it does. The kernel kills everything in the PID
/// namespace then. Meanwhile, it reaps all others: the shims of containers, and what runs in them.
///
/// It must be called without a runtime, which might reap children, too.
///
/// # Errors
/// When the program cannot be run.
pub fn first(program: OsString, arguments: &[OsString]) -> Result<ExitCode> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Before there is a child to forward them to. The kernel ignores them here until somebody receives them.
    let mut stop = runtime.block_on(async { StopSignals::new() })?;
    let child = Command::new(&program)
        .args(arguments)
        .spawn()
        .with_context(|| format!("running {}", program.display()))?;
    let child = Pid::from_child(&child);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                loop {
                    forward(stop.next().await, Some(child));
                }
            });
        })?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => return Ok(exit_code(status)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for children"),
        }
    }
}

/// Returns the exit code that a shell reports.
fn exit_code(status: WaitStatus) -> ExitCode {
    let signal = status.terminating_signal().map(|signal| 128 + signal);
    let code = status.exit_status().or(signal);
    let code = code.and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}
