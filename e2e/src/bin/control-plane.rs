//! Runs a command on a control plane of its own, or runs a control plane until Ctrl-C.

use std::{
    env, ffi::OsString, io::IsTerminal, os::unix::process::ExitStatusExt, path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::Parser;
use pod_reloader_e2e::{CONTROL_PLANE_VARIABLE, ControlPlane, ControlPlaneOptions};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};
use tracing_subscriber::EnvFilter;

/// Starts etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok and cert-manager on
/// 127.0.0.1, runs COMMAND with KUBECONFIG and PATH set for them, stops them, and exits as COMMAND did.
/// Without COMMAND it runs until Ctrl-C.
#[derive(Parser)]
struct Args {
    /// Leave the directory with data and logs behind
    #[arg(long)]
    keep: bool,
    /// Take another version of Kubernetes, such as 1.30
    #[arg(long, value_name = "VERSION")]
    kubernetes: Option<String>,
    /// How many nodes to play
    #[arg(long, default_value_t = ControlPlaneOptions::default().nodes)]
    nodes: usize,
    /// One more argument for kube-apiserver; can be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    apiserver_arg: Vec<String>,
    /// Command to run, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| LOG_FILTER.into()))
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let mut stop = StopSignals::new()?;
    let options = ControlPlaneOptions {
        kubernetes: args.kubernetes,
        nodes: args.nodes,
        apiserver_args: args.apiserver_arg,
        keep: args.keep,
        ..ControlPlaneOptions::default()
    };
    let control_plane = tokio::select! {
        control_plane = ControlPlane::start(options) => control_plane?,
        () = stop.next() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let code = match args.command.split_first() {
        Some((program, arguments)) => run(&control_plane, program, arguments, &mut stop).await,
        None => {
            introduce(&control_plane);
            stop.next().await;
            Ok(0)
        }
    };
    tracing::info!("stopping");
    let directory = control_plane.description().directory.clone();
    control_plane.stop().await;
    if args.keep {
        eprintln!("data and logs are in {}", directory.display());
    }
    code.map(ExitCode::from)
}

async fn run(
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
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            // Ctrl-C reaches the command itself, too, which decides when to end.
            signal = stop.next_signal() => if signal == Signal::TERM { forward(signal, &child) },
        }
    };
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn forward(signal: Signal, child: &Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    // `None` means that it has just ended, which the loop is about to notice.
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}

fn introduce(control_plane: &ControlPlane) {
    let description = control_plane.description();
    println!("export KUBECONFIG={}", description.kubeconfig.display());
    println!(
        "export {CONTROL_PLANE_VARIABLE}={}",
        description.directory.display()
    );
    println!("export PATH={}:$PATH", description.programs.display());
    eprintln!(
        "logs are in {}; Ctrl-C stops it",
        description.logs.display()
    );
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

/// SIGINT and SIGTERM, received from the beginning.
struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl StopSignals {
    fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        self.next_signal().await;
    }

    async fn next_signal(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
        }
    }
}

/// Leaves out the client's complaints about components that are not up yet.
const LOG_FILTER: &str = "info,kube_client=off";

/// Exit code that a shell reports for a program that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;
