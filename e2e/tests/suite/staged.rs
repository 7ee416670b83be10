//! Staged restarts: a bad edit stops at one workload, whatever happens to the operator.

pub(crate) mod bad_pods;
mod rollouts;

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{Kind, Workload, config_map, secret};
use pod_reloader_e2e::{Mark, Options, Scene, Snapshot, full};
use serde_json::json;

use self::bad_pods::{BAD, refuses_bad_pods};

/// Annotation with the stage of a workload.
pub(crate) const STAGE: &str = "pod-reloader.cs.sap.com/stage";

#[tokio::test]
async fn one_bad_edit_stops_at_the_first_workload_through_a_kill_and_a_new_leader() -> Result<()> {
    let count = if full() { 12 } else { 5 };
    let options = Options {
        replicas: 2,
        ..staged("configmaps")
    };
    Scene::play(options, async |scene| {
        let all: Vec<_> = (0..count)
            .map(|number| web(&format!("w{number:02}")))
            .collect();
        let before = settled(scene, &all).await?;
        refuses_bad_pods(scene).await?;

        scene.apply(&[config_map("app", BAD)]).await?;
        halted(scene, &all).await?;
        changed_only(scene, &all, &before, &["w00"]).await?;

        let leader = scene.leader().await?;
        leader.operator.process().kill().await;
        scene.forget(&leader);
        let next = scene.leader().await?;
        // It has come to the same verdict, and does not merely wait for one.
        let halted = "pod_reloader_halted_workloads";
        next.operator.shows(halted, &count.to_string()).await?;
        scene.quiet().await?;
        changed_only(scene, &all, &before, &["w00"]).await?;

        scene.apply(&[config_map("app", "good")]).await?;
        all_right(scene, &all).await?;
        scene.quiet().await?;
        let after = scene.snapshots(&all).await?;
        for (number, (before, after)) in before.iter().zip(&after).enumerate() {
            let rollouts = after.new_revisions(before);
            let expected = if number == 0 { 2 } else { 1 };
            ensure!(rollouts == expected, "w{number:02}: {before:?}, {after:?}");
        }

        // Secrets are not staged.
        let both: Vec<_> = all
            .iter()
            .map(|it| it.clone().lists_secrets("key"))
            .collect();
        scene.apply(&[secret("key", "1")]).await?;
        let manifests: Vec<_> = both.iter().map(Workload::manifest).collect();
        scene.apply(&manifests).await?;
        all_right(scene, &both).await?;
        scene.quiet().await?;
        let before = scene.snapshots(&both).await?;
        let mark = scene.mark().await?;
        scene.apply(&[secret("key", "2")]).await?;
        all_right(scene, &both).await?;
        let after = scene.snapshots(&both).await?;
        for (before, after) in before.iter().zip(&after) {
            ensure!(after.new_revisions(before) == 1, "{before:?}, {after:?}");
        }
        let patches = patched(scene, mark).await?;
        ensure!(patches.len() == count, "{patches:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn stages_of_three_kinds_go_in_order_while_their_user_releases_at_will() -> Result<()> {
    Scene::play(staged("all"), async |scene| {
        let stage = |kind, name: &str, stage: &str| {
            Workload::new(kind, name)
                .lists("app")
                .annotated(STAGE, stage)
        };
        let all = [
            stage(Kind::StatefulSet, "database", "0"),
            stage(Kind::DaemonSet, "agent", "1"),
            stage(Kind::Deployment, "web", "2"),
            stage(Kind::Deployment, "idle", "0").with(&["spec", "replicas"], json!(0)),
            stage(Kind::StatefulSet, "manual", "0")
                .with(&["spec", "updateStrategy"], json!({"type": "OnDelete"})),
        ];
        settled(scene, &all).await?;
        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        all_right(scene, &all).await?;
        let order = patched(scene, mark).await?;
        let place = |name: &str| order.iter().position(|it| it == name);
        let places = ["database", "agent", "web"].map(place);
        ensure!(places.is_sorted() && places[0].is_some(), "{order:?}");

        // The first one fails, and the user releases another one.
        scene.quiet().await?;
        refuses_bad_pods(scene).await?;
        let before = scene.snapshots(&all).await?;
        scene.apply(&[config_map("app", BAD)]).await?;
        scene.event(&all[2], "RestartHalted").await?;
        changed_only(scene, &all, &before, &["database"]).await?;
        let released = all[2].clone().image("app:2");
        scene.apply(&[released.manifest()]).await?;
        scene.right(&released).await?;
        let after = scene.snapshot(&released).await?;
        ensure!(
            after.new_revisions(&before[2]) == 1,
            "{before:?}, {after:?}"
        );
        Ok(())
    })
    .await
}

/// Returns options with which restarts are staged, and nobody waits for long.
pub(crate) fn staged(default: &str) -> Options {
    Options {
        settle_period: "2s",
        values: json!({"staged": {"byDefault": default, "soak": "1s", "deadline": "5s"}}),
        ..Options::default()
    }
}

pub(crate) fn web(name: &str) -> Workload {
    let deadline = ["spec", "progressDeadlineSeconds"];
    Workload::deployment(name)
        .lists("app")
        .with(&deadline, json!(5))
}

/// Creates the workloads and their ConfigMap, and waits until all of them are healthy.
async fn settled(scene: &Scene, all: &[Workload]) -> Result<Vec<Snapshot>> {
    scene.apply(&[config_map("app", "1")]).await?;
    scene.create_all(all).await?;
    all_right(scene, all).await?;
    for workload in all {
        // Nobody knows when an OnDelete is done.
        if workload.name != "manual" {
            scene.rolled_out(workload).await?;
        }
    }
    scene.quiet().await?;
    scene.snapshots(all).await
}

async fn all_right(scene: &Scene, all: &[Workload]) -> Result<()> {
    for workload in all {
        scene.right(workload).await?;
    }
    Ok(())
}

/// Waits until every workload says that the restarts are halted.
async fn halted(scene: &Scene, all: &[Workload]) -> Result<()> {
    for workload in all {
        scene.event(workload, "RestartHalted").await?;
    }
    Ok(())
}

/// Asserts that the pod templates of these workloads have changed, and of no others.
async fn changed_only(
    scene: &Scene,
    all: &[Workload],
    before: &[Snapshot],
    expected: &[&str],
) -> Result<()> {
    let after = scene.snapshots(all).await?;
    let changed = all.iter().zip(before.iter().zip(&after));
    let changed = changed.filter(|(_, (before, after))| before.key != after.key);
    let changed: Vec<_> = changed
        .map(|(workload, _)| workload.name.as_str())
        .collect();
    ensure!(changed == expected, "{changed:?}");
    Ok(())
}

/// Returns the names of the workloads that the operator has patched since `mark`, in order.
pub(crate) async fn patched(scene: &Scene, mark: Mark) -> Result<Vec<String>> {
    let requests = scene.requests(mark).await?;
    let patches = requests.into_iter().filter(|it| {
        let kinds = ["deployments", "statefulsets", "daemonsets", "rollouts"];
        let is_workload = kinds.contains(&&*it.resource);
        is_workload && it.verb == "patch" && it.code == Some(200) && it.name != "sentinel"
    });
    Ok(patches.map(|it| it.name).collect())
}
