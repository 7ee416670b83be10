//! Events as `kubectl describe` and other tools read them.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Workload, config_map, secret};
use pod_reloader_e2e::{Options, PATIENCE, Scene, done_with, wait_for};
use serde_json::{Value, json};

#[tokio::test]
async fn a_restart_is_an_event_about_workload_and_object_and_repetitions_are_counted() -> Result<()>
{
    // Longer than the possible time between two writes.
    Scene::play(Options::settling("2s"), async |scene| {
        scene
            .apply(&[config_map("app", "1"), secret("db", "1")])
            .await?;
        let web = Workload::podless("web").lists("app").lists_secrets("db");
        let mut before = scene.create(&web).await?;
        for value in ["2", "3", "4"] {
            scene.apply(&[secret("db", value)]).await?;
            before = scene.rolls_once(&web, &before).await?;
        }
        let events = restarts(scene, |events| {
            events.len() == 1 && events[0]["series"]["count"] == 3
        })
        .await?;
        let stored = scene.object("deployment/web").await?;
        let about = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
            "namespace": scene.namespace, "uid": stored["metadata"]["uid"],
        });
        // Only the name of a Secret is shown.
        let related = json!({
            "apiVersion": "v1", "kind": "Secret", "name": "db", "namespace": scene.namespace,
        });
        let event = &events[0];
        ensure!(event["apiVersion"] == "events.k8s.io/v1", "{event:#}");
        ensure!(event["regarding"] == about, "{event:#}");
        ensure!(event["related"] == related, "{event:#}");
        ensure!(event["type"] == "Normal", "{event:#}");
        ensure!(event["action"] == "Reconcile", "{event:#}");
        ensure!(
            event["note"] == "restarting pods: Secret db changed",
            "{event:#}"
        );
        let (first, last) = (&event["eventTime"], &event["series"]["lastObservedTime"]);
        ensure!(first.as_str() < last.as_str(), "{event:#}");

        // The same object and another one make a different message.
        scene
            .put_all(&[config_map("app", "2"), secret("db", "5")])
            .await?;
        scene.rolls_once(&web, &before).await?;
        let events = restarts(scene, |events| events.len() > 1).await?;
        let both = events.iter().filter(|event| {
            let note = event["note"].as_str().unwrap_or_default();
            note.contains("Secret db") && note.contains("ConfigMap app")
        });
        ensure!(both.count() == 1, "{events:#?}");
        let counted = events.iter().filter(|event| event["series"]["count"] == 3);
        ensure!(counted.count() == 1, "{events:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_problem_is_in_the_log_with_the_reason_and_the_text_of_its_event() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let (web, _) = scene
            .create_listing(Workload::podless("web").requires("app"))
            .await?;
        scene.delete("configmap/app").await?;
        let note = scene.event(&web, "MissingConfig").await?;
        let log = scene.operator.log()?;
        let told = format!(r#"reason="MissingConfig" note="{note}""#);
        let lines: Vec<_> = log.lines().filter(|line| line.contains(&told)).collect();
        ensure!(lines.len() == 1, "{told} in\n{log}");
        ensure!(lines[0].contains("/web"), "{}", lines[0]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_workload_with_the_longest_name_gets_its_events() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        // The name cannot be the value of a label, nor be followed by the suffix of a ReplicaSet.
        let name = ["a".repeat(235), "-b.c".to_owned(), "d".repeat(14)].concat();
        let labels = json!({"app": "long"});
        let web = Workload::podless(&name)
            .with(&["spec", "selector", "matchLabels"], labels.clone())
            .with(&["spec", "template", "metadata", "labels"], labels)
            .lists("app");
        scene
            .apply(&[config_map("app", "1"), web.manifest()])
            .await?;
        // Otherwise the ConfigMap would change before the operator has seen its first content.
        scene.quiet().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let note = scene.event(&web, "ConfigChanged").await?;
        ensure!(note == "restarting pods: ConfigMap app changed", "{note}");
        Ok(())
    })
    .await
}

/// Returns the Events of restarts of `web`, as soon as they are as expected.
async fn restarts(scene: &Scene, are_expected: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>> {
    wait_for("Events of restarts", PATIENCE, async || {
        let mut events = scene.events_in(&scene.namespace).await?;
        events.retain(|event| {
            event["reason"] == "ConfigChanged" && event["regarding"]["name"] == "web"
        });
        done_with(are_expected(&events), format!("{events:#?}"), events)
    })
    .await
}
