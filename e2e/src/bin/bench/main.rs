//! Measures the operator on a real control plane, side by side with the floor: clients and servers that do
//! the least that could work.

mod admission;
mod changes;
mod empty_server;
mod features;
mod figures;
mod floor;
mod kinds;
mod list;
mod memory;
mod observer;
mod pods;
mod protect;
mod rounds;
mod sap;
mod scale;
mod staged;
mod subject;
mod sync;
mod vast;

use std::{env, ffi::OsString, fs, path::PathBuf};

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use pod_reloader_e2e::{
    Component, ControlPlane, ControlPlaneOptions, Options, Process, Program, Scene, Tested,
};

use self::figures::Figures;

/// Measures the operator on a real control plane, side by side with the floor: clients and servers that
/// do the least that could do.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Fewer repeats and smaller crowds: done in two minutes, and less exact.
    #[arg(long)]
    quick: bool,
    /// Parts to measure [default: all except features, and sap if SAP_POD_RELOADER names its program; with --quick changes, admission and memory].
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// The number of Deployments with which the part `scale` measures, in place of three smaller numbers. It is
    /// rounded up to thousands.
    #[arg(long)]
    workloads: Option<usize>,
    /// Where the figures are written to, as JSON.
    #[arg(long, default_value = "target/bench.json")]
    json: PathBuf,
}

/// Processes that the bench starts of itself.
#[derive(Subcommand)]
enum Role {
    /// Answers a watch event with one PATCH for each Deployment.
    Floor(floor::Args),
    /// A webhook that decodes nothing.
    EmptyServer(empty_server::Args),
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// From a change to the pod template, without a settle period.
    Changes,
    /// The same of SAP's pod-reloader, in place of the operator.
    Sap,
    /// The same with the default settle period.
    Settled,
    /// Reviews, sent directly and by the apiserver.
    Admission,
    /// Memory by what the cluster holds.
    Memory,
    /// How all grows with the number of workloads.
    Scale,
    /// The cost of three more kinds.
    Kinds,
    /// A change of which one workload gets the new config first.
    Staged,
    /// What pins add to the creation of a pod.
    Pods,
    /// Copies in many namespaces.
    Sync,
    /// Deletions of protected objects in a namespace with many pods.
    Protect,
    /// Lists of very many workloads by the plugin.
    List,
    /// Memory and watches that each optional feature adds. It takes minutes.
    Features,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Args {
        role,
        quick,
        only,
        workloads,
        json,
    } = Args::parse();
    match role {
        Some(Role::Floor(args)) => return floor::run(args).await,
        Some(Role::EmptyServer(args)) => return empty_server::run(args).await,
        None => {}
    }
    let parts = match only.is_empty() {
        false => only,
        true if quick => vec![Part::Changes, Part::Admission, Part::Memory],
        // One part takes minutes for figures that hardly change.
        true => {
            let all = Part::value_variants().iter().copied();
            all.filter(|part| match part {
                Part::Features => false,
                Part::Sap => sap::program().is_some(),
                _ => true,
            })
            .collect()
        }
    };
    let mut figures = Figures::default();
    for part in parts {
        match part {
            Part::Changes => changes::measure(&mut figures, quick).await?,
            Part::Sap => sap::measure(&mut figures, quick).await?,
            Part::Settled => changes::measure_settled(&mut figures, quick).await?,
            Part::Admission => admission::measure(&mut figures, quick).await?,
            Part::Memory => memory::measure(&mut figures, quick).await?,
            Part::Scale => match workloads {
                Some(workloads) => vast::measure(&mut figures, workloads).await?,
                None => scale::measure(&mut figures, quick).await?,
            },
            Part::Kinds => kinds::measure(&mut figures, quick).await?,
            Part::Staged => staged::measure(&mut figures, quick).await?,
            Part::Pods => pods::measure(&mut figures, quick).await?,
            Part::Sync => sync::measure(&mut figures, quick).await?,
            Part::Protect => protect::measure(&mut figures, quick).await?,
            Part::List => list::measure(&mut figures, quick).await?,
            Part::Features => features::measure(&mut figures, quick).await?,
        }
    }
    println!("\n{figures}");
    if let Some(folder) = json.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&json, serde_json::to_vec_pretty(&figures)?)?;
    println!("written to {}", json.display());
    Ok(())
}

/// Sets up an operator on a control plane of its own, which looks after every namespace.
async fn scene(settle_period: &'static str) -> Result<Scene> {
    scene_with(settle_period, serde_json::json!({})).await
}

/// The same with these values.
async fn scene_with(settle_period: &'static str, values: serde_json::Value) -> Result<Scene> {
    scene_of(Tested::Controller, settle_period, values).await
}

/// Starts a scene like [`scene_with`], about this process of the chart.
async fn scene_of(
    tested: Tested,
    settle_period: &'static str,
    values: serde_json::Value,
) -> Result<Scene> {
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let options = Options {
        tested,
        ..options(settle_period, values)
    };
    Scene::set(control_plane, "bench", options).await
}

/// Returns the options of an operator that looks after every namespace, with these values.
fn options(settle_period: &'static str, mut values: serde_json::Value) -> Options {
    // Same as the chart's default.
    values["webhook"] = serde_json::json!({"timeoutSeconds": 3});
    Options {
        settle_period,
        args: vec!["--log-level=info".to_owned()],
        failure_policy: "Ignore",
        everywhere: true,
        values,
        ..Options::default()
    }
}

/// Stops the components that would write to each Deployment and take time from the measurement.
async fn without_controllers(scene: &Scene) -> Result<()> {
    for component in [
        Component::ControllerManager,
        Component::Scheduler,
        Component::Kwok,
    ] {
        scene.control_plane.process(component)?.kill().await;
    }
    Ok(())
}

/// Runs this program in another role.
fn another_role(scene: &Scene, role: &str, args: &[String]) -> Result<Process> {
    Process::start(Program {
        name: role.to_owned(),
        executable: env::current_exe()?,
        args: [role]
            .into_iter()
            .chain(args.iter().map(String::as_str))
            .map(OsString::from)
            .collect(),
        env: Vec::new(),
        log: scene.directory().join(format!("{role}.log")),
    })
}

async fn clear(scene: Scene) {
    scene.operator.process().kill().await;
    scene.control_plane.stop().await;
}
