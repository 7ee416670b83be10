//! Rolling restarts of the operator under load: no write fails, and none bypasses the webhook.

use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, stream};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{AuditEvent, Options, PATIENCE, Scene, crowd, done_if, full, wait_for};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// A call of the webhook that fails shows with either policy: as a write that fails, or as one that bypasses the webhook. So
/// one of them is enough for a short run.
#[tokio::test]
async fn rolling_restarts_fail_no_write_and_let_none_bypass_the_webhook() -> Result<()> {
    let policies: &[&str] = if full() {
        &["Fail", "Ignore"]
    } else {
        &["Fail"]
    };
    for &policy in policies {
        rolling_restarts(policy).await.context(policy)?;
    }
    Ok(())
}

/// Calls in progress to the replica fail, and so do new ones until it is no longer called.
#[tokio::test]
async fn a_replica_that_is_killed_fails_writes_for_a_moment_only() -> Result<()> {
    let options = Options {
        replicas: 2,
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let workloads = listing_app(scene).await?;
        all_succeed(scene, &workloads, 100).await?;
        let replicas = scene.replicas();
        let mut unnoticed = pin!(async {
            replicas[0].operator.process().kill().await;
            let what = "only the other replica to be called";
            wait_for(what, PATIENCE, async || {
                let ready = scene.balancer()?.ready();
                done_if(ready == [replicas[1].port], format!("{ready:?} are"))
            })
            .await
        });
        let (written, mut failed) = (AtomicUsize::new(0), 0);
        loop {
            tokio::select! {
                noticed = &mut unnoticed => break noticed?,
                Err(_) = write(scene, &workloads, 50, &written) => failed += 1,
            }
        }
        let written = written.into_inner();
        println!("{written} writes, {failed} failed before the replica was no longer called");
        let later = all_succeed(scene, &workloads, 150).await;
        later.context("later")
    })
    .await
}

/// Writes until this number of writes has succeeded.
async fn all_succeed(scene: &Scene, workloads: &[Workload], count: usize) -> Result<()> {
    let written = AtomicUsize::new(0);
    let enough = wait_for("writes", PATIENCE, async || {
        let written = written.load(Ordering::Relaxed);
        done_if(written >= count, format!("{written} of {count}"))
    });
    tokio::select! {
        enough = enough => enough,
        failed = write(scene, workloads, 50, &written) => failed,
    }
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
        let passed_by = scene.requests_naming(&scene.namespace, mark).await?;
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
