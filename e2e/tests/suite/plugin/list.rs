//! `list`: the workloads of a namespace, for a user who can only read.

use std::fs;

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{Options, PATIENCE, Process, Scene, done_if, wait_for};

use super::{bind, json_of, may_list, text};

#[tokio::test]
async fn a_reader_lists_workloads_with_what_they_wait_for() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = Workload::deployment("web").lists("app");
        let api = Workload::deployment("api").lists("app");
        for workload in [&web, &api, &Workload::deployment("alone")] {
            scene.create(workload).await?;
        }
        bind(scene, "view", "viewer").await?;
        let there = &scene.installation.namespace;
        scene.bind(there, "viewer", "clusterrole/view").await?;
        may_list(scene, there, "viewer").await?;
        let own = format!("--operator-namespace={there}");
        let reader = ["list", "--as=viewer", &own];

        let names = text(scene, &[&reader[..], &["-o", "name"]].concat()).await?;
        ensure!(
            names == "deployment.apps/api\ndeployment.apps/web\n",
            "{names}"
        );

        let template = r#"jsonpath={range .items[*]}{.kind}/{.name}{"\n"}{end}"#;
        let filled = text(scene, &[&reader[..], &["-o", template]].concat()).await?;
        ensure!(filled == "Deployment/api\nDeployment/web\n", "{filled}");

        text(scene, &["hold", "deploy/web"]).await?;
        let before = scene.snapshot(&web).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.event(&web, "RestartPending").await?;
        let list = json_of(scene, &reader).await?;
        let held = &list["items"][1];
        ensure!(held["name"] == "web", "{list:#}");
        ensure!(held["status"] == "waiting", "{list:#}");
        ensure!(held["waitsFor"].is_string(), "{list:#}");

        text(scene, &["release", "deploy/web"]).await?;
        scene.rolls_once(&web, &before).await?;
        scene.event(&web, "ConfigChanged").await?;
        text(scene, &["wait", "deploy", "web", "api"]).await?;
        let list = json_of(scene, &reader).await?;
        let restarted = &list["items"][1];
        ensure!(restarted["status"] == "nothing reported", "{list:#}");
        ensure!(restarted["lastRestart"].is_string(), "{list:#}");
        // The operator is asked as somebody who may patch.
        let live = json_of(scene, &["list", "--live", &own]).await?;
        ensure!(live["items"][1]["status"] == "up to date", "{live:#}");
        let labelled = text(scene, &[&reader[..], &["-l", "no=such"]].concat()).await?;
        ensure!(labelled.is_empty(), "{labelled}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_watched_list_goes_on_with_what_changes() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.create_listing(Workload::deployment("web")).await?;
        let namespace = format!("--namespace={}", scene.namespace);
        let args = ["pod-reloader", "list", "--watch", &namespace];
        let log = scene.directory().join("list.log");
        let list = scene.tool().with_plugin()?.start(&args, log)?;
        prints(&list, "nothing reported").await?;
        text(scene, &["hold", "deploy/web"]).await?;
        prints(&list, "on hold").await?;
        scene.delete("deployment/web").await?;
        prints(&list, "gone").await?;
        let printed = fs::read_to_string(list.log())?;
        ensure!(printed.matches("LAST RESTART").count() == 1, "{printed}");
        Ok(())
    })
    .await
}

/// Waits until a list that is watched has a line about Deployment `web` with this status.
async fn prints(list: &Process, status: &str) -> Result<()> {
    let what = format!("a line with the status {status}");
    wait_for(&what, PATIENCE, async || {
        list.must_run()?;
        let printed = fs::read_to_string(list.log())?;
        let is_there =
            |line: &str| line.starts_with("deployment.apps/web ") && line.contains(status);
        done_if(printed.lines().any(is_there), printed)
    })
    .await
}
