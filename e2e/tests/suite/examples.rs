//! The manifests in `examples/` are accepted without a warning, and pod-reloader manages what is in them.
//!
//! `docs.rs` applies them once more, as their README shows, with those that are for the whole cluster.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use pod_reloader_e2e::{
    Attempt, ControlPlane, Options, PATIENCE, Scene, crds::crd, wait_for, workload::CONFIG_HASH,
};
use serde_json::{Value, json};

use crate::custom::managed::install_to_stay;

/// The examples with workloads, and the workloads in each.
const MANAGED: [(&str, &[&str]); 9] = [
    ("approval", &["deployment/approval"]),
    ("auto", &["deployment/auto"]),
    ("cronjob", &["cronjob/cronjob"]),
    ("listed", &["deployment/listed"]),
    ("rollout", &["rollouts.argoproj.io/rollout"]),
    ("staged", &["deployment/staged-canary", "deployment/staged"]),
    ("together", &["deployment/together"]),
    ("undo", &["deployment/undo"]),
    ("window", &["deployment/window"]),
];

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
        for (name, workloads) in MANAGED {
            let manifest = fs::read_to_string(examples().join(format!("{name}.yaml")))?;
            let apply = ["apply", "--validate=strict", "--filename=-"];
            let output = scene.kubectl_output(&apply, &manifest).await?;
            let is_accepted = output.code == Some(0) && output.stderr.is_empty();
            ensure!(is_accepted, "{name}: {}{}", output.stderr, output.stdout);
            for workload in workloads {
                has_a_hash(scene, workload).await?;
            }
        }
        Ok(())
    })
    .await
}

#[test]
fn each_example_is_in_the_list_of_examples() -> Result<()> {
    let list = fs::read_to_string(examples().join("README.md"))?;
    let rows = list.lines().filter_map(|line| line.strip_prefix("| ["));
    let listed: BTreeSet<_> = rows
        .filter_map(|row| row.split_once(']'))
        .map(|(file, _)| file.to_owned())
        .collect();
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(examples())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".yaml") {
            files.insert(name);
        }
    }
    ensure!(files == listed, "{files:?} and {listed:?}");
    for (name, _) in MANAGED {
        ensure!(files.contains(&format!("{name}.yaml")), "{name}");
    }
    Ok(())
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
