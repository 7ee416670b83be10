//! Config that changes again and again restarts pods a few times, and ends right.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use pod_reloader_e2e::workload::{Workload, secret};
use pod_reloader_e2e::{Options, Scene, full};
use serde_json::{Value, json};
use tokio::time::{Instant, interval, sleep};

#[tokio::test]
async fn a_hundred_changes_in_ten_seconds_are_three_rollouts_at_most() -> Result<()> {
    const CHANGES: u32 = 100;
    let options = Options {
        settle_period: "5s",
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.apply(&[secret("app", "0")]).await?;
        let web = Workload::deployment("web").lists_secrets("app");
        let before = scene.create(&web).await?;
        let began = Instant::now();
        let secrets: Api<Secret> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let mut due = interval(Duration::from_secs(10) / CHANGES);
        for change in 1..=CHANGES {
            due.tick().await;
            let patch = Patch::Merge(json!({"stringData": {"key": change.to_string()}}));
            let params = PatchParams::default();
            secrets.patch("app", &params, &patch).await?;
        }
        println!("{CHANGES} changes in {:?}", began.elapsed());
        scene.right(&web).await?;
        scene.quiet().await?;
        scene.right(&web).await?;
        let rollouts = scene.snapshot(&web).await?.new_revisions(&before);
        ensure!((1..=3).contains(&rollouts), "{rollouts} rollouts");
        Ok(())
    })
    .await
}

/// cert-manager renews the certificate every five seconds.
#[tokio::test]
async fn a_certificate_that_flaps_is_braked_and_said_so() -> Result<()> {
    let limit = if full() { 5 } else { 2 };
    let options = Options {
        args: vec![format!("--max-restarts={limit}")],
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.apply(&flapping_certificate()).await?;
        let web = Workload::deployment("web").lists_secrets("flapping");
        let before = scene.create(&web).await?;
        let flapping = Instant::now();
        let note = loop {
            match scene.event(&web, "RestartedTooOften").await {
                Ok(note) => break note,
                Err(error) if flapping.elapsed() > Duration::from_secs(120) => return Err(error),
                Err(_) => {}
            }
        };
        ensure!(note.contains("1 min"), "it names the pause: {note}");
        scene
            .operator
            .shows("pod_reloader_braked_workloads", "1")
            .await?;
        let restarts = r#"pod_reloader_restarts_total{kind="Deployment",cause="changed"}"#;
        scene.operator.shows(restarts, &limit.to_string()).await?;
        if full() {
            sleep(Duration::from_secs(600).saturating_sub(flapping.elapsed())).await;
            let rollouts = scene.snapshot(&web).await?.new_revisions(&before);
            println!("{rollouts} rollouts in {:?}", flapping.elapsed());
            ensure!(rollouts <= limit + 4, "{rollouts} rollouts");
        }
        Ok(())
    })
    .await
}

fn flapping_certificate() -> [Value; 2] {
    [
        json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Issuer",
            "metadata": {"name": "self-signed"}, "spec": {"selfSigned": {}},
        }),
        json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"name": "flapping"},
            "spec": {
                "dnsNames": ["example.com"], "secretName": "flapping",
                "duration": "1h", "renewBefore": "59m55s",
                "issuerRef": {"name": "self-signed"},
            },
        }),
    ]
}
