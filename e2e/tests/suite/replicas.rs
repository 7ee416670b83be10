//! Replicas behind a balancer: who is called, who leads, and that nothing is lost when that changes.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Kind, Workload, config_map, secret};
use pod_reloader_e2e::{CANARY, Expected, Options, Oracles, PATIENCE, Scene, done_if, wait_for};

#[tokio::test]
async fn calls_go_to_replicas_that_are_ready_and_one_of_them_leads() -> Result<()> {
    let options = Options {
        replicas: 2,
        proxied: true,
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene
            .apply(&[config_map("app", "1"), secret("app", CANARY)])
            .await?;
        let workloads = Kind::ALL.map(|kind| {
            let workload = Workload::new(kind, "web").without_pods().lists("app");
            workload.lists_secrets("app")
        });
        for workload in &workloads {
            scene.create(workload).await?;
        }
        let mut oracles = Oracles::begin(scene, &workloads).await?;
        let leader = scene.leader().await?;
        ensure!(scene.followers().await?.len() == 1);

        scene.apply(&[config_map("app", "2")]).await?;
        oracles.check("a change", Expected::revisions(1)).await?;

        leader.operator.process().kill().await;
        only_ready(scene, 1).await?;
        // Its connections are gone: the next call opens a new one.
        let first = workloads[0].reference();
        scene.label(&first, "team=blue").await?;
        scene.apply(&[config_map("app", "3")]).await?;
        let new = scene.leader().await?;
        ensure!(new.port != leader.port);
        ensure!(scene.balancer()?.connections(new.port) > 0);
        oracles.check("a kill", Expected::revisions(1)).await?;

        leader.operator.start_again().await?;
        only_ready(scene, 2).await?;
        let third = scene.add_replica().await?;
        only_ready(scene, 3).await?;
        new.operator.stop().await;
        only_ready(scene, 2).await?;
        let next = scene.leader().await?;
        ensure!([leader.port, third.port].contains(&next.port));
        oracles.check("a handover", Expected::revisions(0)).await?;
        Ok(())
    })
    .await
}

async fn only_ready(scene: &Scene, count: usize) -> Result<()> {
    let what = format!("{count} replicas to be called");
    wait_for(&what, PATIENCE, async || {
        let ready = scene.balancer()?.ready();
        done_if(ready.len() == count, format!("{ready:?}"))
    })
    .await
}
