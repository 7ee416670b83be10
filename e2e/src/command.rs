//! Runs a command on a control plane, or tells a shell how to reach it.

use std::{
    env, ffi::OsString, io::IsTerminal, os::unix::process::ExitStatusExt, path::Path,
    process::ExitStatus,
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tracing_subscriber::EnvFilter;

use crate::{
    control_plane::ControlPlane, description::CONTROL_PLANE_VARIABLE, stop_signals::StopSignals,
};

/// Writes the log of a program that runs a control plane to stderr. `RUST_LOG` filters it.
pub fn log_to_stderr() {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| LOG_FILTER.into()))
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

/// Runs a command with `KUBECONFIG` and `PATH` set for a control plane, and returns its exit code.
///
/// # Errors
/// When it cannot be run.
pub async fn run(
    control_plane: &ControlPlane,
    program: &OsString,
    arguments: &[OsString],
    stop: &mut StopSignals,
) -> Result<u8> {
    let mut command = Command::new(program);
    command.args(arguments).kill_on_drop(true);
    for (name, value) in environment(control_plane)? {
        command.env(name, value);
    }
    let mut child = command
        .spawn()
        .with_context(|| format!("running {}", Path::new(program).display()))?;
    let pid = pid_of(&child);
    let status = status_of(&mut child, stop, |signal| {
        // Ctrl-C reaches the command itself, too, which decides when to end.
        if signal == Signal::TERM {
            forward(signal, pid);
        }
    })
    .await?;
    Ok(exit_code(status))
}

/// Waits for the end of a child. Each stop signal that comes meanwhile is handed to `on_signal`.
pub(crate) async fn status_of(
    child: &mut Child,
    stop: &mut StopSignals,
    mut on_signal: impl FnMut(Signal),
) -> Result<ExitStatus> {
    loop {
        tokio::select! {
            status = child.wait() => return Ok(status?),
            signal = stop.next() => on_signal(signal),
        }
    }
}

/// Returns the exit code that a shell reports for a status.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Returns the process id of a child; `None` if it has ended.
pub(crate) fn pid_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| Pid::from_raw(id.cast_signed()))
}

/// Sends a signal on. A process that has just ended is fine: its parent is about to notice.
pub(crate) fn forward(signal: Signal, pid: Option<Pid>) {
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}

/// Prints the variables that a shell exports to use a control plane.
pub fn introduce(control_plane: &ControlPlane) {
    let description = control_plane.description();
    println!("export KUBECONFIG={}", description.kubeconfig.display());
    println!(
        "export {CONTROL_PLANE_VARIABLE}={}",
        description.directory.display()
    );
    println!("export PATH={}$PATH", paths(&description.programs));
    eprintln!(
        "logs are in {}; Ctrl-C stops it",
        description.logs.display()
    );
}

/// Returns the folders of programs, each with a colon: those of the control plane, and that of the plugin if it was built.
fn paths(programs: &Path) -> String {
    let mut paths = format!("{}:", programs.display());
    let built = env::current_exe().ok();
    if let Some(built) = built.as_deref().and_then(Path::parent)
        && built.join("kubectl-pod_reloader").exists()
    {
        paths += &format!("{}:", built.display());
    }
    paths
}

fn environment(control_plane: &ControlPlane) -> Result<[(&'static str, OsString); 3]> {
    let description = control_plane.description();
    let mut path = vec![description.programs.clone()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    Ok([
        ("KUBECONFIG", description.kubeconfig.clone().into()),
        (CONTROL_PLANE_VARIABLE, description.directory.clone().into()),
        ("PATH", env::join_paths(path)?),
    ])
}

/// Leaves out the client's complaints about components that are not up yet.
const LOG_FILTER: &str = "info,kube_client=off";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_a_signal_ends_gives_the_code_of_a_shell() -> Result<()> {
        let status = std::process::Command::new("sh")
            .args(["-c", "kill -KILL $$"])
            .status()?;

        assert_eq!(exit_code(status), 128 + 9);
        Ok(())
    }
}
