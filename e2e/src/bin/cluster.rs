//! Runs a command on a cluster with a real node, or runs such a cluster until Ctrl-C.

use std::{env, ffi::OsString, process::ExitCode};

use anyhow::Result;
use clap::Parser;
use pod_reloader_e2e::{StopSignals, cluster, command::log_to_stderr};
use tokio::runtime::Runtime;

/// Starts a control plane, and this machine as its only node: containerd, the kubelet and kube-proxy, with a registry
/// that has the operator's image, all in namespaces of their own. Runs COMMAND in there with KUBECONFIG and PATH set
/// for them, stops them, and exits as COMMAND did, or with 2 if this machine lacks something. Without COMMAND it runs
/// until Ctrl-C. Needs Linux and root. Nothing is left behind.
#[derive(Parser)]
struct Args {
    /// Leave the directory with data and logs behind
    #[arg(long)]
    keep: bool,
    /// Only print what this machine lacks, and exit with 2 if it lacks something
    #[arg(long)]
    check: bool,
    /// Be the first process inside of the namespaces. It is set by this program itself
    #[arg(long, hide = true)]
    first: bool,
    /// The cluster to run inside of the namespaces. It is set by this program itself
    #[arg(long, hide = true, value_name = "JSON")]
    inside: Option<String>,
    /// Command to run, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if args.first {
        // It stands in front of the others.
        let again: Vec<_> = env::args_os().skip(2).collect();
        return cluster::first(env::current_exe()?.into(), &again);
    }
    log_to_stderr();
    Runtime::new()?.block_on(async {
        let mut stop = StopSignals::new()?;
        let code = match &args.inside {
            Some(plan) => cluster::inside(plan, &args.command, &mut stop).await,
            None if args.check => cluster::check().await,
            None => cluster::isolate(args.keep, &args.command, &mut stop).await,
        };
        code.map(ExitCode::from)
    })
}
