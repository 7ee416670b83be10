//! Whatever kubectl does to a Deployment, its config hash is right and kubectl reports no problem.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{CONFIG_HASH, Workload, config_map, key_in};
use pod_reloader_e2e::{Mark, Options, Output, Scene, Snapshot};

#[tokio::test]
async fn a_release_by_any_client_makes_one_rollout_with_the_new_hash() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "0")]).await?;
        let web = patient_web();
        let mut before = scene.create(&web).await?;
        let mark = scene.mark().await?;
        let name = web.reference();
        for (round, (args, manifest)) in [
            (&["apply", "--filename=-"][..], Some("app:1")),
            (&["apply", "--server-side", "--filename=-"], Some("app:2")),
            (
                &[
                    "apply",
                    "--server-side",
                    "--force-conflicts",
                    "--filename=-",
                ],
                Some("app:3"),
            ),
            (&["replace", "--filename=-"], Some("app:4")),
            (&["patch", &name, "--type=strategic", STRATEGIC], None),
            (&["patch", &name, "--type=merge", MERGE], None),
            (&["patch", &name, "--type=json", JSON], None),
            (&["set", "image", &name, "main=app:8"], None),
            (&["rollout", "restart", &name], None),
            (&["edit", &name], None),
        ]
        .into_iter()
        .enumerate()
        {
            let input = manifest.map(|image| web.clone().image(image).manifest().to_string());
            scene
                .apply(&[config_map("app", &format!("{}", round + 1))])
                .await?;
            let input = input.unwrap_or_default();
            if args[0] == "edit" {
                let namespaced = [&["--namespace", &scene.namespace], args].concat();
                let editor = "sed -i s/app:8/app:9/";
                let tool = scene.tool().with_env("KUBE_EDITOR", editor);
                tool.run_with_input(&namespaced, &input).await?;
            } else {
                scene.kubectl_with_input(args, &input).await?;
            }
            before = rolled_once(scene, &web, &before, args).await?;
        }
        // The loop has been waiting all the time: now it may act at once.
        let hasty = format!("{SETTLE_PERIOD}=0s");
        scene
            .kubectl(&["annotate", "--overwrite", &name, &hasty])
            .await?;
        scene.rolls_not(&web, &before).await?;
        assert_eq!(patches_of(scene, mark, "web").await?, 0);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_client_that_leaves_the_template_alone_rolls_nothing_and_sees_no_drift() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = web();
        let manifest = web.manifest().to_string();
        let before = scene.create(&web).await?;
        // Once with the hash that the webhook has set, once with one that the loop has set.
        scene.rolls_not(&web, &before).await?;
        let before = after_client_writes(scene, &web, &manifest, before).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let before = scene.rolls_once(&web, &before).await?;
        after_client_writes(scene, &web, &manifest, before)
            .await
            .map(|_| ())
    })
    .await
}

#[tokio::test]
async fn a_dry_run_shows_the_hash_and_stores_nothing() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = web();
        let dry_run = ["apply", "--dry-run=server", "--output=json", "--filename=-"];
        let manifest = web.manifest().to_string();
        let shown = key_in(&scene.kubectl_with_input(&dry_run, &manifest).await?)?;
        ensure!(
            scene.object("deployment/web").await.is_err(),
            "it is stored"
        );

        let before = scene.create(&web).await?;
        assert_eq!(shown, before.key);
        let manifest = web.clone().image("app:2").manifest().to_string();
        let shown = key_in(&scene.kubectl_with_input(&dry_run, &manifest).await?)?;
        assert_eq!(shown, before.key);
        scene.rolls_not(&web, &before).await
    })
    .await
}

#[tokio::test]
async fn server_side_apply_never_conflicts_over_the_hash() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = web();
        let apply = async |image: &str, more: &[&str]| {
            let args = [&["apply", "--server-side", "--filename=-"], more].concat();
            let manifest = web.clone().image(image).manifest().to_string();
            scene.kubectl_with_input(&args, &manifest).await
        };
        apply("app:1", &[]).await?;
        let mut before = scene.snapshot(&web).await?;
        assert_eq!(before.key, Some(scene.expected_key(&web).await?));
        for (round, more) in [&[][..], &["--force-conflicts"]].into_iter().enumerate() {
            // The loop owns the hash from here on.
            let change = config_map("app", &format!("{}", round + 2));
            scene.apply(&[change]).await?;
            before = scene.rolls_once(&web, &before).await?;

            apply(&format!("app:{}", round + 1), more).await?;
            scene.rolls_not(&web, &before).await?;

            let image = format!("app:{}", round + 2);
            apply(&image, more).await?;
            before = rolled_once(scene, &web, &before, more).await?;
            scene.rolls_not(&web, &before).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_undone_rollout_ends_on_the_present_hash() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = web();
        scene.create(&web).await?;
        scene
            .kubectl(&["set", "image", "deployment/web", "main=app:2"])
            .await?;
        let before = scene.snapshot(&web).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let before = scene.rolls_once(&web, &before).await?;

        // The previous revision differs only in the hash: there is nothing to undo.
        scene
            .kubectl(&["rollout", "undo", "deployment/web"])
            .await?;
        scene.rolls_not(&web, &before).await?;

        let undo = ["rollout", "undo", "deployment/web", "--to-revision=1"];
        scene.kubectl(&undo).await?;
        let after = rolled_once(scene, &web, &before, &undo).await?;
        assert_eq!(after.key, before.key);
        let object = scene.object("deployment/web").await?;
        let image = &object["spec"]["template"]["spec"]["containers"][0]["image"];
        assert_eq!(image, "app:1");
        scene.rolls_not(&web, &after).await
    })
    .await
}

