//! The manifests in `examples/` are accepted without a warning, and pod-reloader manages what is in them.
//!
//! `docs.rs` applies them once more, as their README shows, with those that need more than this scene has.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{
    Attempt, ControlPlane, Options, PATIENCE, Scene, crds::crd, wait_for, workload::CONFIG_HASH,
};
use serde_json::{Value, json};

use crate::custom::managed::install_to_stay;

/// What the scene has, among what the list says that examples need. `docs.rs` alone applies those that need more.
const HAS: [&str; 4] = ["", "`pin`", "`customResources`", "Argo Rollouts"];

#[tokio::test]
async fn each_example_is_accepted_without_a_warning_and_managed() -> Result<()> {
    let control_plane = ControlPlane::connect()?;
    install_to_stay(&control_plane, &crd("rollouts")).await?;
    let options = Options {
        values: json!({
            "customResources": ["argo-rollouts", "cronjobs"],
            "pin": {"enabled": true},
        }),
        ..Options::default()
    };
    Scene::play_on(control_plane, options, async |scene| {
        for Example { file, needs } in listed()? {
            if !needs.iter().all(|it| HAS.contains(&it.as_str())) {
                continue;
            }
            let manifest = fs::read_to_string(examples().join(&file))?;
            let apply = ["apply", "--validate=strict", "--filename=-"];
            let output = scene.kubectl_output(&apply, &manifest).await?;
            let is_accepted = output.code == Some(0) && output.stderr.is_empty();
            ensure!(is_accepted, "{file}: {}{}", output.stderr, output.stdout);
            let workloads = workloads(&output.stdout);
            ensure!(!workloads.is_empty(), "{file} has no workload");
            for workload in workloads {
                has_a_hash(scene, &workload).await?;
            }
        }
        Ok(())
    })
    .await
}

/// `docs.rs` runs these commands, so no example is left out.
#[test]
fn each_example_is_in_the_list_of_examples_and_in_the_commands_below_it() -> Result<()> {
    let page = fs::read_to_string(examples().join("README.md"))?;
    let (_, commands) = page.split_once("\n## Try them\n").context("commands")?;
    let loops = commands
        .lines()
        .filter_map(|it| it.strip_prefix("for name in ")?.strip_suffix("; do"));
    let in_loops: BTreeSet<_> = loops.flat_map(str::split_whitespace).collect();
    let listed: BTreeSet<_> = listed()?.into_iter().map(|it| it.file).collect();
    for file in &listed {
        let name = file.trim_end_matches(".yaml");
        let is_applied = in_loops.contains(name) || commands.contains(&format!("=examples/{file}"));
        ensure!(is_applied, "no command applies {file}");
    }
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(examples())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".yaml") {
            files.insert(name);
        }
    }
    ensure!(files == listed, "{files:?} and {listed:?}");
    Ok(())
}

/// A row of the list of examples.
struct Example {
    file: String,
    /// What it needs: values of the chart, and other software. One empty text if it needs nothing.
    needs: Vec<String>,
}

/// Reads the list of examples.
fn listed() -> Result<Vec<Example>> {
    let list = fs::read_to_string(examples().join("README.md"))?;
    let rows = list.lines().filter_map(|line| line.strip_prefix("| ["));
    let example = |row: &str| {
        let (file, _) = row.split_once(']')?;
        let needs = row.split('|').nth(2)?;
        Some(Example {
            file: file.to_owned(),
            needs: needs.split(',').map(|it| it.trim().to_owned()).collect(),
        })
    };
    Ok(rows.filter_map(example).collect())
}

/// Returns the workloads among the objects that kubectl says it has applied, such as `deployment/web`.
fn workloads(applied: &str) -> Vec<String> {
    let objects = applied.lines().filter_map(|line| line.split(' ').next());
    let workloads =
        objects.filter(|it| !it.starts_with("configmap/") && !it.starts_with("secret/"));
    // The harness knows built-in kinds without their groups, and asks kubectl for all others.
    let short = |it: &str| it.replace(".apps/", "/").replace(".batch/", "/");
    workloads.map(short).collect()
}

/// Waits until a workload carries a hash: of the loop, if it was created before the webhook was called.
async fn has_a_hash(scene: &Scene, reference: &str) -> Result<()> {
    let what = format!("{reference} to have a hash");
    wait_for(&what, PATIENCE, async || {
        let object = scene.object(reference).await?;
        let annotations = &template(&object)["metadata"]["annotations"];
        Ok(match annotations[CONFIG_HASH].as_str() {
            Some(_) => Attempt::Done(()),
            None => Attempt::NotYet(annotations.to_string()),
        })
    })
    .await
}

/// Returns the pod template of a workload.
fn template(object: &Value) -> &Value {
    let spec = &object["spec"];
    match spec.get("jobTemplate") {
        Some(job) => &job["spec"]["template"],
        None => &spec["template"],
    }
}

/// Returns the folder of the examples.
fn examples() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("this crate lies in the repository")
        .join("examples")
}
