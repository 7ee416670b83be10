//! SecretProviderClasses: pods are restarted once the Secrets Store CSI driver has rotated the secrets of all of them.
//! The driver does not run here: its statuses are written as it writes them.

mod driver;

use anyhow::{Result, ensure};
use pod_reloader_e2e::crds::crd;
use pod_reloader_e2e::workload::{Kind, Workload, config_map};
use pod_reloader_e2e::{
    Attempt, ControlPlane, Options, PATIENCE, Scene, Snapshot, done_if, merge, wait_for,
};
use serde_json::json;

use self::driver::Driver;
use crate::custom::managed::install;

/// Our annotation for everything that the pods use.
const AUTO: &str = "pod-reloader.cs.sap.com/auto";
/// Stakater's annotations.
const RELOAD: &str = "secretproviderclass.reloader.stakater.com/reload";
const TYPED_AUTO: &str = "secretproviderclass.reloader.stakater.com/auto";
const THEIR_AUTO: &str = "reloader.stakater.com/auto";
const EXCLUDE: &str = "secretproviderclasses.exclude.reloader.stakater.com/reload";

/// Plays a scene in which the cluster serves the driver's statuses, once the operator has begun to look for them.
pub(crate) async fn play(
    mut options: Options,
    test: impl AsyncFnOnce(&Scene) -> Result<()>,
) -> Result<()> {
    merge(
        &mut options.values,
        &json!({"secretProviderClasses": {"enabled": true}}),
    );
    Scene::play(options, async |scene| {
        let definition = crd("secretproviderclasspodstatuses");
        install(&ControlPlane::connect()?, &definition).await?;
        let watched = "a watch of the statuses";
        wait_for(watched, PATIENCE, async || {
            let requests = scene.requests(scene.began()).await?;
            let of_statuses = |uri: &str| uri.contains("/secretproviderclasspodstatuses?");
            let is_watched = |uri: &str| of_statuses(uri) && uri.contains("watch=true");
            done_if(
                requests.iter().any(|it| is_watched(&it.uri)),
                "there is none",
            )
        })
        .await?;
        test(scene).await
    })
    .await
}

/// Rotates the only pod of a workload, and waits until it is restarted.
pub(crate) async fn rotate_one(scene: &Scene) -> Result<()> {
    let driver = Driver::new(scene, "one");
    let one = driver.mounted_by(Workload::deployment("one").annotated(AUTO, "true"));
    let before = scene.create(&one).await?;
    let pods = driver.mounts(&one, "1", 1).await?;
    driver.rotate(&pods[0], "2").await?;
    restarted(scene, &one, &before).await.map(drop)
}

#[tokio::test]
async fn pods_that_are_rotated_one_after_the_other_are_restarted_once_after_the_last() -> Result<()>
{
    play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let driver = Driver::new(scene, "db");
        let replicas = ["spec", "replicas"];
        let web = Workload::deployment("web").annotated(AUTO, "true");
        let web = driver.mounted_by(web).with(&replicas, json!(3));

        // The first start: nothing was mounted when the workload was created.
        let created = scene.create(&web).await?;
        let pods = driver.mounts(&web, "first-version", 3).await?;
        scene.rolls_not(&web, &created).await?;

        // One after the other.
        for pod in &pods[..2] {
            driver.rotate(pod, "second-version").await?;
            scene.rolls_not(&web, &created).await?;
        }
        driver.rotate(&pods[2], "second-version").await?;
        let second = restarted(scene, &web, &created).await?;
        let pods = driver.mounts(&web, "second-version", 3).await?;
        scene.rolls_not(&web, &second).await?;
        let note = scene.event(&web, "ConfigChanged").await?;
        ensure!(note.contains("rotated the secrets"), "{note}");

        // In the middle of a rotation, an edit starts pods with the new version.
        driver.rotate(&pods[0], "third-version").await?;
        let web = driver.mounted_by(web).image("app:2");
        scene.apply(&[web.manifest()]).await?;
        let edited = scene.snapshot(&web).await?;
        ensure!(edited.key == second.key, "{edited:?}, {second:?}");
        let pods = driver.mounts(&web, "third-version", 3).await?;
        scene.rolls_not(&web, &edited).await?;
        ensure!(edited.new_revisions(&second) == 1, "{edited:?}");

        // While the operator is away, the last of them are rotated.
        driver.rotate(&pods[0], "fourth-version").await?;
        scene.operator.stop().await;
        driver.rotate(&pods[1], "fourth-version").await?;
        driver.rotate(&pods[2], "fourth-version").await?;
        scene.operator.start_again().await?;
        let fourth = restarted(scene, &web, &edited).await?;
        driver.mounts(&web, "fourth-version", 3).await?;
        scene.rolls_not(&web, &fourth).await?;

        // Scaled to zero and up, and undone.
        scene.patch(&web, &json!({"spec": {"replicas": 0}})).await?;
        driver.mounts(&web, "", 0).await?;
        scene.patch(&web, &json!({"spec": {"replicas": 2}})).await?;
        let pods = driver.mounts(&web, "fifth-version", 2).await?;
        scene.rolls_not(&web, &fourth).await?;
        scene
            .kubectl(&["rollout", "undo", &web.reference()])
            .await?;
        let undone = scene.snapshot(&web).await?;
        driver.mounts(&web, "fifth-version", 2).await?;
        scene.rolls_not(&web, &undone).await?;
        ensure!(pods.len() == 2, "{pods:?}");

        let log = scene.operator.log()?;
        let web = scene.object(&web.reference()).await?.to_string();
        let events = scene.kubectl(&["get", "events", "--output=yaml"]).await?;
        for said in [log, web, events] {
            ensure!(!said.contains("-version\""), "{said}");
            ensure!(!said.contains("fourth-version"), "{said}");
        }
        Ok(())
    })
    .await
}

