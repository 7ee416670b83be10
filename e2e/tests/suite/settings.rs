//! What people set on a workload stays there when somebody undoes a rollout, replaces the manifest, or deletes the workload
//! and creates it again, and pods that run already are not restarted because of that.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{BASELINE, Kind, Workload, config_map};
use pod_reloader_e2e::{Attempt, PATIENCE, done_if, mentions, wait_for};
use pod_reloader_e2e::{Options, Scene};
use serde_json::{Value, json};

const HOLD: &str = "pod-reloader.cs.sap.com/hold";
const RESTART_WINDOW: &str = "pod-reloader.cs.sap.com/restart-window";
const LISTS: &str = "pod-reloader.cs.sap.com/configmaps";

/// Returns an annotation of a workload.
async fn annotation(scene: &Scene, workload: &Workload, key: &str) -> Result<Option<String>> {
    let object = scene.object(&workload.reference()).await?;
    let value = object["metadata"]["annotations"][key].as_str();
    Ok(value.map(ToOwned::to_owned))
}

/// Holds a workload, as a person does.
async fn hold(scene: &Scene, workload: &Workload) -> Result<()> {
    let hold = format!("{HOLD}=true");
    let annotate = ["annotate", &workload.reference(), &hold];
    scene.kubectl(&annotate).await.map(drop)
}

#[tokio::test]
async fn a_hold_outlives_an_undo_and_a_manifest_that_replaces_its_workload() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = || Workload::podless("web").lists("app");
        let (first, second) = (web().image("first"), web().image("second"));
        scene.create(&first).await?;
        scene.apply(&[second.manifest()]).await?;
        scene.snapshot(&second).await?;
        let name = first.reference();
        hold(scene, &first).await?;

        let undone = scene
            .kubectl_output(&["rollout", "undo", &name], "")
            .await?;
        mentions(
            &undone.stderr,
            "pod-reloader.cs.sap.com/hold stays as before",
        )?;
        let object = scene.object(&name).await?;
        let image = &object["spec"]["template"]["spec"]["containers"][0]["image"];
        ensure!(image == "first", "{image}");
        let before = scene.snapshot(&first).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.event(&first, "RestartPending").await?;
        scene.rolls_not(&first, &before).await?;

        // As it is, and with another template.
        for manifest in [first.manifest(), second.manifest()] {
            let replace = ["replace", "--filename=-"];
            let replaced = scene
                .kubectl_output(&replace, &manifest.to_string())
                .await?;
            mentions(&replaced.stderr, "the manifest does not have it")?;
            ensure!(annotation(scene, &first, HOLD).await?.as_deref() == Some("true"));
        }
        // Whoever takes it away by name means it.
        scene
            .kubectl(&["annotate", &name, &format!("{HOLD}-")])
            .await?;
        scene.right(&first).await?;
        ensure!(annotation(scene, &first, HOLD).await?.is_none());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_undo_takes_no_workload_out_of_management() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = Workload::podless("web").image("first");
        scene.create(&web).await?;
        scene
            .apply(&[Workload::podless("web").image("second").manifest()])
            .await?;
        scene.snapshot(&web).await?;
        let opt_in = format!("{LISTS}=app");
        scene
            .kubectl(&["annotate", &web.reference(), &opt_in])
            .await?;
        scene.right(&web).await?;
        // The first revision knows nothing of pod-reloader.
        scene
            .kubectl(&["rollout", "undo", &web.reference(), "--to-revision=1"])
            .await?;
        ensure!(annotation(scene, &web, LISTS).await?.as_deref() == Some("app"));
        scene.right(&web).await?;
        let before = scene.snapshot(&web).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.rolls_once(&web, &before).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_somebody_writes_counts_whoever_set_it_before() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = || Workload::podless("web").lists("app");
        let first = web()
            .image("first")
            .annotated(RESTART_WINDOW, "Sat 00:00-04:00 UTC");
        scene.create(&first).await?;
        let name = first.reference();
        // A manifest that says something else, and one that no longer says anything: with kubectl, it was its own.
        let window = web()
            .image("second")
            .annotated(RESTART_WINDOW, "Sun 00:00-04:00 UTC");
        scene
            .kubectl_with_input(&["apply", "--filename=-"], &window.manifest().to_string())
            .await?;
        ensure!(
            annotation(scene, &first, RESTART_WINDOW).await?.as_deref()
                == Some("Sun 00:00-04:00 UTC")
        );
        let none = web().image("first").manifest().to_string();
        let applied = scene
            .kubectl_output(&["apply", "--filename=-"], &none)
            .await?;
        ensure!(!applied.stderr.contains("stays"), "{applied:?}");
        ensure!(annotation(scene, &first, RESTART_WINDOW).await?.is_none());
        // An edit that removes it together with a new image.
        let hold = format!("{HOLD}=true");
        scene.kubectl(&["annotate", &name, &hold]).await?;
        let edit = json!({
            "metadata": {"annotations": {HOLD: null}},
            "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "third"}]}}},
        });
        let patch = ["patch", &name, "--patch", &edit.to_string()];
        scene.kubectl(&patch).await?;
        ensure!(annotation(scene, &first, HOLD).await?.is_none());
        Ok(())
    })
    .await
}

