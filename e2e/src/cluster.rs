//! A cluster of one node on which pods really run, in namespaces of its own.
//!
//! Three processes of one program are needed for it:
//! 1. [`isolate`] checks what is missing, makes the cgroup and the directory, and starts the second one in new
//!    namespaces. In the end it removes cgroup and directory.
//! 2. [`first`] is the first process of the PID namespace. It reaps what others leave, and starts the third one.
//! 3. [`inside`] sets up mounts, network and registry, and runs the control plane with its node.
//!
//! Whichever of them dies, and however it does, the kernel kills everything inside, and network and mounts go
//! with it. What a killed [`isolate`] leaves, cgroup and directory, is removed by the next one.

mod cgroup;
mod images;
mod isolation;
mod leftovers;
mod needs;
mod reaper;
mod room;

use std::{ffi::OsString, fs, path::PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub use self::isolation::{
    EARLIER_VARIABLE, LAYOUT_VARIABLE, MISSING, PROGRAM_VARIABLE, check, isolate,
};
pub use self::reaper::first;
use crate::{
    command,
    components::{ControlPlaneOptions, Nodes, RealNode},
    control_plane::ControlPlane,
    stop_signals::{INTERRUPTED, StopSignals},
};

/// The facts that a cluster is told when its namespaces are made.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    /// Directory of everything that it writes.
    directory: PathBuf,
    /// Path of its cgroup, from the root of each hierarchy.
    cgroup: String,
    /// Program of the registry.
    registry: PathBuf,
    /// Program that pushes images.
    crane: PathBuf,
    /// What the operator's image is made of.
    operator: OperatorImage,
    /// Version from which a test upgrades, if there is one.
    earlier: Option<Earlier>,
    /// True to leave the directory behind.
    keep: bool,
}

/// What the operator's image is made of.
#[derive(Debug, Serialize, Deserialize)]
enum OperatorImage {
    /// A layout, which is that image.
    Layout(PathBuf),
    /// A program, of which the image is made.
    Program(PathBuf),
}

/// A chart of an earlier commit, and what the image of its operator is made of.
#[derive(Debug, Serialize, Deserialize)]
struct Earlier {
    /// Folder of the chart.
    chart: PathBuf,
    /// What the operator's image is made of.
    operator: OperatorImage,
}

/// Runs a command on a cluster, or the cluster until Ctrl-C. The process is inside of the namespaces already, as
/// `plan` tells it. Returns the exit code.
///
/// # Errors
/// When the cluster does not become ready. Then its directory is left behind.
pub async fn inside(plan: &str, command: &[OsString], stop: &mut StopSignals) -> Result<u8> {
    let plan: Plan = serde_json::from_str(plan).context("parsing --inside")?;
    if plan.keep {
        plan.keep()?;
    }
    let cluster = tokio::select! {
        cluster = Cluster::start(&plan) => cluster,
        _ = stop.next() => return Ok(INTERRUPTED),
    };
    if cluster.is_err()
        && let Err(error) = plan.keep()
    {
        // On a full disk. Why it has not started says more.
        tracing::warn!("{error:#}");
    }
    let Cluster {
        control_plane,
        images,
    } = cluster.with_context(|| format!("the logs are in {}", plan.directory.display()))?;
    let work = async {
        tracing::info!("to enter it: {}", plan.way_in());
        match command.split_first() {
            Some((program, arguments)) => {
                command::run(&control_plane, program, arguments, stop).await
            }
            None => {
                command::introduce(&control_plane);
                stop.next().await;
                Ok(0)
            }
        }
    };
    let code = tokio::select! {
        code = work => code,
        failed = control_plane.keep_node_running() => failed.map(|never| match never {}),
    };
    tracing::info!("stopping");
    control_plane.stop().await;
    images.stop().await;
    if plan.keep {
        eprintln!("data and logs are in {}", plan.directory.display());
    }
    code
}

/// A cluster that runs.
struct Cluster {
    control_plane: ControlPlane,
    images: images::Images,
}

impl Cluster {
    async fn start(plan: &Plan) -> Result<Self> {
        room::furnish(&plan.directory).await?;
        let images = images::Images::serve(plan).await?;
        let node = RealNode {
            cgroup: plan.cgroup.clone(),
            pause_image: images.pause.clone(),
            answers_image: images.answers.clone(),
            operator: images.operator.clone(),
            earlier: images.earlier.clone(),
        };
        let options = ControlPlaneOptions {
            nodes: Nodes::Real(node),
            parent: Some(plan.directory.clone()),
            // It cannot be removed as long as things are mounted there.
            keep: true,
            ..ControlPlaneOptions::default()
        };
        let control_plane = ControlPlane::start(options).await?;
        Ok(Self {
            control_plane,
            images,
        })
    }
}

impl Plan {
    /// Has the directory left behind.
    fn keep(&self) -> Result<()> {
        let mark = self.directory.join(leftovers::KEPT);
        fs::write(&mark, "").with_context(|| format!("writing {}", mark.display()))
    }

    /// Returns the command by which a shell enters the namespaces.
    fn way_in(&self) -> String {
        let pid = fs::read_to_string(self.directory.join(isolation::PID));
        let pid = pid.unwrap_or_else(|_| "PID".to_owned());
        format!("nsenter --target {pid} --net --mount --pid --ipc bash")
    }
}