/// The scenarios of Stakater's own end-to-end tests. A rotation is a change of the status there, too.
#[tokio::test]
async fn the_scenarios_of_stakaters_tests_for_the_csi_driver_pass() -> Result<()> {
    let options = Options::with_values(json!({"dialects": ["pod-reloader", "stakater"]}));
    play(options, async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let driver = Driver::new(scene, "vault");
        let by_name = |kind, name| {
            driver
                .mounted_by(Workload::new(kind, name))
                .annotated(RELOAD, "vault")
        };
        let on_template = |name, key, value| {
            let path = ["spec", "template", "metadata", "annotations", key];
            driver
                .mounted_by(Workload::deployment(name))
                .with(&path, json!(value))
        };
        let restarted_by_rotation = [
            by_name(Kind::Deployment, "deployment"),
            by_name(Kind::DaemonSet, "daemon-set"),
            by_name(Kind::StatefulSet, "stateful-set"),
            on_template("named-on-template", RELOAD, "vault"),
            on_template("auto-on-template", TYPED_AUTO, "true"),
            driver
                .mounted_first_by(Workload::deployment("init"))
                .annotated(RELOAD, "vault"),
            driver
                .mounted_first_by(Workload::deployment("init-auto"))
                .annotated(TYPED_AUTO, "true"),
            driver
                .mounted_by(Workload::deployment("typed-auto"))
                .requires("app")
                .annotated(TYPED_AUTO, "true"),
            driver
                .mounted_by(Workload::deployment("auto"))
                .requires("app")
                .annotated(THEIR_AUTO, "true"),
            // The excluded class is another one.
            driver
                .mounted_by(Workload::deployment("other-excluded"))
                .annotated(THEIR_AUTO, "true")
                .annotated(EXCLUDE, "other"),
        ];
        let left_alone = [driver
            .mounted_by(Workload::deployment("excluded"))
            .annotated(THEIR_AUTO, "true")
            .annotated(EXCLUDE, "vault")];
        let all = || restarted_by_rotation.iter().chain(&left_alone);
        let mut before = Vec::new();
        for workload in all() {
            scene.apply(&[workload.manifest()]).await?;
        }
        let mut pods = Vec::new();
        for workload in all() {
            pods.push(driver.mounts(workload, "v1", pods_of(workload)).await?);
            before.push(scene.snapshot(workload).await?);
        }

        // Labels are no rotation.
        for pod in pods.iter().flatten() {
            driver.label(pod).await?;
        }
        // Only `auto` for every kind tracks the ConfigMap.
        let changed = restarted_by_rotation
            .iter()
            .position(|it| it.name == "auto");
        let changed = changed.expect("it is there");
        let auto = &restarted_by_rotation[changed];
        scene.apply(&[config_map("app", "2")]).await?;
        before[changed] = restarted(scene, auto, &before[changed]).await?;
        pods[changed] = driver.mounts(auto, "v1", 1).await?;
        scene.quiet().await?;
        for (workload, before) in all().zip(&before) {
            let now = scene.snapshot(workload).await?;
            ensure!(now == *before, "{}: {before:?}, {now:?}", workload.name);
        }

        // Each of two updates restarts the pods once.
        for (last, version) in [("v1", "v2"), ("v2", "v3")] {
            // The pod of a StatefulSet may have taken over a status, which is not rotated just after its start.
            let is_rotated = |it: &&Workload| last == "v1" || it.kind != Kind::StatefulSet;
            for (pods, _) in pods.iter().zip(all()).filter(|(_, it)| is_rotated(it)) {
                for pod in pods {
                    driver.rotate(pod, version).await?;
                }
            }
            let workloads = restarted_by_rotation.iter().enumerate();
            for (at, workload) in workloads.filter(|(_, it)| is_rotated(it)) {
                before[at] = restarted(scene, workload, &before[at]).await?;
                pods[at] = driver.mounts(workload, version, pods_of(workload)).await?;
            }
            scene.quiet().await?;
            for (workload, before) in all().zip(&before) {
                let now = scene.snapshot(workload).await?;
                ensure!(
                    now == *before,
                    "{last}: {}: {before:?}, {now:?}",
                    workload.name
                );
            }
        }
        Ok(())
    })
    .await
}

/// Returns the number of its pods. There are two nodes.
fn pods_of(workload: &Workload) -> usize {
    match workload.kind {
        Kind::DaemonSet => 2,
        Kind::Deployment | Kind::StatefulSet => 1,
    }
}

/// Waits until a workload is restarted, and asserts that this is one rollout.
async fn restarted(scene: &Scene, workload: &Workload, before: &Snapshot) -> Result<Snapshot> {
    let what = format!("{} to be restarted", workload.reference());
    let after = wait_for(&what, PATIENCE, async || {
        let now = scene.snapshot(workload).await?;
        Ok(match now.key == before.key {
            true => Attempt::NotYet(format!("{now:?}")),
            false => Attempt::Done(now),
        })
    })
    .await?;
    ensure!(after.new_revisions(before) == 1, "{before:?}, {after:?}");
    Ok(after)
}
