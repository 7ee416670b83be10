//! Config and workload may come in any order, and together: one rollout, and nobody is turned away.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{Mark, Options, Scene};
use serde_json::{Value, json};

use crate::helm_releases::service;

/// Makes releases within a long settle period, and ends that period after each of them, so that the loop restarts
/// anything that still differs. To measure more than is promised, the variables `OTHERS` and `APPLY` set the number of
/// other objects and an argument of kubectl; then the settle period is the default one, and only the result is printed.
#[tokio::test]
async fn one_apply_of_config_and_workload_is_one_rollout() -> Result<()> {
    let (others, args) = (env::var("OTHERS"), env::var("APPLY"));
    let is_promised = others.is_err() && args.is_err();
    let options = Options::settling(if is_promised { "1h" } else { "5s" });
    let others = others.map_or(Ok(10), |others| others.parse())?;
    let mut args: Vec<_> = args.iter().map(String::as_str).collect();
    if !is_promised {
        // What is measured is kubectl as users have it, without the preferences of these tests.
        args.push("--openapi-patch=true");
    }
    Scene::play(options, async |scene| {
        let (mut gaps, mut counts) = (Vec::new(), Vec::new());
        for round in 1..=rounds()? {
            let app = format!("app-{round}");
            let unreleased = Workload::deployment(&format!("unreleased-{round}"))
                .lists(&app)
                .without_pods();
            scene
                .apply(&[config_map(&app, "0"), unreleased.manifest()])
                .await?;
            let before = scene.create(&web(&app, 0)).await?;
            let mark = scene.mark().await?;
            apply(scene, &args, &release(&app, round, others)).await?;
            if is_promised {
                settles(scene, &web(&app, round), &unreleased).await?;
            } else {
                gaps.push(gap(scene, mark, &app, &app).await?);
                scene.quiet().await?;
            }
            let after = scene.snapshot(&web(&app, round)).await?;
            let expected = scene.expected_key(&web(&app, round)).await?;
            ensure!(after.key == Some(expected), "{after:?}");
            counts.push(after.new_revisions(&before));
        }
        let once = counts.iter().filter(|&&count| count == 1).count();
        let report = format!(
            "{once} of {} releases were one rollout; from ConfigMap to Deployment: {gaps:?}",
            counts.len()
        );
        println!("{report}");
        ensure!(once == counts.len() || !is_promised, "{report}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_workload_may_come_before_its_config() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let web = Workload::podless("web").lists("app").requires("app");
        dry_run(scene, &web).await?;
        let before = scene.create(&web).await?;

        scene.apply(&[config_map("app", "1")]).await?;
        scene.right(&web).await?;
        scene.quiet().await?;
        let after = scene.snapshot(&web).await?;
        let new = after.new_revisions(&before);
        println!("{new} further revisions");
        ensure!(new <= 1, "{before:?}, {after:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_workload_whose_config_never_comes_is_admitted_and_left_alone() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let web = Workload::podless("web").lists("app").requires("app");
        dry_run(scene, &web).await?;
        let mark = scene.mark().await?;
        let before = scene.create(&web).await?;
        ensure!(before.key == Some(scene.expected_key(&web).await?));
        scene.rolls_not(&web, &before).await?;
        let requests = scene.requests(mark).await?;
        let writes: Vec<_> = requests
            .iter()
            .filter(|event| event.verb == "patch" && event.name == "web")
            .collect();
        ensure!(writes.is_empty(), "{writes:?}");
        Ok(())
    })
    .await
}

/// Returns the number of releases that a test makes: `ROUNDS`, or one.
pub(crate) fn rounds() -> Result<usize> {
    match env::var("ROUNDS") {
        Ok(rounds) => rounds.parse().with_context(|| format!("ROUNDS={rounds}")),
        Err(_) => Ok(1),
    }
}

async fn apply(scene: &Scene, args: &[&str], objects: &[Value]) -> Result<()> {
    let args = [&["apply", "--filename=-"], args].concat();
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let applied = scene.kubectl_with_input(&args, &objects.to_string()).await;
    applied.map(|_| ())
}

/// Returns a release: the ConfigMap first, then other objects, then the workload that lists it.
fn release(app: &str, version: usize, others: usize) -> Vec<Value> {
    let value = version.to_string();
    let others = (0..others).map(|number| service(&format!("other-{number}"), &value));
    [config_map(app, &value)]
        .into_iter()
        .chain(others)
        .chain([web(app, version).manifest()])
        .collect()
}

/// Returns the workload of a release, which lists a ConfigMap with its own name.
fn web(app: &str, version: usize) -> Workload {
    Workload::deployment(app)
        .lists(app)
        .image(&format!("app:{version}"))
        .without_pods()
}

/// Ends the settle period of both workloads. Waits until the loop has restarted the second one, which is not part of
/// the release: by then, it has restarted the first one as well, if that still differed.
async fn settles(scene: &Scene, released: &Workload, unreleased: &Workload) -> Result<()> {
    let at_once = json!({"metadata": {"annotations": {SETTLE_PERIOD: "0s"}}});
    for workload in [released, unreleased] {
        scene.patch(workload, &at_once).await?;
    }
    scene.right(unreleased).await
}

/// Returns the time between the writes of a ConfigMap and of a Deployment since `mark`.
pub(crate) async fn gap(
    scene: &Scene,
    mark: Mark,
    config_map: &str,
    deployment: &str,
) -> Result<Duration> {
    let requests = scene.requests_naming(&scene.namespace, mark).await?;
    let ours = scene.installation.username();
    let written = |resource: &str, name: &str| -> Option<Timestamp> {
        let write = requests.iter().find(|event| {
            event.verb == "patch"
                && event.user != ours
                && event.namespace == scene.namespace
                && (event.resource.as_str(), event.name.as_str()) == (resource, name)
                && event.subresource.is_empty()
        });
        write.map(|event| event.time)
    };
    let config = written("configmaps", config_map).context("no write of the ConfigMap")?;
    let workload = written("deployments", deployment).context("no write of the Deployment")?;
    Ok(workload.duration_since(config).try_into()?)
}

async fn dry_run(scene: &Scene, workload: &Workload) -> Result<()> {
    let args = ["apply", "--dry-run=server", "--filename=-"];
    let manifest = workload.manifest().to_string();
    scene.kubectl_with_input(&args, &manifest).await.map(|_| ())
}

const SETTLE_PERIOD: &str = "pod-reloader.cs.sap.com/settle-period";
