//! While a change waits for the loop, no other write starts a rollout.

use anyhow::{Context, Result, ensure};
use pod_reloader_e2e::workload::{CONFIG_HASH, Kind, Workload, both_kinds, config_map};
use pod_reloader_e2e::{AuditEvent, Mark, Options, Scene, Snapshot};
use serde_json::{Value, json};

#[tokio::test]
async fn no_write_that_leaves_the_template_alone_moves_the_hash_or_reads_config() -> Result<()> {
    Scene::play(without_loop(), async |scene| {
        for kind in Kind::ALL {
            let web = subscribed(kind);
            let before = pending(scene, &web).await?;
            let mark = scene.mark().await?;
            for write in writes(&web) {
                let sent = write.send(scene, &web).await;
                sent.with_context(|| format!("{write:?}"))?;
                let key = scene.key(&web).await?;
                ensure!(
                    key == before.key,
                    "{write:?} moved the hash from {:?} to {key:?}",
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
            let apply = async |web: &Workload| {
                let namespace = Some(&*scene.namespace);
                let manifest = web.manifest();
                let applied = scene.server_side_apply_without_force(namespace, "user", &manifest);
                applied.await
            };
            scene.apply(&both_kinds("app", "1")).await?;
            apply(&web).await?;
            let before = scene.snapshot(&web).await?;
            scene.apply(&[config_map("app", "2")]).await?;

            let mark = scene.mark().await?;
            apply(&web).await?;
            apply(&web.clone().stamped("rubbish")).await?;
            assert_eq!(scene.snapshot(&web).await?, before, "{kind:?}");
            // The manifest drops the hash that it owned, which does not remove it either.
            apply(&web).await?;
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
        scene.apply(&both_kinds("app", "1")).await?;
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
    scene.apply(&both_kinds("app", &value(1))).await?;
    let before = scene.create(web).await?;
    let stamped = scene.expected_key(web).await?;
    assert_eq!(before.key, Some(stamped.clone()));
    scene.apply(&both_kinds("app", &value(2))).await?;
    assert_ne!(
        scene.expected_key(web).await?,
        stamped,
        "nothing is pending"
    );
    Ok(before)
}

/// A write to a workload.
#[derive(Debug)]
enum Write {
    /// A patch, as `kubectl patch` sends it, and `label` and `annotate` under other names: of the type `merge`,
    /// `strategic-merge` or `json`.
    Patch(&'static str, Value),
    /// A manifest that is applied on the side of the server, with force.
    Apply(Value),
    /// A command of kubectl, which knows more than its request: it has read the object, or what it has applied before.
    Kubectl(&'static [&'static str], String),
    /// `kubectl scale` to this number of replicas.
    Scale(usize),
}

impl Write {
    async fn send(&self, scene: &Scene, web: &Workload) -> Result<()> {
        match self {
            Self::Patch(kind, patch) => {
                let resource = format!("{}s", web.kind.as_str().to_lowercase());
                let namespace = &scene.namespace;
                let name = &web.name;
                let path = format!("/apis/apps/v1/namespaces/{namespace}/{resource}/{name}");
                let uri = format!("{path}?fieldManager=kubectl-patch");
                let kind = format!("application/{kind}-patch+json");
                let request = http::Request::patch(uri).header("Content-Type", kind);
                let request = request.body(patch.to_string().into_bytes())?;
                scene.client.request::<Value>(request).await?;
            }
            Self::Apply(manifest) => {
                let namespace = Some(&*scene.namespace);
                let applied = scene.server_side_apply(namespace, "kubectl", manifest);
                applied.await?;
            }
            Self::Kubectl(args, input) => {
                scene.kubectl_with_input(args, input).await?;
            }
            Self::Scale(replicas) => {
                let replicas = format!("--replicas={replicas}");
                let name = web.reference();
                scene.kubectl(&["scale", &name, &replicas]).await?;
            }
        }
        Ok(())
    }
}

/// Returns writes to `web`. None of them changes the pod template, except for the config hash.
fn writes(web: &Workload) -> Vec<Write> {
    let annotations = |annotations: Value| json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
    let pointer = format!(
        "/spec/template/metadata/annotations/{}",
        CONFIG_HASH.replace('/', "~1")
    );
    let manifest = web.manifest().to_string();
    let stamped = web.clone().stamped("rubbish").manifest();
    let labelled = json!({"metadata": {"labels": {"team": "x"}}});
    let noted = json!({"metadata": {"annotations": {"note": "x"}}});
    let lists_more = json!({"pod-reloader.cs.sap.com/configmaps": "app,more"});
    let mut writes = vec![
        Write::Patch("merge", labelled),
        Write::Patch("merge", noted),
        Write::Patch("merge", json!({})),
        Write::Patch("strategic-merge", json!({})),
        Write::Kubectl(&["apply", "--filename=-"], manifest.clone()),
        Write::Kubectl(&["replace", "--filename=-"], manifest.clone()),
        Write::Kubectl(&["replace", "--filename=-"], stamped.to_string()),
        // Its first apply on the side of the server also changes what the one on the side of the client has left.
        Write::Kubectl(
            &[
                "apply",
                "--server-side",
                "--force-conflicts",
                "--filename=-",
            ],
            manifest,
        ),
        Write::Apply(stamped),
        Write::Patch("merge", annotations(json!({CONFIG_HASH: null}))),
        Write::Patch("merge", annotations(json!(null))),
        Write::Patch("merge", annotations(json!({CONFIG_HASH: "rubbish"}))),
        Write::Patch("merge", annotations(json!({CONFIG_HASH: ""}))),
        Write::Patch(
            "strategic-merge",
            annotations(json!({CONFIG_HASH: "rubbish"})),
        ),
        Write::Patch("json", json!([{"op": "remove", "path": pointer}])),
        Write::Patch(
            "json",
            json!([{"op": "replace", "path": pointer, "value": "rubbish"}]),
        ),
        Write::Patch(
            "json",
            json!([{"op": "remove", "path": "/spec/template/metadata/annotations"}]),
        ),
        Write::Patch("merge", json!({"metadata": {"annotations": lists_more}})),
    ];
    if web.kind != Kind::DaemonSet {
        writes.push(Write::Scale(2));
        writes.push(Write::Patch("merge", json!({"spec": {"replicas": 1}})));
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
