//! The values that platforms demand of every chart: each does what it says, for the writer as well.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::template;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn the_image_of_every_pod_follows_registry_tag_and_digest() -> Result<()> {
    let digest = format!("image.tag=1,image.digest={DIGEST}");
    for (value, image) in [
        ("image.tag=1", "registry.example.com/pod-reloader:1"),
        (
            &*digest,
            &*format!("registry.example.com/pod-reloader:1@{DIGEST}"),
        ),
        (
            "image.tag=1,global.imageRegistry=mirror.example.com:5000/all",
            "mirror.example.com:5000/all/pod-reloader:1",
        ),
        (
            "image.tag=1,image.repository=team/app,global.imageRegistry=mirror.example.com",
            "mirror.example.com/team/app:1",
        ),
        (
            "image.tag=1,image.repository=localhost/team/app,global.imageRegistry=mirror.example.com",
            "mirror.example.com/team/app:1",
        ),
    ] {
        for pod in pods(&rendered(&["--set", value])?) {
            let used = &pod["spec"]["containers"][0]["image"];
            ensure!(used == image, "{value}: {used}");
        }
    }
    Ok(())
}

#[test]
fn every_pod_has_the_global_pull_secrets_and_those_of_the_chart() -> Result<()> {
    let value = "global.imagePullSecrets={mirror},imagePullSecrets[0].name=own,imagePullSecrets[1].name=mirror";
    for pod in pods(&rendered(&["--set", value])?) {
        let secrets = &pod["spec"]["imagePullSecrets"];
        ensure!(
            *secrets == json!([{"name": "mirror"}, {"name": "own"}]),
            "{secrets}"
        );
    }
    Ok(())
}

/// Renders the chart with a writer.
fn rendered(args: &[&str]) -> Result<Vec<Value>> {
    let rendered = template(&[&["--set=sync.enabled=true"], args].concat())?;
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(&rendered).context("the chart renders YAML")?;
    Ok(objects.into_iter().filter(|it| !it.is_null()).collect())
}

/// Returns the pods that the objects make: those of the operator and of the writer, and those of `helm test`.
///
/// # Panics
///
/// There are not as many.
fn pods(objects: &[Value]) -> Vec<Value> {
    let pods = objects.iter().filter_map(|object| match &object["kind"] {
        kind if kind == "Deployment" => Some(object["spec"]["template"].clone()),
        kind if kind == "Pod" => Some(object.clone()),
        _ => None,
    });
    let pods: Vec<_> = pods.collect();
    assert_eq!(pods.len(), 4, "two Deployments, and two pods of the test");
    pods
}
