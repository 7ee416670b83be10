//! Measures what each optional feature of the chart adds to an operator at rest while nobody uses it: memory and watches.

use std::{fmt, iter, slice::from_ref};

use anyhow::Result;
use futures::future::try_join_all;
use pod_reloader_e2e::features::{everything, features};
use pod_reloader_e2e::{
    ControlPlane, ControlPlaneOptions, Installation, Operator, Options, Scene, crowd, merge,
};
use serde_json::{Value, json};

use crate::changes::at_rest;
use crate::figures::Figures;
use crate::memory::{Memory, create_secrets, mib};
use crate::{clear, options, without_controllers};

/// Measures the default, then each feature alone over the same objects, and at last all that fit together.
pub(crate) async fn measure(figures: &mut Figures, quick: bool) -> Result<()> {
    let (workloads, starts) = if quick { (200, 1) } else { (1_000, 3) };
    let mut scene = begin(workloads).await?;
    let nothing = json!({});
    let by_default = install(&mut scene, &nothing).await?;
    let before = usages(&scene, &by_default, starts).await?;
    let what = format!("at rest, {workloads} Deployments with a Secret each");
    figures.say(&what, None, told(&before), "-");
    let features = features(from_ref(&scene.namespace));
    let each = features.iter().map(|it| (it.name, it.values.clone()));
    let all = ("all that fit together", everything(&features));
    for (name, values) in each.chain([all]) {
        let installed = install(&mut scene, &values).await?;
        let added = if arguments(&installed) == arguments(&by_default) {
            "nothing: the arguments are the same".to_owned()
        } else {
            added(&usages(&scene, &installed, starts).await?, &before)
        };
        figures.say(&format!("added by {name}"), None, added, "-");
    }
    // Measurements of the same operator differ by as much.
    let again = install(&mut scene, &nothing).await?;
    let again = usages(&scene, &again, starts).await?;
    let noise = added(&again, &before);
    figures.say("added by nothing: noise", None, noise, "-");
    clear(scene).await;
    Ok(())
}

/// Sets up a release whose operator has stopped, and its workloads, which use none of the features.
async fn begin(workloads: usize) -> Result<Scene> {
    let control_plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let options = Options {
        released: true,
        ..options("5s", json!({}))
    };
    let scene = Scene::set(control_plane, "bench", options).await?;
    scene.prepare_features().await?;
    without_controllers(&scene).await?;
    let mark = scene.mark().await?;
    create_secrets(&scene, 0, workloads).await?;
    let crowd = crowd("web", workloads).into_iter().enumerate();
    let crowd: Vec<_> = crowd
        .map(|(number, workload)| workload.lists_secrets(&format!("secret-{number}")))
        .collect();
    scene.create_all(&crowd).await?;
    at_rest(&scene, mark).await?;
    scene.operator.stop().await;
    Ok(scene)
}

/// Upgrades the release to these values, in addition to its own. Returns the operator, and the writer if there is one.
async fn install(scene: &mut Scene, values: &Value) -> Result<Vec<Installation>> {
    let mut all = scene.values();
    merge(&mut all, values);
    scene.installation.upgrade(&all).await?;
    let writer = scene.installation.writer().await?;
    let operator = scene.installation.clone();
    Ok(iter::once(operator).chain(writer).collect())
}

/// Returns the arguments of each process. Nothing else of the chart reaches it here.
fn arguments(installed: &[Installation]) -> Vec<Vec<String>> {
    installed.iter().map(Installation::args).collect()
}

/// The memory and the watches of a process at rest.
struct Usage {
    memory: Memory,
    watches: usize,
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} watches", self.memory, self.watches)
    }
}

/// Starts each process so many times, side by side. Returns the median of each once all of them are at rest.
async fn usages(scene: &Scene, installed: &[Installation], starts: usize) -> Result<Vec<Usage>> {
    let mark = scene.mark().await?;
    let mut running = Vec::new();
    for installation in installed {
        running.push(start(scene, installation, starts).await?);
    }
    at_rest(scene, mark).await?;
    let mut usages = Vec::new();
    for (installation, started) in installed.iter().zip(&running) {
        let memory = started.iter().map(|it| Memory::of(it.process()));
        let memory = Memory::median(try_join_all(memory).await?);
        // All of them have the same user, and watch the same.
        let watches = scene.watches_of(installation, mark).await?.len();
        usages.push(Usage { memory, watches });
    }
    for operator in running.iter().flatten() {
        operator.stop().await;
    }
    Ok(usages)
}

/// Starts so many replicas of a process.
async fn start(scene: &Scene, installation: &Installation, count: usize) -> Result<Vec<Operator>> {
    let mut started = Vec::new();
    for _ in 0..count {
        let replica = installation.another_replica()?;
        let directory = format!("replica-{}", replica.port);
        let directory = scene.directory().join(directory);
        let operator = scene.start_replica(&replica, &directory, &["--log-level=info"]);
        started.push(operator.await?);
    }
    Ok(started)
}

fn told(usages: &[Usage]) -> String {
    let each: Vec<_> = usages.iter().map(Usage::to_string).collect();
    each.join("; the writer: ")
}

/// Says how much more all processes take than `before`, and what the writer takes of it.
fn added(now: &[Usage], before: &[Usage]) -> String {
    let more = |of: fn(&Usage) -> f64| {
        let sum = |usages: &[Usage]| usages.iter().map(of).sum::<f64>();
        sum(now) - sum(before)
    };
    let resident = more(|usage| mib(usage.memory.resident));
    let anonymous = more(|usage| mib(usage.memory.anonymous));
    let watches = more(|usage| usage.watches as f64);
    let writer = match now {
        [_, writer] => format!("; the writer alone: {writer}"),
        _ => String::new(),
    };
    format!("RSS {resident:+.2} MiB, anonymous {anonymous:+.2}, watches {watches:+}{writer}")
}
