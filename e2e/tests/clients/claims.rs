//! Claims that hold under every GitOps tool, with pods that run.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::{
    PATIENCE, RealScene, Repository, chart, done_if, merge,
    real_scene::LONG,
    wait_for,
    workload::{Workload, config_map},
};
use serde_json::{Value, json};

/// A tool that makes the cluster as Git says, with an application for each of its ways to do so.
pub(crate) trait GitOps {
    /// Returns the repository that it reads from.
    fn repository(&self) -> &Repository;

    /// Has an application deployed, whose folder is committed.
    async fn create(&self, app: &str) -> Result<()>;

    /// Waits until an application is as a commit says.
    async fn synced(&self, app: &str, commit: &str) -> Result<()>;

    /// Has it put back what differs from Git, if it does not do that unasked.
    async fn heal(&self, app: &str) -> Result<()>;

    /// Has it compare an application with Git again, and fails if there is a difference.
    async fn no_drift(&self, app: &str) -> Result<()>;
}

/// An application in Git: a ConfigMap, and a Deployment that pins it. Its name is also that of its folder, and of the
/// objects.
pub(crate) struct App {
    pub(crate) name: &'static str,
    pub(crate) config: Value,
    pub(crate) web: Workload,
    /// Revisions of the Deployment at the last look.
    pub(crate) before: BTreeSet<String>,
}

impl App {
    /// Returns an application that is not in Git yet.
    pub(crate) fn new(scene: &RealScene, name: &'static str) -> Self {
        Self {
            name,
            config: config_map(name, "1"),
            web: web(scene, name, name),
            before: BTreeSet::new(),
        }
    }

    fn deployment(&self) -> String {
        self.web.reference()
    }
}

