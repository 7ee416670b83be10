//! Changes of config while a release is under way: hooks before and after, a release that is killed, two at
//! once.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{Attempt, Options, PATIENCE, Scene, done_if, wait_for};
use serde_json::{Value, json};

use super::{App, CONFIG, Flavour, deployment};

const BEFORE: &str = "pre-install,pre-upgrade,pre-rollback";
const WAITING: &str = "WaitingForRelease";

#[tokio::test]
async fn a_hook_that_needs_the_new_pods_succeeds() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        for flavour in [Flavour::ServerSide, Flavour::Helm3] {
            let name = flavour.name();
            let config = config_map(name, CONFIG);
            let app = [
                config,
                deployment(name).manifest(),
                hook_pod(name, "post-upgrade"),
            ];
            let app = App::of(scene, flavour, name, app)?;
            app.install().await?;
            let web = app.workload();
            let before = scene.snapshot(&web).await?;
            let upgrade = app.upgrade(&["--set=config=2", "--wait", "--timeout=2m"]);
            let test = async {
                // Stands for a Job that tries the application until it has its new configuration.
                let what = format!("{name} to get another hash than {:?}", before.key);
                wait_for(&what, PATIENCE, async || {
                    let key = scene.key(&web).await?;
                    done_if(key != before.key, "the same")
                })
                .await?;
                finish(scene, name).await
            };
            tokio::try_join!(upgrade, test)?;
            scene.quiet().await?;
            let after = scene.snapshot(&web).await?;
            ensure!(after.new_revisions(&before) == 1, "{before:?}, {after:?}");
            let expected = scene.expected_key(&web).await?;
            ensure!(after.key == Some(expected), "wrong hash: {after:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn config_that_is_a_hook_waits_for_the_workload_and_for_no_other_release() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let slow = migrated(scene, Flavour::Helm3)?;
        slow.install_with_hook().await?;
        let name = Flavour::ServerSide.name();
        // Tracks an object of each release.
        let web = deployment(name).lists(&format!("{name},{}", slow.name));
        let quick = [config_map(name, CONFIG), web.manifest()];
        let quick = App::of(scene, Flavour::ServerSide, name, quick)?;
        quick.install().await?;
        let before = scene.snapshot(&slow.workload()).await?;

        let upgrade = slow.upgrade(&["--set=config=2,image=2"]);
        let meanwhile = async {
            waits(scene, &slow.workload()).await?;
            let plugin = scene.tool().plugin()?;
            let workload = format!("deployment/{}", slow.name);
            let namespace = format!("--namespace={}", scene.namespace);
            let release = format!(
                "waiting for the Helm release {}/{}",
                scene.namespace, slow.name
            );
            // Not at every instant: while another change settles, that is what a pass finds.
            wait_for(&release, PATIENCE, async || {
                let explain = ["explain", &workload, &namespace];
                let explained = plugin.output(&explain, "").await?.stdout;
                done_if(explained.contains(&release), explained)
            })
            .await?;
            // It is not held by the release of somebody else once its own has ended.
            let before = scene.snapshot(&quick.workload()).await?;
            quick.upgrade(&["--set=config=2"]).await?;
            scene.rolls_once(&web, &before).await?;
            finish(scene, slow.name).await
        };
        tokio::try_join!(upgrade, meanwhile)?;
        scene.quiet().await?;
        let after = scene.snapshot(&slow.workload()).await?;
        ensure!(after.new_revisions(&before) == 1, "{before:?}, {after:?}");
        let expected = scene.expected_key(&slow.workload()).await?;
        ensure!(after.key == Some(expected), "wrong hash: {after:?}");
        let events = scene.events(&slow.workload()).await?;
        let unfinished = events
            .iter()
            .any(|(reason, _)| reason == "ReleaseUnfinished");
        ensure!(!unfinished, "{events:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_release_that_fails_and_is_rolled_back_restarts_nothing() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let flavours = [
            (Flavour::ServerSide, "--rollback-on-failure"),
            (Flavour::Helm3, "--atomic"),
        ];
        for (flavour, rollback) in flavours {
            let name = flavour.name();
            let path = ["spec", "template", "spec", "schedulerName"];
            let other = Workload::deployment(&format!("{name}-other"));
            let other = other.with(&path, json!("{{ .Values.scheduler }}"));
            let app = [
                config_map(name, CONFIG),
                other.manifest(),
                deployment(name).manifest(),
            ];
            let app = App::of(scene, flavour, name, app)?;
            app.install().await?;
            let web = app.workload();
            let before = scene.snapshot(&web).await?;
            // Nobody schedules its new pod, for which Helm waits.
            let values = "--set=config=2,scheduler=nobody";
            let args = [values, rollback, "--wait", "--timeout=5s"];
            let error = app.upgrade(&args).await.err();
            let error = error.map(|error| error.to_string());
            let is_rolled_back = error.as_ref().is_some_and(|it| it.contains("rolled back"));
            ensure!(is_rolled_back, "{error:?}");
            scene.rolls_not(&web, &before).await?;
            let expected = scene.expected_key(&web).await?;
            ensure!(before.key == Some(expected), "wrong hash: {before:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_release_that_is_killed_holds_nobody_back_for_long() -> Result<()> {
    let options = Options::with_values(json!({"releaseWait": "5s"}));
    Scene::play(options, async |scene| {
        for (round, flavour) in [Flavour::ServerSide, Flavour::Helm3]
            .into_iter()
            .enumerate()
        {
            let app = migrated(scene, flavour)?;
            app.install_with_hook().await?;
            let web = app.workload();
            let before = scene.snapshot(&web).await?;
            tokio::select! {
                upgraded = app.upgrade(&["--set=config=2,image=2"]) => {
                    upgraded?;
                    ensure!(false, "it was not to end");
                }
                // Helm is killed.
                waiting = waits(scene, &web) => waiting?,
            }
            let before = scene.rolls_once(&web, &before).await?;
            let events = scene.events(&web).await?;
            let unfinished = events
                .iter()
                .filter(|(reason, _)| reason == "ReleaseUnfinished");
            ensure!(unfinished.count() == 1, "{events:?}");

            // Its Secret stays, and holds nobody any more.
            let waits = counted(scene, "pod_reloader_release_waits_total").await?;
            scene.apply(&[config_map(app.name, "by hand")]).await?;
            let before = scene.rolls_once(&web, &before).await?;
            ensure!(counted(scene, "pod_reloader_release_waits_total").await? == waits);
            app.rollback().await?;
            scene.quiet().await?;
            let after = scene.snapshot(&web).await?;
            ensure!(after.key != before.key, "{after:?}");
            scene
                .apply(&[config_map(app.name, "by hand again")])
                .await?;
            scene.rolls_once(&web, &after).await?;
            let timeouts = counted(scene, "pod_reloader_release_timeouts_total").await?;
            ensure!(timeouts == round as u64 + 1, "{timeouts} timeouts");
        }
        Ok(())
    })
    .await
}

impl App<'_> {
    /// Installs an application whose hook pod is waited for.
    async fn install_with_hook(&self) -> Result<()> {
        tokio::try_join!(self.install(), finish(self.scene, self.name))?;
        self.scene.quiet().await
    }
}

/// Returns an application whose ConfigMap is a hook, as is a pod after it, such as a migration.
fn migrated(scene: &Scene, flavour: Flavour) -> Result<App<'_>> {
    let name = flavour.name();
    let mut config = config_map(name, CONFIG);
    config["metadata"]["annotations"] = json!({
        "helm.sh/hook": BEFORE,
        "helm.sh/hook-weight": "-1",
        "helm.sh/hook-delete-policy": "before-hook-creation",
    });
    let pod = hook_pod(name, "pre-install,pre-upgrade");
    App::of(
        scene,
        flavour,
        name,
        [config, pod, deployment(name).manifest()],
    )
}

/// Returns a pod that a release waits for until [`finish`] is called.
fn hook_pod(name: &str, hook: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{name}-hook"),
            "annotations": {
                "helm.sh/hook": hook,
                "helm.sh/hook-delete-policy": "hook-succeeded,before-hook-creation",
            },
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "hook"}],
        },
    })
}

/// Waits for the hook pod of a release, and lets it succeed.
async fn finish(scene: &Scene, name: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let name = format!("{name}-hook");
    wait_for(&format!("{name} to run"), PATIENCE, async || {
        let pod = pods.get_opt(&name).await?;
        let phase = pod.and_then(|pod| pod.status?.phase);
        Ok(match phase.as_deref() {
            Some("Running") => Attempt::Done(()),
            phase => Attempt::NotYet(format!("{phase:?}")),
        })
    })
    .await?;
    let succeeded = json!({"status": {"phase": "Succeeded"}});
    let params = PatchParams::default();
    pods.patch_status(&name, &params, &Patch::Merge(succeeded))
        .await?;
    Ok(())
}

/// Waits until the operator says that the restart of a workload waits for a release.
async fn waits(scene: &Scene, workload: &Workload) -> Result<()> {
    scene.event(workload, WAITING).await.map(drop)
}

/// Returns the value of a counter of the operator.
async fn counted(scene: &Scene, name: &str) -> Result<u64> {
    let metrics = scene.operator.metrics().await?;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.unwrap_or_default().trim().parse()?)
}
