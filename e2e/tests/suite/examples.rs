//! The manifests in `examples/` that need no more than this scene has are accepted without a warning, and pod-reloader
//! manages what is in them.
//!
//! `docs.rs` applies all of them, as their README shows.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{
    Attempt, ControlPlane, Options, PATIENCE, Scene, chart, crds::crd, wait_for,
    workload::CONFIG_HASH,
};
use serde_json::{Value, json};

use crate::custom::managed::install_to_stay;

/// What the scene has, among what the list says that examples need. `docs.rs` alone applies those that need more.
const HAS: [&str; 4] = ["", "`pin`", "`customResources`", "Argo Rollouts"];

#[tokio::test]
async fn examples_are_accepted_without_a_warning_and_managed() -> Result<()> {
    let control_plane = ControlPlane::connect()?;
    install_to_stay(&control_plane, &crd("rollouts")).await?;
    let options = Options::with_values(json!({
        "customResources": ["argo-rollouts", "cronjobs"],
        "pin": {"enabled": true},
    }));
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
    let page = page()?;
    let commands = commands(&page)?;
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

/// A need with another name would be one that the scene does not have, so nobody would see a warning.
#[test]
fn what_examples_need_is_in_the_chart_or_beside_the_commands() -> Result<()> {
    let page = page()?;
    let commands = commands(&page)?;
    let values = fs::read_to_string(chart().join("values.yaml"))?;
    let is_value = |name: &str| {
        let mut lines = values.lines();
        lines.any(|line| line.starts_with(&format!("{name}:")))
    };
    for Example { file, needs } in listed()? {
        for need in needs {
            let is_known = match need.strip_prefix('`') {
                Some(value) => value.strip_suffix('`').is_some_and(is_value),
                None => commands.contains(&need),
            };
            ensure!(is_known, "{file} needs {need}");
        }
    }
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
    let page = page()?;
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ["));
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

/// Returns the page with the list of examples, and with the commands that apply them.
fn page() -> Result<String> {
    Ok(fs::read_to_string(examples().join("README.md"))?)
}

/// Returns the part of the page that has the commands.
fn commands(page: &str) -> Result<&str> {
    let (_, commands) = page.split_once("\n## Try them\n").context("commands")?;
    Ok(commands)
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
