//! Gates keep workloads as they are, until their users say otherwise.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Kind, Workload, config_map, secret};
use pod_reloader_e2e::{Options, Scene};
use serde_json::{Value, json};

use crate::held_up::{RESTART_WINDOW, closed_window, open_window};
use crate::staged::{STAGE, patched, staged};

const TOGETHER: &str = "pod-reloader.cs.sap.com/together";
const TOGETHER_TIMEOUT: &str = "pod-reloader.cs.sap.com/together-timeout";

#[tokio::test]
async fn changes_while_a_window_is_closed_are_one_rollout_when_it_opens() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let closed = closed_window();
        let all = Kind::ALL.map(|kind| {
            let web = Workload::new(kind, &kind.as_str().to_lowercase())
                .without_pods()
                .lists("app");
            web.annotated(RESTART_WINDOW, &closed)
        });
        scene.apply(&[config_map("app", "1")]).await?;
        scene.create_all(&all).await?;
        scene.quiet().await?;
        let before = scene.snapshots(&all).await?;

        scene.apply(&[config_map("app", "2")]).await?;
        scene.quiet().await?;
        scene.operator.stop().await;
        scene.apply(&[config_map("app", "3")]).await?;
        scene.operator.start_again().await?;
        scene.apply(&[config_map("app", "4")]).await?;
        let opens = closed.split('-').next().unwrap_or_default();
        for workload in &all {
            let note = scene.event(workload, "RestartPending").await?;
            ensure!(note.contains(&format!(" {opens} UTC")), "{closed}: {note}");
        }
        scene.quiet().await?;
        let waiting = scene.snapshots(&all).await?;
        ensure!(waiting == before, "{before:?}, {waiting:?}");

        // `kubectl rollout restart` does not wait. Then there is nothing left for the window.
        let restart = json!({"kubectl.kubernetes.io/restartedAt": "2026-01-31T12:00:00Z"});
        let restart = json!({"spec": {"template": {"metadata": {"annotations": restart}}}});
        scene.patch(&all[0], &restart).await?;
        let restarted = scene.rolls_once(&all[0], &before[0]).await?;

        let open = json!({"metadata": {"annotations": {RESTART_WINDOW: open_window()}}});
        for workload in &all {
            scene.patch(workload, &open).await?;
        }
        scene.each_rolls_once(&all[1..], &before[1..]).await?;
        ensure!(scene.snapshot(&all[0]).await? == restarted);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn values_that_mean_nothing_are_warned_of_and_open_no_gate() -> Result<()> {
    let options = Options {
        settle_period: "300ms",
        ..staged("configmaps")
    };
    Scene::play(options, async |scene| {
        let web = |name: &str| Workload::deployment(name).lists("app");
        let bad = |name: &str, key: &str, value: &str| {
            web(name).annotated(&format!("pod-reloader.cs.sap.com/{key}"), value)
        };
        let in_stages = [
            web("z-early").annotated(STAGE, "0"),
            bad("stage-x", "stage", "x"),
            web("a-late").annotated(STAGE, "2"),
        ];
        let gated = [
            bad("days", "restart-window", "Mon-"),
            bad("zone", "restart-window", "02:00-04:00 Mars"),
            bad("hold", "hold", "maybe"),
            bad("approval", "approval", "yes"),
        ];
        scene.apply(&[config_map("app", "1")]).await?;
        let items = in_stages.iter().chain(&gated).map(Workload::manifest);
        let items: Vec<_> = items.collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        let apply = ["apply", "--filename=-"];
        let output = scene.kubectl_output(&apply, &list).await?;
        for warning in [
            "stage \"x\" has no effect; it takes a whole number",
            "restart-window \"Mon-\" prevents restarts; it takes windows",
            "restart-window \"02:00-04:00 Mars\" prevents restarts; it takes windows",
            "hold \"maybe\" prevents restarts; it takes true or false",
            "approval \"yes\" prevents restarts; it takes required",
        ] {
            let warning = format!("Warning: pod-reloader: pod-reloader.cs.sap.com/{warning}");
            ensure!(output.stderr.contains(&warning), "{warning}: {output:?}");
        }
        let warnings = output.stderr.matches("Warning: ").count();
        ensure!(warnings == 5, "{output:?}");
        for workload in &in_stages {
            scene.rolled_out(workload).await?;
        }
        scene.quiet().await?;

        let before = scene.snapshots(&gated).await?;
        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        for (workload, why) in gated.iter().zip([
            "/restart-window names no window",
            "/restart-window names no window",
            "/hold says so",
            "/approve=",
        ]) {
            let note = scene.event(workload, "RestartPending").await?;
            ensure!(note.contains(why), "{note}");
        }
        for workload in &in_stages {
            scene.right(workload).await?;
        }
        scene.quiet().await?;
        let order = patched(scene, mark).await?;
        ensure!(order == ["z-early", "stage-x", "a-late"], "{order:?}");
        let after = scene.snapshots(&gated).await?;
        ensure!(after == before, "{before:?}, {after:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_hold_on_a_secret_or_a_config_map_is_one_rollout_once_it_is_gone() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let (app, key) = (config_map("app", "1"), secret("key", "1"));
        scene.apply(&[app, key]).await?;
        let web = Workload::deployment;
        let all = [
            web("of-secret").lists_secrets("key"),
            web("of-config-map").lists("app"),
            web("of-both").lists("app").lists_secrets("key"),
        ];
        scene.create_all(&all).await?;
        scene.quiet().await?;
        let before = scene.snapshots(&all).await?;

        let (app, key) = (config_map("app", "2"), secret("key", "2"));
        scene.apply(&[on_hold(&app), on_hold(&key)]).await?;
        for (workload, object) in all.iter().zip(["Secret key", "ConfigMap app", ""]) {
            let note = scene.event(workload, "RestartPending").await?;
            let why = format!("{object} has the annotation");
            ensure!(note.contains(&why), "{note}");
        }
        scene.quiet().await?;
        let held = scene.snapshots(&all).await?;
        ensure!(held == before, "{before:?}, {held:?}");

        scene.apply(&[key]).await?;
        scene.rolls_once(&all[0], &before[0]).await?;
        let held = scene.snapshots(&all[1..]).await?;
        ensure!(held == before[1..], "{before:?}, {held:?}");
        scene.apply(&[app]).await?;
        scene.each_rolls_once(&all[1..], &before[1..]).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_user_and_its_password_are_one_rollout_when_both_have_changed() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let web = |name: &str, timeout: &str| {
            Workload::deployment(name)
                .lists("user")
                .lists_secrets("password")
                .annotated(TOGETHER, "user, secret/password")
                .annotated(TOGETHER_TIMEOUT, timeout)
        };
        let all = [web("late", "10m"), web("edited", "10m"), web("never", "3s")];
        let [late, edited, never] = &all;
        let (user, password) = (config_map("user", "1"), secret("password", "1"));
        scene.apply(&[user, password]).await?;
        scene.create_all(&all).await?;
        scene.quiet().await?;
        let before = scene.snapshots(&all).await?;

        scene.apply(&[config_map("user", "2")]).await?;
        for workload in [late, edited] {
            let note = scene.event(workload, "WaitingForTogether").await?;
            ensure!(note.contains("Secret password changes, too"), "{note}");
        }
        scene.rolls_once(never, &before[2]).await?;
        let note = scene.event(never, "TogetherTimedOut").await?;
        ensure!(note.contains("no change of Secret password"), "{note}");

        // An edit of the template takes the user along. Then nothing is due, until the password comes.
        let edit = json!({"spec": {"template": {"metadata": {"labels": {"edit": "1"}}}}});
        scene.patch(edited, &edit).await?;
        scene.rolls_once(edited, &before[1]).await?;
        scene.quiet().await?;
        ensure!(scene.snapshot(late).await? == before[0], "it waits");
        let between = scene.snapshot(edited).await?;

        scene.apply(&[secret("password", "2")]).await?;
        scene.rolls_once(late, &before[0]).await?;
        scene.rolls_once(edited, &between).await?;
        Ok(())
    })
    .await
}

fn on_hold(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"] = json!({"pod-reloader.cs.sap.com/hold": "true"});
    object
}

#[tokio::test]
async fn an_annotation_of_a_namespace_holds_its_workloads_until_it_is_removed() -> Result<()> {
    let label = std::process::id().to_string();
    let options = Options {
        everywhere: true,
        namespace_labels: vec![format!("gates={label}")],
        values: json!({
            "namespaceAnnotations": {"enabled": true},
            "watch": {"namespaceSelector": {"matchLabels": {"gates": label}}},
        }),
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let hold = "pod-reloader.cs.sap.com/hold";
        let web = Workload::deployment("web").lists("app");
        let free = Workload::deployment("free")
            .lists("app")
            .annotated(hold, "false");
        scene.apply(&[config_map("app", "1")]).await?;
        let both = [web.clone(), free.clone()];
        scene.create_all(&both).await?;
        scene.quiet().await?;
        let before = scene.snapshots(&both).await?;

        let annotate = async |text: &str| {
            let namespace = format!("namespace/{}", scene.namespace);
            scene.annotate(&namespace, text).await
        };
        annotate(&format!("{hold}=true")).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        // What shows that all is quiet is a workload, which would be on hold, too.
        scene.right(&free).await?;
        let note = scene.event(&web, "RestartPending").await?;
        ensure!(note.contains("their Namespace"), "{note}");
        ensure!(scene.snapshot(&web).await? == before[0], "it is on hold");

        annotate(&format!("{hold}-")).await?;
        scene.rolls_once(&web, &before[0]).await?;
        Ok(())
    })
    .await
}