/// Deletes a workload, but not its pods, and waits until it is gone and its revisions are nobody's.
async fn orphan(scene: &Scene, workload: &Workload) -> Result<()> {
    let name = workload.reference();
    scene
        .kubectl(&["delete", &name, "--cascade=orphan", "--wait=true"])
        .await?;
    let label = &workload.manifest()["spec"]["selector"]["matchLabels"]["app"];
    wait_for("the revisions to be nobody's", PATIENCE, async || {
        let mut revisions = scene.objects("apps/v1", "ReplicaSet").await?;
        revisions.extend(scene.objects("apps/v1", "ControllerRevision").await?);
        let is_owned = |revision: &Value| {
            let metadata = &revision["metadata"];
            metadata["labels"]["app"] == *label && !metadata["ownerReferences"].is_null()
        };
        done_if(!revisions.iter().any(is_owned), "they have an owner")
    })
    .await
}

#[tokio::test]
async fn pods_are_not_restarted_when_their_workload_is_created_again() -> Result<()> {
    let options = Options {
        args: vec!["--first-stamp=baseline".to_owned()],
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let plain = |kind: Kind| Workload::new(kind, &kind.as_str().to_lowercase()).without_pods();
        let stamped = |kind: Kind| {
            Workload::new(kind, &format!("{}-stamped", kind.as_str().to_lowercase())).without_pods()
        };
        let mut all = Vec::new();
        for kind in Kind::ALL {
            // One has opted in since, and one was created with its lists.
            scene.create(&plain(kind)).await?;
            let opt_in = format!("{LISTS}=app");
            scene
                .kubectl(&["annotate", &plain(kind).reference(), &opt_in])
                .await?;
            let baseline = async || annotation(scene, &plain(kind), BASELINE).await;
            wait_for("a baseline", PATIENCE, async || {
                Ok(baseline()
                    .await?
                    .map_or(Attempt::NotYet("none".to_owned()), |_| Attempt::Done(())))
            })
            .await?;
            all.push((
                plain(kind).lists("app"),
                scene.snapshot(&plain(kind)).await?,
            ));
            let stamped = stamped(kind).lists("app");
            let before = scene.create(&stamped).await?;
            ensure!(before.key.is_some());
            all.push((stamped, before));
        }
        for (workload, _) in &all {
            orphan(scene, workload).await?;
        }
        let (again, before): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        scene.create_all(&again).await?;
        scene.each_rolls_not(&again, &before).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.each_rolls_once(&again, &before).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_change_while_pods_have_no_workload_waits_for_its_hold() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let (web, _) = scene.create_listing(Workload::podless("web")).await?;
        hold(scene, &web).await?;
        let before = scene.snapshot(&web).await?;
        wait_for("the ReplicaSet to have the hold", PATIENCE, async || {
            let sets = json!(scene.objects("apps/v1", "ReplicaSet").await?);
            done_if(sets.to_string().contains(HOLD), "not yet")
        })
        .await?;
        orphan(scene, &web).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.create(&web).await?;
        scene.event(&web, "RestartPending").await?;
        scene.rolls_not(&web, &before).await?;
        scene
            .kubectl(&["annotate", &web.reference(), &format!("{HOLD}-")])
            .await?;
        scene.rolls_once(&web, &before).await?;
        Ok(())
    })
    .await
}

/// Waits until a workload that was created again has its hold as before.
async fn held_again(scene: &Scene, workload: &Workload) -> Result<()> {
    let note = scene.event(workload, "SettingsKept").await?;
    mentions(&note, HOLD)?;
    wait_for("the hold to be there again", PATIENCE, async || {
        Ok(match annotation(scene, workload, HOLD).await?.as_deref() {
            Some("true") => Attempt::Done(()),
            other => Attempt::NotYet(format!("{other:?}")),
        })
    })
    .await
}

#[tokio::test]
async fn a_hold_outlives_the_deletion_of_its_workload_together_with_its_pods() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let (web, _) = scene.create_listing(Workload::podless("web")).await?;
        hold(scene, &web).await?;
        let replace = async |manifest: &Workload| {
            let replace = ["replace", "--force", "--filename=-"];
            let manifest = manifest.manifest().to_string();
            scene.kubectl_with_input(&replace, &manifest).await
        };
        // What was put back once counts as set by a person.
        for _ in 0..2 {
            replace(&web).await?;
            held_again(scene, &web).await?;
        }
        let before = scene.key(&web).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.event(&web, "RestartPending").await?;
        scene.quiet().await?;
        ensure!(scene.key(&web).await? == before);

        // What the manifest says counts.
        replace(&web.clone().annotated(HOLD, "false")).await?;
        scene.quiet().await?;
        ensure!(annotation(scene, &web, HOLD).await?.as_deref() == Some("false"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_hold_outlives_a_stateful_set_that_leaves_its_pods_behind() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let set = Workload::new(Kind::StatefulSet, "set")
            .without_pods()
            .lists("app");
        scene.create(&set).await?;
        hold(scene, &set).await?;
        let before = scene.snapshot(&set).await?;
        orphan(scene, &set).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.create(&set).await?;
        held_again(scene, &set).await?;
        scene.event(&set, "RestartPending").await?;
        scene.rolls_not(&set, &before).await
    })
    .await
}
