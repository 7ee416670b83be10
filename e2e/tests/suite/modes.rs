//! The operator in each of its modes, and at its turning points: start, stop, election, new certificate.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use pod_reloader_e2e::workload::{BASELINE, CONFIG_HASH, Workload, config_map};
use pod_reloader_e2e::{
    Attempt, ControlPlane, Installation, Operator, Options, PATIENCE, Scene, done_if, oracle,
    wait_for,
};
use serde_json::{Value, json};

#[tokio::test]
async fn observing_says_what_would_be_restarted_and_writes_nothing() -> Result<()> {
    Scene::play(with(&["--reconcile=observe"]), async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        ensure!(before.key.is_some(), "the webhook goes on");
        scene.shows("pod_reloader_workloads", "1").await?;
        let mark = scene.mark().await?;

        scene.apply(&[config_map("app", "2")]).await?;
        let note = scene.event(&web, "WouldRestart").await?;
        ensure!(note.contains("ConfigMap app"), "{note}");
        let counted = r#"pod_reloader_would_restart_total{kind="Deployment",cause="changed"}"#;
        scene.shows(counted, "1").await?;

        ensure!(scene.snapshot(&web).await? == before, "it moved");
        for request in scene.requests(mark).await? {
            let reads = ["get", "list", "watch"].contains(&&*request.verb);
            ensure!(reads || request.resource == "events", "{request:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn observing_writes_no_hash_and_no_baseline_at_its_start() -> Result<()> {
    let options = Options {
        running: false,
        failure_policy: "Ignore",
        ..with(&["--reconcile=observe"])
    };
    Scene::play(options, async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let bare = Workload::podless("bare").lists("app");
        let foreign = Workload::podless("foreign").lists("app").stamped("x");
        let (before, before_foreign) = (scene.create(&bare).await?, scene.create(&foreign).await?);
        let mark = scene.mark().await?;
        scene.operator.start_again().await?;
        scene.event(&bare, "WouldRestart").await?;
        scene
            .shows("pod_reloader_foreign_hash_workloads", "1")
            .await?;
        ensure!(scene.snapshot(&bare).await? == before, "it moved");
        ensure!(
            scene.snapshot(&foreign).await? == before_foreign,
            "it moved"
        );
        let requests = scene.requests(mark).await?;
        ensure!(
            !requests
                .iter()
                .any(|request| request.verb == "patch" && request.resource != "events"),
            "{requests:?}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn off_leaves_only_the_webhook_at_work() -> Result<()> {
    Scene::play(with(&["--reconcile=none"]), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = Workload::podless("web").lists("app");
        let mark = scene.mark().await?;
        let before = scene.create(&web).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene
            .apply(&[web.clone().image("app:2").manifest()])
            .await?;
        scene.right(&web).await?;
        ensure!(scene.snapshot(&web).await?.key != before.key, "not set");
        for request in scene.requests(mark).await? {
            // Whether the new Deployment takes over pods.
            let looks_for_pods = (&*request.verb, &*request.resource) == ("list", "replicasets");
            ensure!(request.verb == "get" || looks_for_pods, "{request:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_first_stamp_is_one_rollout() -> Result<()> {
    Scene::play(before_its_start(&[]), async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        ensure!(before.key.is_none(), "{before:?}");
        scene.operator.start_again().await?;
        let after = scene.rolls_once(&web, &before).await?;
        scene.operator.restart().await?;
        scene.rolls_not(&web, &after).await
    })
    .await
}

#[tokio::test]
async fn a_first_stamp_can_be_a_baseline_without_a_rollout() -> Result<()> {
    let options = before_its_start(&["--first-stamp=baseline"]);
    Scene::play(options, async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        scene.operator.start_again().await?;
        let expected = format!("={}", scene.expected_key(&web).await?);
        wait_for("the baseline", PATIENCE, async || {
            let object = scene.object(&web.reference()).await?;
            let baseline = &object["metadata"]["annotations"][BASELINE];
            done_if(
                baseline.as_str() == Some(&expected),
                format!("{baseline}, expected {expected}"),
            )
        })
        .await?;
        scene.rolls_not(&web, &before).await?;
        scene.label(&web.reference(), "team=blue").await?;
        scene.rolls_not(&web, &before).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let after = scene.rolls_once(&web, &before).await?;
        scene.rolls_not(&web, &after).await
    })
    .await
}

#[tokio::test]
async fn a_second_replica_stands_by_and_takes_over_without_a_rollout() -> Result<()> {
    let options = Options {
        failure_policy: "Ignore",
        ..with(&["--leader-elect"])
    };
    Scene::play(options, async |scene| {
        let (web, before) = scene.create_listing(Workload::podless("web")).await?;
        scene.shows("pod_reloader_leading", "1").await?;
        scene.quiet().await?;

        let mark = scene.mark().await?;
        let second = scene.start_another(&["--leader-elect"]).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let before = scene.rolls_once(&web, &before).await?;
        scene.shows("pod_reloader_leading", "1").await?;
        second.shows("pod_reloader_leading", "0").await?;
        // The first replica sometimes watches again, but only a replica that begins to lead lists.
        let lists = |requests: Vec<pod_reloader_e2e::AuditEvent>| {
            let mut requests = requests.into_iter();
            requests.any(|request| request.verb == "list")
        };
        ensure!(!lists(scene.requests(mark).await?), "the second lists");

        let mark = scene.mark().await?;
        let own = &scene.installation.namespace;
        let holder = async || {
            let lease = scene.object_in(own, &format!("lease/{own}")).await?;
            anyhow::Ok(lease["spec"]["holderIdentity"].clone())
        };
        let first = holder().await?;
        scene.operator.process().terminate()?;
        let status = scene.operator.process().exited(PATIENCE).await?;
        ensure!(status.code() == Some(0), "{status}");
        // The Lease was released, not expired: it is valid for 15 seconds.
        ensure!(holder().await? != first, "{first} has it still");
        second.shows("pod_reloader_leading", "1").await?;
        scene.rolls_not(&web, &before).await?;
        scene.apply(&[config_map("app", "3")]).await?;
        let after = scene.rolls_once(&web, &before).await?;
        ensure!(lists(scene.requests(mark).await?), "who leads lists");

        scene.operator.start_again().await?;
        scene.rolls_not(&web, &after).await?;
        scene.shows("pod_reloader_leading", "0").await?;
        second.stop().await;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn without_match_conditions_our_writes_pass_and_stale_hashes_do_not() -> Result<()> {
    let options = Options {
        match_conditions: false,
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        let (web, first) = scene.create_listing(Workload::podless("web")).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let second = scene.rolls_once(&web, &first).await?;
        for stale in [json!(first.key), json!("rubbish"), json!(null)] {
            let patch =
                json!({"spec": {"template": {"metadata": {"annotations": {CONFIG_HASH: stale}}}}});
            scene.patch(&web, &patch).await?;
            scene.rolls_not(&web, &second).await?;
        }
        let alone = Workload::podless("alone");
        ensure!(
            scene.create(&alone).await?.key.is_none(),
            "it lists nothing"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn sigterm_ends_the_operator_cleanly_within_seconds() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.quiet().await?;
        let process = scene.operator.process();
        process.terminate()?;
        let status = process.exited(Duration::from_secs(10)).await?;
        ensure!(status.code() == Some(0), "{status}");
        ensure!(
            scene.operator.log()?.contains("stopped"),
            "it does not say so"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn every_line_of_a_json_log_is_an_object() -> Result<()> {
    Scene::play(with(&["--log-format=json"]), async |scene| {
        let web = Workload::podless("web").lists("a/b\"\n, app");
        scene.create(&web).await?;
        scene.quiet().await?;
        scene.operator.stop().await;
        let log = scene.operator.log()?;
        for line in log.lines() {
            let object: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            for member in ["timestamp", "level", "message"] {
                ensure!(object[member].is_string(), "{member}: {line}");
            }
        }
        ensure!(log.contains("restarting pods"), "{log}");
        Ok(())
    })
    .await
}

/// Asserts that without a list of namespaces, all are managed except `kube-system` and the operator's own.
pub(crate) async fn all_namespaces_are_managed_except_two(
    control_plane: &ControlPlane,
) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let options = Options {
        everywhere: true,
        ..Options::default()
    };
    let values = options.values("operator");
    let installation = Installation::create(
        control_plane,
        "operator",
        directory.path(),
        options.version.clone(),
        &values,
        true,
    )
    .await?;
    let token = control_plane
        .service_account_token("operator", installation.service_account())
        .await?;
    let kubeconfig = control_plane.kubeconfig_for(token);
    let operator = Operator::start(&installation, &kubeconfig, directory.path(), &[])?;
    operator.ready().await?;
    let kubectl = control_plane.kubectl();
    let client = control_plane.admin_client().await?;
    let web = Workload::podless("web").lists("app");
    let namespaces = ["default", "a", "b", "kube-system", "operator"];
    for namespace in ["a", "b"] {
        kubectl.run(&["create", "namespace", namespace]).await?;
    }
    for value in ["1", "2"] {
        let mut items = Vec::new();
        for namespace in namespaces {
            for mut item in [config_map("app", value), web.manifest()] {
                item["metadata"]["namespace"] = json!(namespace);
                items.push(item);
            }
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
        let apply = ["apply", "--filename=-"];
        kubectl.run_with_input(&apply, &list).await?;
        for namespace in ["default", "a", "b"] {
            let what = format!("the hash of value {value} in {namespace}");
            wait_for(&what, PATIENCE, async || {
                let object = stored(&client, namespace).await?;
                let expected = oracle::config_hash(&client, &object, &installation).await?;
                let key = &object["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH];
                Ok(if key.as_str() == Some(&expected) {
                    Attempt::Done(())
                } else {
                    Attempt::NotYet(format!("{key}\n{}", operator.log()?))
                })
            })
            .await?;
        }
    }
    for namespace in ["kube-system", "operator"] {
        let object = stored(&client, namespace).await?;
        let key = &object["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH];
        ensure!(key.is_null(), "{namespace}: {key}");
    }
    operator.shows("pod_reloader_workloads", "3").await?;
    operator.stop().await;
    installation.uninstall().await
}

fn with(args: &[&str]) -> Options {
    Options {
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        ..Options::default()
    }
}

/// Returns options without a running operator, and with a webhook that is not in the way.
fn before_its_start(args: &[&str]) -> Options {
    Options {
        failure_policy: "Ignore",
        running: false,
        ..with(args)
    }
}

async fn stored(client: &Client, namespace: &str) -> Result<Value> {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/web");
    let get = http::Request::get(path).body(Vec::new())?;
    Ok(client.request(get).await?)
}