#[tokio::test]
async fn a_hash_in_the_manifest_is_overridden_with_a_warning() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = web();
        let stamped = |image: &str| web.clone().image(image).stamped("rubbish").manifest();
        let apply = ["apply", "--filename=-"];

        let output = scene
            .kubectl_output(&apply, &stamped("app:1").to_string())
            .await?;
        warned(&output);
        let before = scene.snapshot(&web).await?;
        assert_eq!(before.key, Some(scene.expected_key(&web).await?));

        for (args, image, rolls) in [
            (&apply[..], "app:1", false),
            (&["replace", "--filename=-"], "app:1", false),
            (&apply, "app:2", true),
            (&["replace", "--filename=-"], "app:3", true),
        ] {
            let before = scene.snapshot(&web).await?;
            let output = scene
                .kubectl_output(args, &stamped(image).to_string())
                .await?;
            warned(&output);
            let after = if rolls {
                rolled_once(scene, &web, &before, args).await?
            } else {
                before
            };
            scene.rolls_not(&web, &after).await?;
        }

        // Removes the hash from the manifest again, as the warning says.
        let before = scene.snapshot(&web).await?;
        let without = web.clone().image("app:3").manifest();
        for args in [&apply[..], &["replace", "--filename=-"]] {
            let output = scene.kubectl_output(args, &without.to_string()).await?;
            assert_eq!(
                (output.code, output.stderr.contains("pod-reloader")),
                (Some(0), false)
            );
            scene.rolls_not(&web, &before).await?;
        }

        // The loop can still move it.
        let before = scene.snapshot(&web).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.rolls_once(&web, &before).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_client_that_writes_no_hash_is_not_warned() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        for image in ["app:1", "app:1", "app:2"] {
            let manifest = web().image(image).manifest().to_string();
            for args in [
                &["apply", "--filename=-"][..],
                &["replace", "--save-config", "--filename=-"],
            ] {
                let output = scene.kubectl_output(args, &manifest).await?;
                assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
            }
        }
        Ok(())
    })
    .await
}

/// Makes writes that touch everything except the pod template, none of which may restart pods.
async fn after_client_writes(
    scene: &Scene,
    web: &Workload,
    manifest: &str,
    before: Snapshot,
) -> Result<Snapshot> {
    for args in [
        &["diff", "--filename=-"][..],
        &["diff", "--server-side", "--force-conflicts", "--filename=-"],
        &["apply", "--filename=-"],
        &["replace", "--save-config", "--filename=-"],
        &["apply", "--dry-run=server", "--filename=-"],
        &["diff", "--filename=-"],
        &["label", "deployment/web", "team=x"],
        &["label", "deployment/web", "team-"],
        &["annotate", "deployment/web", "note=x"],
        &["scale", "deployment/web", "--replicas=2"],
        &["scale", "deployment/web", "--replicas=1"],
        &["patch", "deployment/web", "--patch={}"],
        &["apply", "--filename=-"],
        &["annotate", "deployment/web", "note-"],
        &["diff", "--filename=-"],
    ] {
        scene.kubectl_with_input(args, manifest).await?;
        let key = scene.key(web).await?;
        ensure!(
            key == before.key,
            "kubectl {args:?} moved the hash to {key:?}"
        );
    }
    scene.rolls_not(web, &before).await?;
    Ok(before)
}

/// Asserts that the last action has made one new ReplicaSet, with the hash of the current state.
async fn rolled_once(
    scene: &Scene,
    web: &Workload,
    before: &Snapshot,
    args: &[&str],
) -> Result<Snapshot> {
    let after = scene.snapshot(web).await?;
    let expected = scene.expected_key(web).await?;
    ensure!(
        after.key.as_ref() == Some(&expected),
        "wrong hash after {args:?}: {after:?}, expected {expected}"
    );
    let new = after.new_revisions(before);
    ensure!(
        new == 1,
        "{new} new revisions after {args:?}: {before:?}, {after:?}"
    );
    Ok(after)
}

/// Returns how often the operator has patched an object of this name since `mark`.
async fn patches_of(scene: &Scene, mark: Mark, name: &str) -> Result<usize> {
    let requests = scene.requests(mark).await?;
    let patches = requests
        .iter()
        .filter(|request| request.verb == "patch" && request.name == name);
    Ok(patches.count())
}

fn warned(output: &Output) {
    assert_eq!(output.code, Some(0), "{output:?}");
    let warning = format!("remove {CONFIG_HASH} from your manifest");
    assert!(
        output.stderr.contains("Warning: ") && output.stderr.contains(&warning),
        "{output:?}"
    );
}

fn web() -> Workload {
    Workload::podless("web").lists("app")
}

/// Returns a workload with a settle period so long that the loop does not restart it.
fn patient_web() -> Workload {
    web().image("app:0").annotated(SETTLE_PERIOD, "1h")
}

const SETTLE_PERIOD: &str = "pod-reloader.cs.sap.com/settle-period";
const STRATEGIC: &str = r#"--patch={"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:5"}]}}}}"#;
const MERGE: &str = r#"--patch={"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "app:6"}]}}}}"#;
const JSON: &str = r#"--patch=[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "app:7"}]"#;
