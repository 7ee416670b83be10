//! Runs a command on a control plane of its own, or runs a control plane until Ctrl-C.

use std::{ffi::OsString, process::ExitCode};

use anyhow::Result;
use clap::Parser;
use pod_reloader_e2e::{
    ControlPlane, ControlPlaneOptions, INTERRUPTED, Nodes, StopSignals,
    command::{introduce, log_to_stderr, run},
};

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
    #[arg(long, default_value_t = Nodes::DEFAULT)]
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
    log_to_stderr();
    let mut stop = StopSignals::new()?;
    let options = ControlPlaneOptions {
        kubernetes: args.kubernetes,
        nodes: Nodes::Played(args.nodes),
        apiserver_args: args.apiserver_arg,
        keep: args.keep,
        ..ControlPlaneOptions::default()
    };
    let control_plane = tokio::select! {
        control_plane = ControlPlane::start(options) => control_plane?,
        _ = stop.next() => return Ok(ExitCode::from(INTERRUPTED)),
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