/// Commits all applications, and has them deployed: each is rolled out, and its pods have the content of Git.
pub(crate) async fn install(
    scene: &RealScene,
    tool: &impl GitOps,
    names: &[&'static str],
) -> Result<Vec<App>> {
    scene.pins_are_in_force().await?;
    let mut apps: Vec<_> = names
        .iter()
        .copied()
        .map(|name| App::new(scene, name))
        .collect();
    write(tool, &apps)?;
    let commit = tool.repository().commit().await?;
    for app in &apps {
        tool.create(app.name).await?;
    }
    for app in &mut apps {
        tool.synced(app.name, &commit).await?;
        app.before = deployed(scene, app.name, "1").await?;
    }
    Ok(apps)
}

/// Waits until a Deployment has pinned its config, and its pods have this content. Returns its revisions.
pub(crate) async fn deployed(
    scene: &RealScene,
    name: &str,
    content: &str,
) -> Result<BTreeSet<String>> {
    let pinned = ["wait", "deployment", name, PINNED, "--timeout=60s"];
    scene.kubectl(&pinned).await?;
    scene.rolled_out(name).await?;
    scene.all_answer(name, VARIABLE, content).await?;
    scene.revisions(name).await
}

/// Nothing happens to what is installed, however often the tool compares it.
pub(crate) async fn nothing_drifts(
    scene: &RealScene,
    tool: &impl GitOps,
    apps: &[App],
) -> Result<()> {
    for round in ["first", "second"] {
        is_idle(scene, &format!("{round}-look")).await?;
        for app in apps {
            let before = written(scene, app).await?;
            tool.no_drift(app.name).await?;
            let after = written(scene, app).await?;
            ensure!(before == after, "{}: {before}, then {after}", app.name);
            let rollouts = scene.new_revisions(app.name, &app.before).await?;
            ensure!(rollouts == 0, "{}: {rollouts} rollouts", app.name);
        }
    }
    Ok(())
}

/// A commit that changes only config is one rollout of each application, and no drift after it.
pub(crate) async fn a_change_is_one_rollout(
    scene: &RealScene,
    tool: &impl GitOps,
    apps: &mut [App],
    content: &str,
) -> Result<()> {
    for app in &mut *apps {
        app.config = config_map(app.name, content);
    }
    commit(tool, apps).await?;
    each_rolls_once(scene, apps, content).await?;
    nothing_drifts(scene, tool, apps).await
}

/// A commit that changes config and pod template is one rollout, with both.
pub(crate) async fn a_release_is_one_rollout(
    scene: &RealScene,
    tool: &impl GitOps,
    apps: &mut [App],
) -> Result<()> {
    for app in &mut *apps {
        app.config = config_map(app.name, "2");
        app.web = released(&app.web, "2");
    }
    commit(tool, apps).await?;
    each_rolls_once(scene, apps, "2").await?;
    for app in &*apps {
        scene.all_answer(app.name, "/env/RELEASE", "2").await?;
    }
    nothing_drifts(scene, tool, apps).await
}

/// An undo brings back the earlier content, although Git has the later one. It stays while the tool puts something else
/// back, and the next commit goes on.
pub(crate) async fn an_undo_stays_until_the_next_commit(
    scene: &RealScene,
    tool: &impl GitOps,
    apps: &mut [App],
) -> Result<()> {
    a_change_is_one_rollout(scene, tool, apps, "2").await?;
    for app in &*apps {
        let undo = ["rollout", "undo", &app.deployment()];
        scene.kubectl(&undo).await?;
        scene.all_answer(app.name, VARIABLE, "1").await?;
        scene.rolled_out(app.name).await?;
    }
    each_heals(scene, tool, apps).await?;
    nothing_drifts(scene, tool, apps).await?;
    for app in &*apps {
        scene.all_answer(app.name, VARIABLE, "1").await?;
    }
    a_change_is_one_rollout(scene, tool, apps, "3").await
}

/// The tool puts back what somebody has edited, without a rollout.
pub(crate) async fn each_heals(scene: &RealScene, tool: &impl GitOps, apps: &[App]) -> Result<()> {
    for app in apps {
        let scale = ["scale", &app.deployment(), "--replicas=3"];
        scene.kubectl(&scale).await?;
        tool.heal(app.name).await?;
        let what = format!("{} to have two replicas again", app.name);
        wait_for(&what, LONG, async || {
            let replicas = field(scene, app, "{.spec.replicas}").await?;
            done_if(replicas == "2", replicas)
        })
        .await?;
        scene.rolled_out(app.name).await?;
        let rollouts = scene.new_revisions(app.name, &app.before).await?;
        ensure!(rollouts == 0, "{}: {rollouts} rollouts", app.name);
    }
    Ok(())
}

/// A commit that replaces a ConfigMap by another one, under another name, is one rollout. The first one is pruned.
pub(crate) async fn a_pruned_config_map_is_one_rollout(
    scene: &RealScene,
    tool: &impl GitOps,
    apps: &mut [App],
) -> Result<()> {
    for app in &mut *apps {
        let other = format!("{}-other", app.name);
        app.config = config_map(&other, "2");
        app.web = web(scene, app.name, &other);
    }
    commit(tool, apps).await?;
    each_rolls_once(scene, apps, "2").await?;
    for app in &*apps {
        let get = ["get", "configmap", app.name, "--ignore-not-found"];
        wait_for(
            &format!("{} to be pruned", app.name),
            PATIENCE,
            async || {
                let found = scene.kubectl(&get).await?;
                done_if(found.is_empty(), found)
            },
        )
        .await?;
    }
    nothing_drifts(scene, tool, apps).await
}

/// Commits all applications, and waits until each is as Git says.
async fn commit(tool: &impl GitOps, apps: &[App]) -> Result<()> {
    write(tool, apps)?;
    let commit = tool.repository().commit().await?;
    for app in apps {
        tool.synced(app.name, &commit).await?;
    }
    Ok(())
}

fn write(tool: &impl GitOps, apps: &[App]) -> Result<()> {
    for app in apps {
        let manifests = [app.config.clone(), app.web.manifest()];
        tool.repository().write(app.name, &manifests)?;
    }
    Ok(())
}

/// Waits until each application has one revision more, and its pods have this content.
pub(crate) async fn each_rolls_once(
    scene: &RealScene,
    apps: &mut [App],
    content: &str,
) -> Result<()> {
    for app in apps {
        scene.rolls_once(app.name, &app.before).await?;
        scene.all_answer(app.name, VARIABLE, content).await?;
        app.before = scene.revisions(app.name).await?;
    }
    Ok(())
}

/// Waits until the operator has done what it had to do: a change that comes later has restarted another Deployment.
pub(crate) async fn is_idle(scene: &RealScene, other: &str) -> Result<()> {
    let workload = scene.answering(other, 1, &reads(other), &json!({}));
    scene.set(other, "1").await?;
    scene.create(&workload).await?;
    let before = scene.revisions(other).await?;
    scene.set(other, "2").await?;
    scene.rolls_once(other, &before).await?;
    let config = format!("configmap/{other}");
    let with_pods = "--cascade=foreground";
    let delete = ["delete", &workload.reference(), &config, with_pods];
    scene.kubectl(&delete).await.map(drop)
}

/// Returns what a write of somebody else than the controllers of Kubernetes changes.
async fn written(scene: &RealScene, app: &App) -> Result<String> {
    let name = app.config["metadata"]["name"].as_str().context("no name")?;
    let version = "--output=jsonpath={.metadata.resourceVersion}";
    let config = scene.kubectl(&["get", "configmap", name, version]).await?;
    let path = "{.metadata.generation} {.spec.template.metadata.annotations}";
    let web = field(scene, app, path).await?;
    Ok(format!("{config} {web}"))
}

pub(crate) async fn field(scene: &RealScene, app: &App, path: &str) -> Result<String> {
    let output = format!("--output=jsonpath={path}");
    scene.kubectl(&["get", &app.deployment(), &output]).await
}

/// Returns a Deployment of two pods that read a ConfigMap, and pin it.
fn web(scene: &RealScene, name: &str, config_map: &str) -> Workload {
    scene
        .answering(name, 2, &reads(config_map), &json!({}))
        .annotated(PIN, "configmaps")
}

/// Returns the field of a container that reads a ConfigMap into the variable `ALL_key`.
fn reads(config_map: &str) -> Value {
    json!({"envFrom": [{"prefix": "ALL_", "configMapRef": {"name": config_map}}]})
}

/// Returns a Deployment with another pod template.
pub(crate) fn released(web: &Workload, release: &str) -> Workload {
    let mut spec = web.manifest()["spec"]["template"]["spec"].clone();
    spec["containers"][0]["env"] = json!([{"name": "RELEASE", "value": release}]);
    web.clone().with(&["spec", "template", "spec"], spec)
}

/// Returns values that switch every feature on.
pub(crate) fn every_feature() -> Result<Value> {
    let profile = chart().join("profiles/everything.yaml");
    let text = fs::read_to_string(&profile);
    let text = text.with_context(|| format!("reading {}", profile.display()))?;
    let mut values: Value = serde_saphyr::from_str(&text)?;
    let more = json!({
        "webhook": {"restrictedOtherwise": true},
        "fence": {"enabled": true},
        "staged": {"byDefault": "all", "soak": "1s"},
    });
    merge(&mut values, &more);
    Ok(values)
}

/// Variable of the pods with the content of the ConfigMap.
pub(crate) const VARIABLE: &str = "/env/ALL_key";
/// Annotation of a workload with the ConfigMaps to pin.
const PIN: &str = "pod-reloader.cs.sap.com/pin";
/// Waits until the pod template names pinned copies.
const PINNED: &str =
    "--for=jsonpath={.spec.template.metadata.annotations.pod-reloader\\.cs\\.sap\\.com/pins}";
