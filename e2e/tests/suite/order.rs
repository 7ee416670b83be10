//! Config and workload may come in any order, and together: one rollout, and nobody is turned away.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use pod_reloader_e2e::workload::{Workload, config_map, secret};
use pod_reloader_e2e::{Mark, Options, Scene};
use serde_json::json;

/// Makes releases, each after the loop would have restarted anything that still differs. A release for which
/// kubectl takes longer than the settle period promises nothing, and is not counted.
#[tokio::test]
async fn one_apply_of_config_and_workload_rolls_once() -> Result<()> {
    // Longer than the default: beside other tests, kubectl takes its time.
    const SETTLE_PERIOD: Duration = Duration::from_secs(20);
    let options = Options {
        settle_period: "20s",
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let web = |round: usize| {
            Workload::deployment("web")
                .lists("app")
                .image(&format!("app:{round}"))
                .with(&["spec", "revisionHistoryLimit"], json!(200))
        };
        scene.apply(&release(0, web(0))).await?;
        let mut before = scene.snapshot(&web(0)).await?;
        let (mut gaps, mut counted) = (Vec::new(), 0);
        let rounds = rounds()?;
        for round in 1.. {
            if counted == rounds {
                break;
            }
            ensure!(round <= 3 * rounds, "kubectl is too slow here: {gaps:?}");
            let mark = scene.mark().await?;
            scene.apply(&release(round, web(round))).await?;
            let gap = gap(scene, mark, "app", "web").await?;
            gaps.push(gap);
            scene.quiet().await?;
            let after = scene.snapshot(&web(round)).await?;
            let new = after.new_revisions(&before);
            if gap < SETTLE_PERIOD {
                ensure!(
                    new == 1,
                    "{new} ReplicaSets with {gap:?} between the writes"
                );
                counted += 1;
            }
            ensure!(after.key == Some(scene.expected_key(&web(round)).await?));
            before = after;
        }
        println!("from ConfigMap to Deployment, settle period {SETTLE_PERIOD:?}: {gaps:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_workload_may_come_before_its_config() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let web = Workload::deployment("web").lists("app").requires("app");
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
        let web = Workload::deployment("web").lists("app").requires("app");
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

/// Returns the number of releases that a test makes: `ROUNDS`, or a small default.
pub(crate) fn rounds() -> Result<usize> {
    match env::var("ROUNDS") {
        Ok(rounds) => rounds.parse().with_context(|| format!("ROUNDS={rounds}")),
        Err(_) => Ok(4),
    }
}

/// Returns a release: the ConfigMap first, then 50 other objects, then the workload that lists it.
fn release(round: usize, workload: Workload) -> Vec<serde_json::Value> {
    let value = round.to_string();
    let others = (0..50).map(|number| match number % 2 {
        0 => config_map(&format!("other-{number}"), &value),
        _ => secret(&format!("other-{number}"), &value),
    });
    [config_map("app", &value)]
        .into_iter()
        .chain(others)
        .chain([workload.manifest()])
        .collect()
}

/// Returns the time between the writes of a ConfigMap and of a Deployment since `mark`.
pub(crate) async fn gap(
    scene: &Scene,
    mark: Mark,
    config_map: &str,
    deployment: &str,
) -> Result<Duration> {
    let requests = scene.all_requests(mark).await?;
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
