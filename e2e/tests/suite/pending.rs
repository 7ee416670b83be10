//! While a change waits for the loop, no other write starts a rollout.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{CONFIG_HASH, Kind, Workload, config_map, secret};
use pod_reloader_e2e::{AuditEvent, Mark, Options, Scene, Snapshot};
use serde_json::{Value, json};

#[tokio::test]
async fn no_write_that_leaves_the_template_alone_moves_the_hash_or_reads_config() -> Result<()> {
    Scene::play(without_loop(), async |scene| {
        for kind in Kind::ALL {
            let web = subscribed(kind);
            let before = pending(scene, &web).await?;
            let mark = scene.mark().await?;
            for (args, input) in writes(&web) {
                let args: Vec<_> = args.iter().map(String::as_str).collect();
                scene.kubectl_with_input(&args, &input).await?;
                let key = scene.key(&web).await?;
                ensure!(
                    key == before.key,
                    "kubectl {} moved the hash from {:?} to {key:?}",
                    args.join(" "),
                    before.key
                );
            }
            assert_eq!(scene.snapshot(&web).await?, before, "{kind:?}");
            assert_eq!(config_reads(scene, mark).await?, Vec::<String>::new());
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn server_side_apply_of_the_same_manifest_does_not_move_the_hash() -> Result<()> {
    Scene::play(without_loop(), async |scene| {
        for kind in Kind::ALL {
            let web = subscribed(kind);
            let apply = ["apply", "--server-side", "--filename=-"];
            let manifest = web.manifest().to_string();
            scene
                .apply(&[config_map("app", "1"), secret("app", "1")])
                .await?;
            scene.kubectl_with_input(&apply, &manifest).await?;
            let before = scene.snapshot(&web).await?;
            scene.apply(&[config_map("app", "2")]).await?;

            let mark = scene.mark().await?;
            scene.kubectl_with_input(&apply, &manifest).await?;
            let stale = web.clone().stamped("rubbish").manifest().to_string();
            scene.kubectl_with_input(&apply, &stale).await?;
            assert_eq!(scene.snapshot(&web).await?, before, "{kind:?}");
            // The manifest drops the hash that it owned, which does not remove it either.
            scene.kubectl_with_input(&apply, &manifest).await?;
            assert_eq!(scene.snapshot(&web).await?, before, "{kind:?}");
            assert_eq!(config_reads(scene, mark).await?, Vec::<String>::new());
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn opting_in_rolls_nothing_by_itself() -> Result<()> {
    Scene::play(without_loop(), async |scene| {
        scene
            .apply(&[config_map("app", "1"), secret("app", "1")])
            .await?;
        for kind in Kind::ALL {
            let web = subscribed(kind);
            let before = scene
                .create(&Workload::new(kind, "web").without_pods())
                .await?;
            assert_eq!(before.key, None);
            let mark = scene.mark().await?;
            scene.apply(&[web.manifest()]).await?;
            let stamped = web.clone().stamped("rubbish").manifest();
            scene.apply(&[stamped]).await?;
            assert_eq!(scene.snapshot(&web).await?, before, "{kind:?}");
            assert_eq!(config_reads(scene, mark).await?, Vec::<String>::new());
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_change_of_the_template_includes_the_pending_change_and_leaves_the_loop_idle()
-> Result<()> {
    Scene::play(without_loop(), async |scene| {
        let workloads = Kind::ALL.map(subscribed);
        let mut before = Vec::new();
        for web in &workloads {
            before.push(pending(scene, web).await?);
        }
        let mut after = Vec::new();
        for (web, before) in workloads.iter().zip(&before) {
            let mark = scene.mark().await?;
            scene
                .kubectl(&["set", "image", &web.reference(), "main=app:2"])
                .await?;
            let now = scene.snapshot(web).await?;
            assert_eq!(now.key, Some(scene.expected_key(web).await?));
            assert_ne!(now.key, before.key);
            assert_eq!(now.new_revisions(before), 1);
            // This proves that the assertions of no reads elsewhere would notice one.
            assert_eq!(config_reads(scene, mark).await?.len(), 2);
            after.push(now);
        }

        let mark = scene.mark().await?;
        scene.operator.stop().await;
        let with_loop = scene.start_operator(&["--reconcile=restart"]).await?;
        scene.each_rolls_not(&workloads, &after).await?;
        let requests = scene.requests(mark).await?;
        let patches: Vec<_> = requests
            .iter()
            .filter(|request| request.verb == "patch" && request.name == "web")
            .collect();
        assert_eq!(patches, Vec::<&AuditEvent>::new());
        with_loop.stop().await;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_loop_rolls_once_for_the_pending_change_after_it_is_switched_on() -> Result<()> {
    Scene::play(without_loop(), async |scene| {
        let workloads = Kind::ALL.map(subscribed);
        let mut before = Vec::new();
        for web in &workloads {
            before.push(pending(scene, web).await?);
        }
        scene.operator.stop().await;
        let with_loop = scene.start_operator(&["--reconcile=restart"]).await?;
        scene.each_rolls_once(&workloads, &before).await?;
        with_loop.stop().await;
        Ok(())
    })
    .await
}

/// Returns options of an operator without a loop: pending changes stay pending.
fn without_loop() -> Options {
    Options {
        args: vec!["--reconcile=none".to_owned()],
        ..Options::default()
    }
}

fn subscribed(kind: Kind) -> Workload {
    Workload::new(kind, "web")
        .without_pods()
        .lists("app")
        .lists_secrets("app")
}

/// Creates `web`, then changes the objects that it lists.
async fn pending(scene: &Scene, web: &Workload) -> Result<Snapshot> {
    let value = |round| format!("{round} {:?}", web.kind);
    scene
        .apply(&[config_map("app", &value(1)), secret("app", &value(1))])
        .await?;
    let before = scene.create(web).await?;
    let stamped = scene.expected_key(web).await?;
    assert_eq!(before.key, Some(stamped.clone()));
    scene
        .apply(&[config_map("app", &value(2)), secret("app", &value(2))])
        .await?;
    assert_ne!(
        scene.expected_key(web).await?,
        stamped,
        "nothing is pending"
    );
    Ok(before)
}

/// Returns writes to `web`: command lines of kubectl, each with its input. None of them changes the pod
/// template, except for the config hash.
fn writes(web: &Workload) -> Vec<(Vec<String>, String)> {
    let name = web.reference();
    let command = |args: &[&str], input: String| {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        (args, input)
    };
    let patch = |kind: &str, patch: Value| {
        let (kind, patch) = (format!("--type={kind}"), format!("--patch={patch}"));
        command(&["patch", &name, &kind, &patch], String::new())
    };
    let annotations = |annotations: Value| json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
    let pointer = format!(
        "/spec/template/metadata/annotations/{}",
        CONFIG_HASH.replace('/', "~1")
    );
    let manifest = web.manifest().to_string();
    let stamped = web.clone().stamped("rubbish").manifest().to_string();
    let mut writes = vec![
        command(&["label", &name, "team=x"], String::new()),
        command(&["annotate", &name, "note=x"], String::new()),
        patch("merge", json!({})),
        patch("strategic", json!({})),
        command(&["apply", "--filename=-"], manifest.clone()),
        command(&["replace", "--filename=-"], manifest.clone()),
        command(&["replace", "--filename=-"], stamped.clone()),
        command(
            &[
                "apply",
                "--server-side",
                "--force-conflicts",
                "--filename=-",
            ],
            manifest,
        ),
        command(
            &[
                "apply",
                "--server-side",
                "--force-conflicts",
                "--filename=-",
            ],
            stamped,
        ),
        patch("merge", annotations(json!({CONFIG_HASH: null}))),
        patch("merge", annotations(json!(null))),
        patch("merge", annotations(json!({CONFIG_HASH: "rubbish"}))),
        patch("merge", annotations(json!({CONFIG_HASH: ""}))),
        patch("strategic", annotations(json!({CONFIG_HASH: "rubbish"}))),
        patch("json", json!([{"op": "remove", "path": pointer}])),
        patch(
            "json",
            json!([{"op": "replace", "path": pointer, "value": "rubbish"}]),
        ),
        patch(
            "json",
            json!([{"op": "remove", "path": "/spec/template/metadata/annotations"}]),
        ),
        patch(
            "merge",
            json!({"metadata": {"annotations": {"pod-reloader.cs.sap.com/configmaps": "app,more"}}}),
        ),
    ];
    if web.kind != Kind::DaemonSet {
        writes.push(command(&["scale", &name, "--replicas=2"], String::new()));
        writes.push(patch("merge", json!({"spec": {"replicas": 1}})));
    }
    writes
}

/// Returns the operator's reads of ConfigMaps and Secrets since `mark`, except for the keys of the hash.
async fn config_reads(scene: &Scene, mark: Mark) -> Result<Vec<String>> {
    let requests = scene.requests(mark).await?;
    let reads = requests.into_iter().filter(|request| {
        ["configmaps", "secrets"].contains(&request.resource.as_str())
            && request.namespace != scene.installation.namespace
    });
    Ok(reads
        .map(|read| format!("{} {}", read.verb, read.uri))
        .collect())
}
