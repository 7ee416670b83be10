//! Measures `kubectl pod-reloader list` with very many workloads: its requests, its time and its memory.

use std::{fs, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{Scene, crowd, of_the_workspace, workload::config_map};
use serde_json::json;
use tokio::{io::AsyncReadExt, process::Command, time::Instant};

use crate::{clear, figures::Figures, scene_with, without_controllers};

/// Number of Deployments, each of which lists one ConfigMap.
const WORKLOADS: usize = 10_000;
/// The same in short. The names of fewer would have room in a pipe.
const FEW: usize = 4_000;
/// A user who can only read.
const READER: &str = "reader";
/// The lists: their names, and their flags.
const LISTS: [(&str, &[&str]); 2] = [("names", &["--output=name"]), ("table", &[])];

pub(crate) async fn measure(figures: &mut Figures, quick: bool) -> Result<()> {
    let size = if quick { FEW } else { WORKLOADS };
    // All of them are in one namespace, whose share by default has room for 8,000.
    let scene = scene_with("0s", json!({"namespaceMemory": "64Mi"})).await?;
    without_controllers(&scene).await?;
    scene.put_all(&[config_map("shared", "0")]).await?;
    let workloads = crowd("web", size).into_iter();
    let workloads: Vec<_> = workloads.map(|workload| workload.lists("shared")).collect();
    scene.create_all(&workloads).await?;
    let user = format!("--user={READER}");
    let binding = ["create", "clusterrolebinding", READER, "--clusterrole=view"];
    let binding = [&binding[..], &[user.as_str()]].concat();
    scene.tool().run(&binding).await?;
    each(figures, &scene, size, "by a reader").await?;
    scene.operator.stop().await;
    each(figures, &scene, size, "by a reader, no operator runs").await?;
    clear(scene).await;
    Ok(())
}

async fn each(figures: &mut Figures, scene: &Scene, size: usize, who: &str) -> Result<()> {
    for (name, flags) in LISTS {
        let run = Run::of(scene, flags, size).await?;
        figures.say(
            &format!("list of {size} workloads, {name}, {who}"),
            None,
            format!(
                "{} requests, {:.2} s, {:.1} MiB at most",
                run.requests,
                run.took.as_secs_f64(),
                run.peak as f64 / 1024.0 / 1024.0
            ),
            "in proportion",
        );
    }
    Ok(())
}

/// The cost of a list.
struct Run {
    requests: usize,
    /// From the start of the program to the first byte of its output.
    took: Duration,
    /// Peak of its memory, in bytes.
    peak: usize,
}

impl Run {
    async fn of(scene: &Scene, flags: &[&str], size: usize) -> Result<Self> {
        let plugin = of_the_workspace("kubectl-pod_reloader");
        let plugin =
            plugin.context("the plugin is not built: run `cargo build -p kubectl-pod-reloader`")?;
        let mark = scene.mark().await?;
        let began = Instant::now();
        let mut child = Command::new(plugin)
            .args(["list", "--all-namespaces", &format!("--as={READER}")])
            .args(flags)
            .env("KUBECONFIG", scene.control_plane.kubeconfig_path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut stdout = child.stdout.take().context("it is piped")?;
        let mut output = vec![0];
        stdout.read_exact(&mut output).await?;
        let took = began.elapsed();
        // The output has no room in the pipe. So the program waits for its reader, and has all of it in memory.
        let pid = child.id().context("it has ended before all was read")?;
        let peak = peak_memory(pid)?;
        stdout.read_to_end(&mut output).await?;
        let status = child.wait().await?;
        ensure!(status.success(), "the list ended with {status}");
        let lines = output.iter().filter(|byte| **byte == b'\n').count();
        ensure!(lines >= size, "{lines} lines of {size}");
        let requests = scene.requests_of_plugin(mark).await?;
        let answered = requests
            .iter()
            .filter(|request| request.stage == "ResponseComplete");
        Ok(Self {
            requests: answered.count(),
            took,
            peak,
        })
    }
}

/// Returns the peak of the memory of a process that runs, in bytes.
fn peak_memory(pid: u32) -> Result<usize> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
    let peak = peak.with_context(|| format!("no peak in {status}"))?;
    Ok(peak.trim().parse::<usize>()? * 1024)
}
