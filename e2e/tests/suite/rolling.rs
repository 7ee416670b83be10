//! Rolling restarts of the operator under load: no write fails, and none bypasses the webhook.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Result, ensure};
use futures::{StreamExt, stream};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{AuditEvent, Options, Scene, crowd, full};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

#[tokio::test]
async fn rolling_restarts_with_fail_fail_no_write() -> Result<()> {
    rolling_restarts("Fail").await
}

#[tokio::test]
async fn rolling_restarts_with_ignore_let_no_write_pass_by() -> Result<()> {
    rolling_restarts("Ignore").await
}

/// Calls under way to the replica fail, and so do new ones until it is no longer called.
#[tokio::test]
async fn a_replica_that_is_killed_fails_writes_for_a_moment_only() -> Result<()> {
    const NOTICED_WITHIN: Duration = Duration::from_secs(2);
    let options = Options {
        replicas: 2,
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let workloads = listing_app(scene).await?;
        let written = AtomicUsize::new(0);
        let write = || write(scene, &workloads, 50, &written);
        let calm = tokio::time::timeout(Duration::from_secs(2), write()).await;
        ensure!(calm.is_err(), "{calm:?}");
        scene.replicas()[0].operator.process().kill().await;
        let killed = Instant::now();
        let mut failed = 0;
        while killed.elapsed() < NOTICED_WITHIN {
            let rest = NOTICED_WITHIN.saturating_sub(killed.elapsed());
            failed += usize::from(tokio::time::timeout(rest, write()).await.is_ok());
        }
        let calm = tokio::time::timeout(Duration::from_secs(3), write()).await;
        println!(
            "{} writes, {failed} failed",
            written.load(Ordering::Relaxed)
        );
        ensure!(calm.is_err(), "later: {calm:?}");
        ensure!(failed <= 4 * AT_ONCE, "{failed} failed");
        Ok(())
    })
    .await
}

async fn listing_app(scene: &Scene) -> Result<Vec<Workload>> {
    scene.apply(&[config_map("app", "1")]).await?;
    let lists = |workload: Workload| workload.lists("app");
    let workloads: Vec<_> = crowd("web", 40).into_iter().map(lists).collect();
    scene.create_all(&workloads).await?;
    Ok(workloads)
}

/// Restarts replicas as a Deployment does: starts one more, and when it is ready, stops an old one.
async fn rolling_restarts(failure_policy: &'static str) -> Result<()> {
    let (restarts, drain_period, per_second) = match full() {
        true => (20, "15s", 200),
        false => (1, "10s", 50),
    };
    let options = Options {
        replicas: 2,
        failure_policy,
        args: vec![format!("--drain-period={drain_period}")],
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let workloads = listing_app(scene).await?;
        let mark = scene.mark().await?;
        let (written, began) = (AtomicUsize::new(0), Instant::now());
        let rolled = async {
            for _ in 0..restarts {
                for old in scene.replicas() {
                    scene.add_replica().await?;
                    old.operator.stop().await;
                    scene.forget(&old);
                }
            }
            anyhow::Ok(())
        };
        tokio::select! {
            rolled = rolled => rolled?,
            failed = write(scene, &workloads, per_second, &written) => failed?,
        }
        let (written, took) = (written.into_inner(), began.elapsed());
        println!("{restarts} rolling restarts, {written} writes in {took:?}, none failed");
        ensure!(written > 100, "only {written} writes");
        let passed_by = scene.all_requests(mark).await?;
        let passed_by = passed_by.iter().filter(|write| has_passed_by(scene, write));
        ensure!(passed_by.count() == 0, "the webhook was passed by");
        Ok(())
    })
    .await
}

/// Writes workloads in turns, every tenth time their template, until a write fails.
async fn write(
    scene: &Scene,
    workloads: &[Workload],
    per_second: u32,
    written: &AtomicUsize,
) -> Result<()> {
    let mut ticks = interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let numbers = stream::unfold((ticks, 0_usize), async |(mut ticks, number)| {
        ticks.tick().await;
        Some((number, (ticks, number + 1)))
    });
    let mut writes = Box::pin(
        numbers
            .map(async |number| {
                let labels = json!({"labels": {"n": number.to_string()}});
                let patch = match number % 10 {
                    0 => json!({"spec": {"template": {"metadata": labels}}}),
                    _ => json!({"metadata": labels}),
                };
                scene
                    .patch(&workloads[number % workloads.len()], &patch)
                    .await
            })
            .buffer_unordered(AT_ONCE),
    );
    while let Some(outcome) = writes.next().await {
        outcome?;
        written.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Number of writes that are under way at once.
const AT_ONCE: usize = 16;

fn has_passed_by(scene: &Scene, write: &AuditEvent) -> bool {
    const FAILED_OPEN: &str = "failed-open.mutation.webhook.admission.k8s.io/";
    write.namespace == scene.namespace
        && write
            .annotations
            .keys()
            .any(|key| key.starts_with(FAILED_OPEN))
}
