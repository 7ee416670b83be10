//! Helm 4 and Helm 3.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use pod_reloader_e2e::{RealScene, Tool, workload::config_map};
use serde_json::json;

use crate::claims::{
    App, VARIABLE, deployed, each_rolls_once, every_feature, field, is_idle, released,
};

#[tokio::test]
async fn install_upgrade_and_rollback_are_one_rollout_each() -> Result<()> {
    RealScene::play("helm", every_feature()?, async |scene| {
        scene.pins_are_in_force().await?;
        let chart = chart(scene)?;
        let four = scene.control_plane.helm();
        let three = scene.control_plane.helm3();
        for (name, helm) in [("helm-four", four), ("helm-three", three)] {
            let mut app = App::new(scene, name);
            write(scene, &helm, &chart, "install", &app).await?;
            app.before = deployed(scene, name, "1").await?;
            rolled(scene, &app, "1").await?;

            app.config = config_map(name, "2");
            app.web = released(&app.web, "2");
            write(scene, &helm, &chart, "upgrade", &app).await?;
            each_rolls_once(scene, std::slice::from_mut(&mut app), "2").await?;
            rolled(scene, &app, "2").await?;

            app.config = config_map(name, "3");
            write(scene, &helm, &chart, "upgrade", &app).await?;
            each_rolls_once(scene, std::slice::from_mut(&mut app), "3").await?;
            rolled(scene, &app, "3").await?;

            let rollback = ["rollback", name, "1", "--namespace", &scene.namespace];
            helm.run(&rollback).await?;
            scene.all_answer(name, VARIABLE, "1").await?;
            scene.rolled_out(name).await?;
            rolled(scene, &app, "4").await?;
        }
        Ok(())
    })
    .await
}

/// Waits until the operator is idle, and checks the number of the Deployment's revision: one for each rollout, also for one
/// to an earlier ReplicaSet.
async fn rolled(scene: &RealScene, app: &App, expected: &str) -> Result<()> {
    is_idle(scene, "other").await?;
    let path = "{.metadata.annotations.deployment\\.kubernetes\\.io/revision}";
    let revision = field(scene, app, path).await?;
    ensure!(revision == expected, "{}: revision {revision}", app.name);
    Ok(())
}

/// Installs or upgrades the release of an application.
async fn write(
    scene: &RealScene,
    helm: &Tool,
    chart: &Path,
    command: &str,
    app: &App,
) -> Result<()> {
    let chart = chart.display().to_string();
    let args = [command, app.name, &chart, "--values=-"];
    let args = [&args[..], &["--namespace", &scene.namespace]].concat();
    let values = json!({"objects": [app.config, app.web.manifest()]});
    let written = helm.run_with_input(&args, &values.to_string()).await;
    written.map(drop)
}

/// Writes a chart that renders the objects in its values.
fn chart(scene: &RealScene) -> Result<PathBuf> {
    let directory = &scene.control_plane.description().directory;
    let chart = directory.join(format!("{}-chart", scene.namespace));
    fs::create_dir_all(chart.join("templates"))?;
    let about = json!({"apiVersion": "v2", "name": "app", "version": "1.0.0"});
    fs::write(chart.join("Chart.yaml"), about.to_string())?;
    let template = "{{ range .Values.objects }}\n---\n{{ toJson . }}\n{{ end }}";
    fs::write(chart.join("templates/objects.yaml"), template)?;
    Ok(chart)
}
