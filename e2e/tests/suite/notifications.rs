//! Messages to a chat about workloads that are restarted.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::receiver::Receiver;
use pod_reloader_e2e::workload::{Workload, config_map, secret};
use pod_reloader_e2e::{Attempt, CANARY, Options, PATIENCE, Scene, done_if, merge, wait_for};
use serde_json::{Value, json};

/// A part of the URL that must not show up anywhere.
const CREDENTIAL: &str = "B00-T0KEN";

#[tokio::test]
async fn each_rollout_is_one_message_and_nothing_else_is_a_message() -> Result<()> {
    let receiver = Receiver::start(true).await?;
    let directory = tempfile::tempdir()?;
    let options = Options {
        // The arguments of the chart, except for the path of the mounted Secret.
        values: json!({"notifications": {"enabled": true, "existingSecret": "chat", "cluster": "e2e"}}),
        args: vec![receiver.argument(directory.path(), CREDENTIAL)?],
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene
            .apply(&[config_map("app", "1"), secret("db", CANARY)])
            .await?;
        let web = Workload::podless("web").lists("app").lists_secrets("db");
        let before = scene.create(&web).await?;
        scene.label("configmap/app", "touched=yes").await?;
        scene.rolls_not(&web, &before).await?;

        let changed = format!("{CANARY}-2");
        scene.apply(&[secret("db", &changed)]).await?;
        let before = scene.rolls_once(&web, &before).await?;
        receiver.changes("web", 1).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.rolls_once(&web, &before).await?;
        let changes = receiver.changes("web", 2).await?;
        let workload = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "namespace": scene.namespace, "name": "web",
        });
        let expected = [("Secret", "db"), ("ConfigMap", "app")].map(|(kind, name)| {
            let mut change = json!({
                "reason": "ConfigChanged", "problem": false, "cause": "changed",
                "objects": [{"kind": kind, "namespace": scene.namespace, "name": name}],
                "moreObjects": 0, "workloads": [workload], "moreWorkloads": 0,
            });
            let told = changes
                .iter()
                .find(|told| told["objects"] == change["objects"]);
            change["time"] = told.map_or(Value::Null, |told| told["time"].clone());
            change
        });
        ensure!(changes == expected, "{changes:#?}");
        let messages = receiver.messages();
        ensure!(messages[0]["cluster"] == "e2e", "{messages:?}");
        ensure!(!format!("{messages:?}").contains(CANARY), "{messages:?}");
        let sent = r#"pod_reloader_notifications_total{outcome="sent"}"#;
        // The sentinel of the scene is reported, too, maybe a moment later.
        wait_for("each message to be counted", PATIENCE, async || {
            let counted = format!("{sent} {}\n", receiver.messages().len());
            let metrics = scene.operator.metrics().await?;
            done_if(metrics.contains(&counted), metrics)
        })
        .await?;
        for said in [scene.operator.log()?, scene.operator.metrics().await?] {
            ensure!(!said.contains(CREDENTIAL), "{said}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_secret_that_the_chart_mounts_names_the_receiver_and_may_change() -> Result<()> {
    let (first, second) = (Receiver::start(true).await?, Receiver::start(true).await?);
    let options = Options::released();
    Scene::play(options.clone(), async |scene| {
        let url = |receiver: &Receiver| {
            let url = json!({"url": receiver.url(CREDENTIAL)});
            json!({
                "apiVersion": "v1", "kind": "Secret", "stringData": url,
                "metadata": {"name": "chat", "namespace": scene.installation.namespace},
            })
            .to_string()
        };
        let apply = ["apply", "--filename=-"];
        scene.tool().run_with_input(&apply, &url(&first)).await?;
        let mut values = options.values(&scene.namespace);
        let chat = json!({"notifications": {"enabled": true, "existingSecret": "chat", "format": "slack"}});
        merge(&mut values, &chat);
        let mut installation = scene.installation.clone();
        installation.upgrade(&values).await?;
        scene.operator.stop().await;
        let directory = scene.directory().join("with-chat");
        let operator = scene.start_replica(&installation, &directory, &[]).await?;

        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let before = scene.rolls_once(&web, &before).await?;
        wait_for("the first to be told", PATIENCE, async || {
            told(&first, "web")
        })
        .await?;

        scene.tool().run_with_input(&apply, &url(&second)).await?;
        let mut args = installation.args();
        args.retain(|arg| arg.starts_with("--notifications-url-file="));
        let file = args.last().and_then(|arg| arg.split('=').nth(1));
        let file = file.context("the operator is told no file")?;
        wait_for("the file to change", PATIENCE, async || {
            let content = std::fs::read_to_string(file)?;
            done_if(content == second.url(CREDENTIAL), content)
        })
        .await?;
        scene.apply(&[config_map("app", "3")]).await?;
        scene.rolls_once(&web, &before).await?;
        wait_for("the second to be told", PATIENCE, async || {
            told(&second, "web")
        })
        .await?;
        operator.stop().await;
        Ok(())
    })
    .await
}

/// Checks if a message in Slack's format names a Deployment.
fn told(receiver: &Receiver, name: &str) -> Result<Attempt<()>> {
    let messages = format!("{:?}", receiver.messages());
    done_if(messages.contains(&format!("/{name}`")), messages)
}

#[tokio::test]
async fn a_receiver_that_does_not_answer_delays_no_rollout() -> Result<()> {
    let receiver = Receiver::start(false).await?;
    let directory = tempfile::tempdir()?;
    let options = Options {
        args: vec![receiver.argument(directory.path(), CREDENTIAL)?],
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let mut before = scene.rolls_once(&web, &before).await?;
        receiver.changes("web", 1).await?;
        for value in ["3", "4", "5"] {
            scene.apply(&[config_map("app", value)]).await?;
            before = scene.rolls_once(&web, &before).await?;
        }
        // The operator still waits for an answer to the first message, or has given up on it.
        for outcome in ["sent", "dropped"] {
            let name = format!("pod_reloader_notifications_total{{outcome=\"{outcome}\"}}");
            scene.shows(&name, "0").await?;
        }
        ensure!(!scene.operator.log()?.contains(CREDENTIAL));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn observed_and_waiting_changes_are_reported_as_such() -> Result<()> {
    let receiver = Receiver::start(true).await?;
    let directory = tempfile::tempdir()?;
    let options = Options {
        values: json!({
            "reconcile": "observe",
            "notifications": {"enabled": true, "existingSecret": "chat", "send": "all"},
        }),
        args: vec![receiver.argument(directory.path(), CREDENTIAL)?],
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene
            .apply(&[config_map("app", "1"), secret("db", CANARY)])
            .await?;
        let web = Workload::podless("web").lists("app");
        let api = Workload::podless("api")
            .lists_secrets("db")
            .requires_secret("db");
        scene.create(&web).await?;
        scene.create(&api).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let would = &receiver.changes("web", 1).await?[0];
        ensure!(would["reason"] == "WouldRestart", "{would:#}");
        ensure!(would["problem"] == false, "{would:#}");

        scene.delete("secret/db").await?;
        let waits = &receiver.changes("api", 1).await?[0];
        ensure!(waits["reason"] == "MissingConfig", "{waits:#}");
        ensure!(waits["problem"] == true, "{waits:#}");
        ensure!(waits["objects"][0]["name"] == "db", "{waits:#}");
        Ok(())
    })
    .await
}
