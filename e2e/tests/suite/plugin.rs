//! `kubectl pod-reloader`: each command as typed by a user, as an administrator and with few rights.

mod gates;
mod list;
mod migrate;
mod plan;
mod protect;
pub(crate) mod syncs;
mod undo;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};
use pod_reloader_e2e::crds::crd;
use pod_reloader_e2e::workload::{Kind, Workload, config_map, secret};
use pod_reloader_e2e::{
    Attempt, CANARY, ControlPlane, Options, Output, PATIENCE, Scene, done_if,
    has_mutating_policies, mentions, wait_for,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::interval;

#[tokio::test]
async fn impact_explain_and_wait_name_what_is_tracked_needed_and_missing() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        impact_names_those_that_restart_and_those_that_could_not_start(scene)
            .await
            .context("impact")?;
        explain_shows_what_is_tracked_and_why_it_was_restarted(scene)
            .await
            .context("explain")?;
        wait_says_what_it_waited_for_in_vain(scene)
            .await
            .context("wait")
    })
    .await
}

#[tokio::test]
async fn a_namespace_without_secrets_is_drawn_and_nothing_is_waited_for_without_managed_workloads()
-> Result<()> {
    Scene::play(Options::default(), async |scene| {
        a_namespace_without_secrets_is_drawn(scene)
            .await
            .context("graph")?;
        waiting_for_all_workloads_of_a_namespace_without_managed_ones_fails(scene)
            .await
            .context("wait")
    })
    .await
}

#[tokio::test]
async fn commands_write_nothing_show_no_secret_complete_objects_and_go_through_a_proxy()
-> Result<()> {
    Scene::play(Options::default(), async |scene| {
        commands_that_only_read_write_nothing_and_show_no_secret(scene)
            .await
            .context("commands that only read")?;
        kubectl_completes_objects_that_exist(scene)
            .await
            .context("completion")?;
        the_plugin_uses_the_proxy_of_the_kubeconfig(scene)
            .await
            .context("a proxy")
    })
    .await
}

#[tokio::test]
async fn status_compares_no_clocks_and_explain_knows_the_hash_of_somebody_else() -> Result<()> {
    Scene::play(stopped(), async |scene| {
        status_compares_no_clocks(scene).await.context("status")?;
        explain_knows_the_hash_of_somebody_else_and_its_baseline(scene)
            .await
            .context("explain")
    })
    .await
}

async fn explain_shows_what_is_tracked_and_why_it_was_restarted(scene: &Scene) -> Result<()> {
    scene
        .apply(&[
            config_map("app", "1"),
            secret("app", CANARY),
            config_map("unused", "1"),
        ])
        .await?;
    let web = using("web", &["app", "gone"]).annotated(AUTO, "true");
    let web = web.annotated("pod-reloader.cs.sap.com/exclude-configmaps", "left-out");
    scene.create(&web).await?;
    let before = explained(scene, &web, &[]).await?;
    ensure!(before["syncStatus"] == "current", "{before:#}");
    // The webhook set the hash, and it makes no Events.
    ensure!(before["lastRestart"]["manager"].is_null(), "{before:#}");
    let told = text(scene, &["explain", "deploy", "web"]).await?;
    mentions(&told, "it came with a write of the workload, ")?;

    scene.apply(&[config_map("app", "2")]).await?;
    scene.event(&web, "ConfigChanged").await?;
    text(scene, &["wait", "deploy/web"]).await?;
    let told = explained(scene, &web, &[]).await?;
    ensure!(
        told["syncStatus"] == "current" && told["isManaged"] == true,
        "{told:#}"
    );
    let key = scene.key(&web).await?;
    ensure!(told["configHash"].as_str() == key.as_deref(), "{told:#}");
    let why = told["lastRestart"]["why"].as_str().unwrap_or_default();
    ensure!(why.contains("ConfigMap app changed"), "{told:#}");
    ensure!(told["lastRestart"]["manager"] == "pod-reloader", "{told:#}");
    ensure!(
        told["operator"]["name"] == *scene.installation.namespace,
        "{told:#}"
    );
    ensure!(told["unseen"] == json!([]), "{told:#}");
    let objects = json!([
        {"kind": "ConfigMap", "name": "app", "exists": true, "tracked": true, "keys": ["key"],
         "uses": ["env"], "needs": ["key"]},
        {"kind": "ConfigMap", "name": "gone", "exists": false, "tracked": true, "keys": ["key"],
         "uses": ["env"], "needs": []},
        {"kind": "ConfigMap", "name": "left-out", "exists": false, "tracked": false,
         "uses": ["volume"], "needs": []},
        {"kind": "Secret", "name": "app", "exists": true, "tracked": true,
         "uses": ["envFrom"], "needs": ["the object"]},
    ]);
    ensure!(told["objects"] == objects, "{:#}", told["objects"]);

    let text = text(scene, &["explain", "deploy/web"]).await?;
    for line in [
        "Deployment web in namespace",
        "current: its pods run the current configuration",
        "restarting pods: ConfigMap app changed",
        "once all have been unchanged for 0.3 s",
    ] {
        mentions(&text, line)?;
    }
    ensure!(
        !text.contains('\u{1b}'),
        "colours where there is no terminal: {text:?}"
    );
    Ok(())
}

#[tokio::test]
async fn explain_shows_the_sync_status_of_each_workload() -> Result<()> {
    Scene::play(with(&["--reconcile=none"]), async |scene| {
        scene
            .apply(&[config_map("app", "1"), secret("needed", "1")])
            .await?;
        let stale = Workload::new(Kind::StatefulSet, "stale").lists("app");
        let held = Workload::new(Kind::DaemonSet, "held").lists_secrets("needed");
        let held = held.requires_secret("needed");
        let alone = Workload::deployment("alone");
        let ignored = Workload::deployment("ignored").lists("app");
        let ignored = ignored.labelled("pod-reloader.cs.sap.com/ignored", "true");
        for workload in [&stale, &held, &alone, &ignored] {
            scene.create(workload).await?;
        }
        scene.apply(&[config_map("app", "2")]).await?;
        scene.delete("secret/needed").await?;

        let told = explained(scene, &stale, &[]).await?;
        ensure!(told["syncStatus"] == "restart due for a change", "{told:#}");
        let in_words = text_of(scene, &["explain", "sts/stale"], 1).await?;
        mentions(&in_words, "out of date")?;
        mentions(&in_words, "--reconcile=none")?;
        let told = explained(scene, &held, &[]).await?;
        ensure!(told["syncStatus"] == "missing config", "{told:#}");
        ensure!(told["waitsFor"] == json!(["Secret needed"]), "{told:#}");
        for (workload, why) in [(&alone, "no annotation"), (&ignored, "its label")] {
            let told = explained(scene, workload, &[]).await?;
            let reason = told["notManagedBecause"].as_str().unwrap_or_default();
            ensure!(
                told["isManaged"] == false && reason.contains(why),
                "{told:#}"
            );
        }
        let missing = ended(scene, &["explain", "deploy/none"], 1).await?;
        ensure!(
            missing.stderr == "Error from server (NotFound): deployments.apps \"none\" not found\n",
            "{missing:?}"
        );
        let unknown = plugin(scene, &["explain", "pod/web"]).await?;
        mentions(&unknown.stderr, "no kind of workload")?;
        Ok(())
    })
    .await
}

async fn explain_knows_the_hash_of_somebody_else_and_its_baseline(scene: &Scene) -> Result<()> {
    scene
        .create_listing(Workload::deployment("web").stamped("foreign"))
        .await?;
    scene.operator.start_again().await?;
    let what = "a baseline to speak for it";
    wait_for(what, PATIENCE, async || {
        let told = text(scene, &["explain", "deploy/web"])
            .await
            .unwrap_or_default();
        done_if(told.contains("current, by its annotation"), told)
    })
    .await
}

/// Asserts what the commands say about custom resources. Other tests have operators, and define Rollouts in other groups.
pub(crate) async fn custom_resources_are_explained(control_plane: ControlPlane) -> Result<()> {
    control_plane
        .kubectl()
        .run_with_input(&["apply", "--filename=-"], &crd("rollouts").to_string())
        .await?;
    let options = Options::with_values(json!({"customResources": ["argo-rollouts", "cronjobs"]}));
    Scene::play_on(control_plane, options, async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let shop = Workload::deployment("shop").lists("app");
        let by_time = Workload::deployment("by-time").lists("app");
        let by_time = by_time.annotated("pod-reloader.cs.sap.com/restart", "at");
        for workload in [shop, by_time] {
            let mut rollout = workload.manifest();
            rollout["apiVersion"] = json!("argoproj.io/v1alpha1");
            rollout["kind"] = json!("Rollout");
            scene.apply(&[rollout]).await?;
        }
        for typed in ["rollout/shop", "rollouts.argoproj.io/shop"] {
            let told = json_of(scene, &["explain", typed]).await?;
            ensure!(
                told["syncStatus"] == "current" && told["kind"] == "Rollout",
                "{told:#}"
            );
        }
        let impact = json_of(scene, &["impact", "cm/app"]).await?;
        ensure!(impact["workloads"][0]["restarts"] == true, "{impact:#}");
        // The controller does not run here: all that can be told is that nothing is pending.
        let waited = ended(scene, &["wait", "rollout/by-time"], 3).await?;
        mentions(&waited.stdout, "nothing is pending")?;
        let told = text(scene, &["explain", "rollout/by-time"]).await?;
        mentions(&told, "it is restarted by a time")?;

        let nightly = json!({
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {
                "name": "nightly",
                "annotations": {"pod-reloader.cs.sap.com/configmaps": "app"},
            },
            "spec": {
                "schedule": "0 0 1 1 *",
                "jobTemplate": {"spec": {"template": {"spec": {
                    "restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}],
                }}}},
            },
        });
        scene.apply(&[nightly]).await?;
        let waited = text(scene, &["wait", "cronjob/nightly"]).await?;
        mentions(&waited, "its next run reads the current objects")?;
        let told = text(scene, &["explain", "cronjob/nightly"]).await?;
        mentions(&told, "current: its next run reads")?;
        Ok(())
    })
    .await
}

/// Two operators read the same annotations, in different namespaces.
#[tokio::test]
async fn explain_names_the_one_of_two_operators_that_manages_the_workload() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        Scene::play(Options::default(), async |other| {
            for scene in [scene, other] {
                let (web, _) = scene.create_listing(Workload::deployment("web")).await?;
                let told = explained(scene, &web, &[]).await?;
                ensure!(told["syncStatus"] == "current", "{told:#}");
                let operator = &told["operator"]["namespace"];
                ensure!(*operator == *scene.installation.namespace, "{told:#}");
            }
            Ok(())
        })
        .await
    })
    .await
}

async fn impact_names_those_that_restart_and_those_that_could_not_start(
    scene: &Scene,
) -> Result<()> {
    scene
        .apply(&[config_map("app", "1"), secret("creds", CANARY)])
        .await?;
    let lists = Workload::deployment("lists").lists_secrets("creds");
    let lists = lists.with(&["spec", "replicas"], json!(3));
    let needs = Workload::deployment("needs").lists_secrets("creds");
    let needs = needs
        .requires_secret("creds")
        .with(&["spec", "paused"], json!(true));
    let uses = Workload::deployment("uses").requires_secret("creds");
    let other = Workload::deployment("other").lists("app");
    let by_key = using("by-key", &["app"]).annotated(AUTO, "true");
    for workload in [&lists, &needs, &uses, &other, &by_key] {
        scene.apply(&[workload.manifest()]).await?;
    }
    let impact = json_of(scene, &["impact", "secret/creds"]).await?;
    let rows = json!([
        {"kind": "Deployment", "name": "lists", "pods": 3, "restarts": true, "needs": []},
        {"kind": "Deployment", "name": "needs", "pods": 1, "restarts": true, "needs": ["the object"],
         "remark": "paused: when it is resumed"},
    ]);
    let all = impact["workloads"].as_array().context("no list")?;
    ensure!(json!(all[..2]) == rows, "{impact:#}");
    ensure!(all.len() == 3 && all[2]["name"] == "uses", "{impact:#}");
    let is_needed = all[2]["needs"] == json!(["the object"]);
    ensure!(all[2]["restarts"] == false && is_needed, "{impact:#}");
    let told = text(scene, &["impact", "secret/creds"]).await?;
    mentions(&told, "restarts 2 workloads with 4 pods.")?;
    mentions(&told, "2 workloads could not start without it.")?;

    let restarted = async |key: &str| {
        let impact = json_of(scene, &["impact", "cm/app", "--key", key]).await?;
        let rows = impact["workloads"].as_array().cloned().unwrap_or_default();
        let rows = rows.into_iter().filter(|row| row["restarts"] == true);
        anyhow::Ok(Vec::from_iter(rows.map(|row| {
            row["name"].as_str().map(str::to_owned).unwrap_or_default()
        })))
    };
    ensure!(restarted("key").await? == ["by-key", "other"]);
    ensure!(restarted("another").await? == ["other"]);
    let absent = text_of(scene, &["impact", "configmap", "gone"], 1).await?;
    ensure!(
        absent.starts_with("There is no ConfigMap gone in"),
        "{absent}"
    );
    let key = text_of(scene, &["impact", "secret/creds", "--key=nope"], 0).await?;
    mentions(&key, "has no key nope. Adding it restarts 2 workloads")?;
    Ok(())
}

#[tokio::test]
async fn wait_returns_when_the_change_has_been_rolled_out() -> Result<()> {
    Scene::play(Options::settling("15s"), async |scene| {
        let (web, before) = scene.create_listing(Workload::deployment("web")).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let waited = ended(scene, &["wait", "deploy/web", "--timeout=120s"], 0).await?;
        mentions(&waited.stderr, "a restart is due")?;
        let after = scene.snapshot(&web).await?;
        ensure!(
            after.key == Some(scene.expected_key(&web).await?),
            "{after:?}"
        );
        ensure!(after.new_revisions(&before) == 1, "{after:?}");
        let status = &scene.object("deploy/web").await?["status"];
        ensure!(
            status["updatedReplicas"] == 1 && status["availableReplicas"] == 1,
            "{status}"
        );
        let all = plugin(scene, &["wait", "--all", "--output=json"]).await?;
        let all: Value = serde_json::from_str(&all.stdout)?;
        ensure!(
            all["workloads"][0]["workload"] == "deployments.apps/web",
            "{all}"
        );
        Ok(())
    })
    .await
}

async fn wait_says_what_it_waited_for_in_vain(scene: &Scene) -> Result<()> {
    let held = Workload::deployment("held").lists("gone").requires("gone");
    scene
        .apply(&[config_map("gone", "1"), held.manifest()])
        .await?;
    scene.delete("configmap/gone").await?;
    let waited = ended(scene, &["wait", "deploy/held", "--timeout=3s"], 1).await?;
    mentions(&waited.stdout, "not in time: its pods could not start")?;
    mentions(&waited.stdout, "without ConfigMap gone")?;
    ended(scene, &["wait"], 2).await?;

    let stuck = Workload::deployment("stuck").lists("gone");
    let stuck = stuck.with(&["spec", "paused"], json!(true));
    scene.apply(&[stuck.manifest()]).await?;
    // A paused workload makes no progress, so waiting gains nothing for the other one.
    let both = ["wait", "deploy/held", "deploy/stuck", "--timeout=10m"];
    let waited = text_of(scene, &both, 1).await?;
    mentions(&waited, "deploy/held: not waited for: its pods")?;
    mentions(&waited, "deploy/stuck: the workload is paused")?;
    Ok(())
}

async fn waiting_for_all_workloads_of_a_namespace_without_managed_ones_fails(
    scene: &Scene,
) -> Result<()> {
    scene.create(&Workload::deployment("alone")).await?;
    let told = text_of(scene, &["wait", "--all"], 1).await?;
    let line = format!("no workload is managed in namespace {}\n", scene.namespace);
    ensure!(told == line, "{told}");
    // For example a misspelt namespace.
    let plugin = scene.tool().plugin()?;
    let args = ["wait", "--all", "--namespace=nowhere"];
    let nowhere = plugin.output(&args, "").await?;
    ensure!(nowhere.code == Some(1), "{nowhere:?}");
    for args in [
        &["graph", "--namespace=nowhere"][..],
        &["impact", "cm/app", "--namespace=nowhere"],
        &["explain", "deploy", "web", "--namespace=nowhere"],
        &["status", "--operator-namespace=nowhere"],
    ] {
        let nowhere = plugin.output(args, "").await?;
        ensure!(nowhere.code == Some(1), "{args:?}: {nowhere:?}");
        ensure!(
            nowhere.stderr == "Error from server (NotFound): namespaces \"nowhere\" not found\n",
            "{args:?}: {nowhere:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn status_sees_a_healthy_operator_and_one_that_is_down() -> Result<()> {
    let options = Options {
        replicas: 2,
        values: json!({"replicaCount": 2}),
        ..Options::ignoring()
    };
    Scene::play(options, async |scene| {
        scene.leader().await?;
        scene.apply(&[config_map("app", "1")]).await?;
        scene
            .create(&Workload::deployment("web").lists("app"))
            .await?;
        let namespace = &scene.installation.namespace;
        let rollout = [
            "--namespace",
            namespace,
            "rollout",
            "status",
            "deployment",
            namespace,
        ];
        scene.tool().run(&rollout).await?;
        let own = format!("--operator-namespace={namespace}");
        let healthy = ended(scene, &["status", &own], 0).await?;
        let policy = match has_mutating_policies().await? {
            true => "preserves the hash while the webhook cannot be reached",
            false => "none: this Kubernetes has no MutatingAdmissionPolicy",
        };
        for line in [
            "2 of 2 ready",
            "registered, failurePolicy Ignore",
            "reached through the apiserver, which trusts it",
            "in 89 days",
            policy,
            "1 managed, 1 with a hash",
            "1 up to date",
            "none in the last hour",
        ] {
            mentions(&healthy.stdout, line)?;
        }

        for replica in scene.replicas() {
            replica.operator.process().kill().await;
        }
        wait_for("the Lease to run out", PATIENCE, async || {
            let down = plugin(scene, &["status", &own]).await?;
            let lines = [
                "Leader",
                "has not renewed the Lease for 15 s",
                "the apiserver cannot reach it",
            ];
            let is_told = lines.iter().all(|line| down.stdout.contains(line));
            done_if(is_told && down.code == Some(1), down.stdout)
        })
        .await
    })
    .await
}

#[tokio::test]
async fn status_names_workloads_that_are_behind() -> Result<()> {
    Scene::play(with(&["--reconcile=observe"]), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        scene
            .create(&Workload::deployment("web").lists("app"))
            .await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let own = format!("--operator-namespace={}", scene.installation.namespace);
        let status = ended(scene, &["status", &own], 1).await?;
        let line = format!("1 out of date: Deployment {}/web", scene.namespace);
        mentions(&status.stdout, &line)?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn status_reports_nothing_that_is_over_or_yet_to_come_as_a_fault() -> Result<()> {
    Scene::play(elected(), async |scene| {
        let own = format!("--operator-namespace={}", scene.installation.namespace);
        let status_is = async |what: &str, code: i32, lines: &[String]| {
            wait_for(what, PATIENCE, async || {
                let told = plugin(scene, &["status", &own]).await?;
                let is_told = lines.iter().all(|line| told.stdout.contains(line));
                Ok(match is_told && told.code == Some(code) {
                    true => Attempt::Done(told.stdout),
                    false => Attempt::NotYet(format!("{:?}\n{}", told.code, told.stdout)),
                })
            })
            .await
        };
        let namespace = &scene.namespace;
        let configs = ["app", "other", "gone"].map(|name| config_map(name, "1"));
        scene.apply(&configs).await?;
        let paused = Workload::deployment("paused").lists("app");
        let paused = paused.with(&["spec", "paused"], json!(true));
        let listed = Workload::deployment("listed").lists("other,No_Name");
        let held = Workload::deployment("held").lists("gone").requires("gone");
        for workload in [&paused, &listed, &held] {
            scene.create(workload).await?;
        }
        scene.apply(&[config_map("app", "2")]).await?;
        scene.delete("configmap/gone").await?;
        scene.event(&paused, "RestartStalled").await?;
        scene.event(&listed, "InvalidReference").await?;
        scene.event(&held, "MissingConfig").await?;
        let warned = [
            format!("RestartStalled: Deployment {namespace}/paused"),
            format!("InvalidReference: Deployment {namespace}/listed"),
            format!("MissingConfig: Deployment {namespace}/held"),
        ];
        status_is("status to tell all warnings", 1, &warned).await?;

        let resume = ["rollout", "resume", "deployment/paused"];
        scene.kubectl(&resume).await?;
        let list = "pod-reloader.cs.sap.com/configmaps=other";
        let correct = ["annotate", "--overwrite", "deployment/listed", list];
        scene.kubectl(&correct).await?;
        scene.apply(&[config_map("gone", "1")]).await?;
        let over = [
            "none in the cluster: it runs elsewhere".to_owned(),
            "3 up to date".to_owned(),
            "none in the last hour".to_owned(),
        ];
        status_is("status to find all well", 0, &over).await?;

        let slow = Workload::deployment("slow").lists("other");
        let slow = slow.annotated("pod-reloader.cs.sap.com/settle-period", "20m");
        scene.create(&slow).await?;
        scene.apply(&[config_map("other", "2")]).await?;
        let line = "1 about to be restarted, after a long settle period: Deployment";
        let due = [
            format!("{line} {namespace}/slow"),
            "3 up to date".to_owned(),
        ];
        status_is("status to leave it its settle period", 0, &due).await?;
        let one = text(scene, &["status", &own, "--ask=1"]).await?;
        mentions(&one, "3 not asked about (--ask=4 asks about all)")?;
        Ok(())
    })
    .await
}

async fn status_compares_no_clocks(scene: &Scene) -> Result<()> {
    let there = &scene.installation.namespace;
    let own = format!("--operator-namespace={there}");
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": there, "namespace": there},
        "spec": {
            "holderIdentity": "somebody", "leaseDurationSeconds": 10,
            "renewTime": "2100-01-01T00:00:00.000000Z",
        },
    });
    let apply = async |lease: &Value| scene.server_side_apply(None, "user", lease).await;
    apply(&lease).await?;
    let told = ended(scene, &["status", &own], 1).await?;
    for line in [
        "none: somebody has not renewed the Lease for",
        "none: it is switched off",
    ] {
        mentions(&told.stdout, line)?;
    }

    let renew = async {
        // More often than a leader renews it.
        let mut pace = interval(Duration::from_millis(250));
        for second in (0..60).cycle() {
            pace.tick().await;
            lease["spec"]["renewTime"] = json!(format!("1970-01-01T00:00:{second:02}.000000Z"));
            apply(&lease).await?;
        }
        anyhow::Ok(())
    };
    let status = ["status", &own];
    let told = tokio::select! {
        told = plugin(scene, &status) => told?,
        renewed = renew => return renewed.context("it ended"),
    };
    for line in [
        "ok  Leader     somebody",
        "none in the cluster: it runs elsewhere",
    ] {
        mentions(&told.stdout, line)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_user_who_may_not_see_the_labels_of_a_namespace_gets_a_note() -> Result<()> {
    let options = Options {
        everywhere: true,
        namespace_labels: vec!["stage=seen-by-few".to_owned()],
        values: json!({
            "watch": {"namespaceSelector": {"matchLabels": {"stage": "seen-by-few"}}},
        }),
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.create_listing(Workload::deployment("web")).await?;
        let there = &scene.installation.namespace;
        let reads = json!(["get", "list"]);
        let here = json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": reads},
            {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets", "daemonsets"], "verbs": reads},
        ]);
        let deployments =
            json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": reads}]);
        for (namespace, rules) in [(&scene.namespace, here), (there, deployments)] {
            scene.grant(namespace, "few", "few", &rules).await?;
            may_list(scene, namespace, "few").await?;
        }
        let own = format!("--operator-namespace={there}");
        let impact = ["impact", "cm/app", "--as=few", &own];
        let told = text_of(scene, &impact, 3).await?;
        let line = format!(
            "whether the operator selects namespace {}: you may not get",
            scene.namespace
        );
        mentions(&told, &line)?;
        let explained = plugin(scene, &["explain", "deploy/web", "--as=few", &own]).await?;
        mentions(&explained.stdout, &line)?;
        let told = text(scene, &["impact", "cm/app", &own]).await?;
        ensure!(!told.contains("Not seen"), "{told}");
        Ok(())
    })
    .await
}

async fn the_plugin_uses_the_proxy_of_the_kubeconfig(scene: &Scene) -> Result<()> {
    let web = Workload::deployment("web").lists("app").manifest();
    scene.apply(&[config_map("app", "1"), web]).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy_url = format!("--proxy-url=http://{}", listener.local_addr()?);
    let kubeconfig = scene.directory().join("proxied.kubeconfig");
    std::fs::copy(scene.control_plane.kubeconfig_path(), &kubeconfig)?;
    let kubectl = scene.tool().with_kubeconfig(kubeconfig);
    let view = ["config", "view", "--output=jsonpath={.clusters[0].name}"];
    let name = kubectl.run(&view).await?;
    kubectl
        .run(&["config", "set-cluster", name.trim(), &proxy_url])
        .await?;

    let kubectl = kubectl
        .with_plugin()?
        .with_env("NO_PROXY", "127.0.0.1,127.0.0.0/8");
    let namespace = format!("--namespace={}", scene.namespace);
    let tunnels = AtomicUsize::new(0);
    let impact = ["pod-reloader", "impact", "cm/app", &namespace];
    let told = tokio::select! {
        told = kubectl.output(&impact, "") => told?,
        failed = tunnel(&listener, &tunnels) => return failed.context("the proxy"),
    };
    mentions(&told.stdout, "restarts 1 workload")?;
    ensure!(tunnels.into_inner() > 0, "it went past the proxy: {told:?}");
    Ok(())
}

/// A proxy that tunnels as asked, and counts.
async fn tunnel(listener: &TcpListener, tunnels: &AtomicUsize) -> Result<()> {
    loop {
        let (mut client, _) = listener.accept().await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await?);
        }
        let head = String::from_utf8(head)?;
        let server = head
            .strip_prefix("CONNECT ")
            .and_then(|it| it.split(' ').next());
        let mut server = TcpStream::connect(server.context(head.clone())?).await?;
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        tunnels.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
    }
}

#[tokio::test]
async fn a_user_with_few_rights_sees_what_could_not_be_read() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene
            .apply(&[config_map("app", "1"), secret("creds", CANARY)])
            .await?;
        let web = Workload::deployment("web")
            .lists("app")
            .lists_secrets("creds");
        scene.create(&web).await?;
        // This user may see everything except Secrets, in this namespace only, and change nothing.
        bind(scene, "view", "viewer").await?;
        let explained = ended(scene, &["explain", "deploy/web", "--as=viewer"], 3).await?;
        let namespace = &scene.namespace;
        for line in [
            format!("you may not patch deployments in namespace {namespace}"),
            format!("Secret creds: you may not get secrets in namespace {namespace}"),
            "the operator and its settings: you may not list deployments in namespace pod-reloader"
                .to_owned(),
            "ConfigMap app   yes".to_owned(),
            "Secret creds    ?".to_owned(),
        ] {
            mentions(&explained.stdout, &line)?;
        }
        let impact = plugin(scene, &["impact", "secret/creds", "--as=viewer"]).await?;
        mentions(&impact.stdout, "which you may not see")?;
        mentions(&impact.stdout, "restarts 1 workload")?;
        let waited = ended(scene, &["wait", "deploy/web", "--as=viewer"], 3).await?;
        mentions(&waited.stdout, r#"User "viewer" cannot patch"#)?;
        let status = ended(scene, &["status", "--as=viewer"], 3).await?;
        mentions(
            &status.stdout,
            "No pod-reloader was found where you may look",
        )?;
        let graph = ended(scene, &["graph", "--output=json", "--as=viewer"], 3).await?;
        mentions(&graph.stderr, "you may not list secrets")?;
        let graph: Value = serde_json::from_str(&graph.stdout)?;
        ensure!(graph["objects"][1]["exists"].is_null(), "{graph:#}");

        // Workloads that have not opted in are not waited for: the webhook is not called for them.
        bind(scene, "edit", "editor").await?;
        let alone = Workload::deployment("alone");
        scene.apply(&[alone.manifest()]).await?;
        let all = ended(scene, &["wait", "--all", "--as=editor"], 0).await?;
        ensure!(all.stdout.starts_with("deployments.apps/web: "), "{all:?}");
        ensure!(all.stdout.lines().count() == 1, "{all:?}");
        mentions(&all.stderr, "left out: 1 workload not managed")?;
        let graph = plugin(scene, &["graph", "--output=json", "--as=editor"]).await?;
        mentions(&graph.stderr, "left out: 1 workload not managed")?;
        let graph: Value = serde_json::from_str(&graph.stdout)?;
        ensure!(
            graph["workloads"].as_array().map(Vec::len) == Some(1),
            "{graph:#}"
        );
        let alone = ended(scene, &["wait", "deploy/alone", "--as=editor"], 3).await?;
        mentions(&alone.stdout, "no annotation")?;
        // A user who may not list some kind cannot get an answer about all workloads.
        let verbs = json!(["get", "list", "patch"]);
        let rules = json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": verbs}]);
        scene
            .grant(namespace, "deployer", "deployer", &rules)
            .await?;
        may_list(scene, namespace, "deployer").await?;
        let some = ended(scene, &["wait", "--all", "--as=deployer"], 3).await?;
        mentions(&some.stdout, "deployments.apps/web: 1 of 1")?;
        mentions(&some.stderr, "you may not list statefulsets")?;

        let nobody = ended(scene, &["explain", "deploy/web", "--as=nobody"], 3).await?;
        let told = "Error from server (Forbidden): deployments.apps \"web\" is forbidden: User \"nobody\" cannot get";
        mentions(&nobody.stderr, told)?;
        Ok(())
    })
    .await
}

/// The apiserver lists no metadata as `"items": null`.
async fn a_namespace_without_secrets_is_drawn(scene: &Scene) -> Result<()> {
    let own = format!("--operator-namespace={}", scene.installation.namespace);
    let graph = text(scene, &["graph", &own]).await?;
    ensure!(graph.starts_with("flowchart LR\n"), "{graph}");
    let graph = json_of(scene, &["graph", &own]).await?;
    ensure!(graph["workloads"] == json!([]), "{graph:#}");
    Ok(())
}

/// Asserts what the commands say where there is no operator, or one that they cannot read.
pub(crate) async fn without_an_operator_the_plugin_says_so(
    control_plane: &ControlPlane,
) -> Result<()> {
    let kubectl = control_plane.kubectl();
    let plugin = kubectl.clone().plugin()?;
    let web = Workload::deployment("web")
        .lists("app")
        .manifest()
        .to_string();
    kubectl
        .run_with_input(&["create", "--filename=-"], &web)
        .await?;
    let run = async |args: &[&str]| {
        let told = plugin.output(args, "").await?;
        ensure!(told.code == Some(1), "{args:?}: {told:?}");
        anyhow::Ok(told)
    };
    let explained = run(&["explain", "deploy/web"]).await?;
    mentions(
        &explained.stdout,
        "no pod-reloader was found in this cluster",
    )?;
    let status = run(&["status"]).await?;
    mentions(&status.stdout, "No pod-reloader was found in this cluster")?;
    let impact = run(&["impact", "cm/app"]).await?;
    mentions(&impact.stdout, "restarts 0 workloads")?;
    let all = run(&["wait", "--all"]).await?;
    ensure!(
        all.stdout == "no pod-reloader was found in this cluster\n",
        "{all:?}"
    );
    let waited = run(&["wait", "deploy/web", "--timeout=2s"]).await?;
    mentions(
        &waited.stdout,
        "it is not managed: no pod-reloader was found",
    )?;
    let graph = run(&["graph", "--output=json"]).await?;
    mentions(&graph.stderr, "no pod-reloader was found")?;

    // An operator that this plugin cannot read, as in the middle of an upgrade.
    let args = ["--hash-keys-secret=keys", "--flag-of-the-future"];
    let newer = Workload::deployment("newer")
        .labelled("app.kubernetes.io/component", "controller")
        .with(
            &["spec", "template", "spec", "containers"],
            json!([{
                "name": "main", "image": "pod-reloader:9", "args": args,
            }]),
        );
    kubectl
        .run_with_input(&["create", "--filename=-"], &newer.manifest().to_string())
        .await?;
    let status = run(&["status"]).await?;
    for line in [
        "pod-reloader unknown: deployment newer in namespace",
        "Settings  of another version than this plugin",
        "not registered: there is no MutatingWebhookConfiguration newer",
    ] {
        mentions(&status.stdout, line)?;
    }
    ensure!(
        !status.stdout.contains("No pod-reloader was found"),
        "{status:?}"
    );
    kubectl
        .run(&["delete", "deployment", "web", "newer"])
        .await?;
    Ok(())
}

async fn commands_that_only_read_write_nothing_and_show_no_secret(scene: &Scene) -> Result<()> {
    scene
        .apply(&[config_map("app", "1"), secret("creds", CANARY)])
        .await?;
    let web = Workload::deployment("web")
        .lists("app")
        .lists_secrets("creds");
    let web = web.requires_secret("creds");
    scene.create(&web).await?;
    scene.quiet().await?;
    // The controller writes, too, until the rollout is done.
    scene.rolled_out(&web).await?;
    let before = scene.object("deploy/web").await?["metadata"]["resourceVersion"].clone();
    let mark = scene.mark().await?;
    // Other operators must not be asked: their tests count what they read.
    let own = format!("--operator-namespace={}", scene.installation.namespace);
    for args in [
        &["explain", "deploy/web"][..],
        &["impact", "secret/creds"],
        &["wait", "deploy/web"],
        &["graph"],
        &["list"],
        &["status", &own],
        &["__complete", "explain", ""],
    ] {
        for output in ["--output=text", "--output=json"] {
            let args = match args[0] {
                "__complete" => args.to_vec(),
                _ => [args, &[output]].concat(),
            };
            let told = plugin(scene, &args).await?;
            let told = told.stdout + &told.stderr;
            ensure!(
                !told.contains(CANARY) && !told.contains("aHVudGVyMi1jYW5hcnkt"),
                "{told}"
            );
        }
    }
    let after = scene.object("deploy/web").await?["metadata"]["resourceVersion"].clone();
    ensure!(after == before, "{before} became {after}");
    let mut inquiries = 0;
    for request in scene.requests_of_plugin(mark).await? {
        let reads = ["get", "list"].contains(&&*request.verb);
        let is_dry = request.uri.contains("dryRun=All");
        ensure!(reads || is_dry, "{request:?}");
        inquiries += usize::from(is_dry);
    }
    ensure!(inquiries > 0, "nothing was asked");
    Ok(())
}

async fn kubectl_completes_objects_that_exist(scene: &Scene) -> Result<()> {
    scene
        .apply(&[
            config_map("app", "1"),
            Workload::deployment("web").lists("app").manifest(),
        ])
        .await?;
    let kubectl = scene.tool().with_plugin()?;
    let namespace = format!("--namespace={}", scene.namespace);
    let completed = async |words: &[&str]| {
        let args = [&["pod-reloader", &*namespace, "__complete"], words].concat();
        kubectl.run(&args).await
    };
    ensure!(completed(&["ex"]).await? == "explain\n:4\n");
    ensure!(completed(&["explain", "deployment/w"]).await? == "deployment/web\n:4\n");
    ensure!(completed(&["explain", "deploy/w"]).await? == "deploy/web\n:4\n");
    ensure!(completed(&["wait", "deploy", "w"]).await? == "web\n:4\n");
    ensure!(completed(&["wait", "-o", "j"]).await? == "json\njsonpath=\n:4\n");
    ensure!(completed(&["impact", "configmap/a"]).await? == "configmap/app\n:4\n");
    let script = kubectl.run(&["pod-reloader", "completion", "bash"]).await?;
    mentions(&script, "kubectl-pod_reloader")?;
    Ok(())
}

const AUTO: &str = "pod-reloader.cs.sap.com/auto";

/// Returns a Deployment that uses a key of each ConfigMap, all but the first of them optional. It also uses
/// all of Secret `app`, and a volume of ConfigMap `left-out`, which is optional.
fn using(name: &str, config_maps: &[&str]) -> Workload {
    let env = config_maps.iter().enumerate().map(|(at, config_map)| {
        let source = json!({"name": config_map, "key": "key", "optional": at > 0});
        json!({"name": format!("V{at}"), "valueFrom": {"configMapKeyRef": source}})
    });
    let env: Vec<_> = env.collect();
    Workload::deployment(name).with(
        &["spec", "template", "spec"],
        json!({
            "containers": [{
                "name": "main", "image": "app:1", "env": env,
                "envFrom": [{"secretRef": {"name": "app"}}],
                "volumeMounts": [{"name": "files", "mountPath": "/files"}],
            }],
            "volumes": [{"name": "files", "configMap": {"name": "left-out", "optional": true}}],
        }),
    )
}

fn with(args: &[&str]) -> Options {
    let reconcile = args.iter().find_map(|arg| arg.strip_prefix("--reconcile="));
    // The plugin reads the settings from the Deployment of the chart.
    Options::with_values(json!({"reconcile": reconcile.unwrap_or("restart")}))
}

/// Returns options with one replica, which holds the Lease.
fn elected() -> Options {
    Options {
        replicas: 1,
        ..Options::default()
    }
}

fn stopped() -> Options {
    Options {
        running: false,
        failure_policy: "Ignore",
        ..Options::default()
    }
}

/// Runs a command of the plugin in the namespace of the scene, without kubectl.
async fn plugin(scene: &Scene, args: &[&str]) -> Result<Output> {
    let namespace = format!("--namespace={}", scene.namespace);
    let args = match args[0] {
        // Everything after it counts as typed words.
        "__complete" => [&[&*namespace], args].concat(),
        _ => [args, &[&*namespace]].concat(),
    };
    scene.tool().plugin()?.output(&args, "").await
}

/// Binds a user to a ClusterRole in the namespace of the scene, and waits until the user has its rights.
async fn bind(scene: &Scene, role: &str, user: &str) -> Result<()> {
    let role = format!("clusterrole/{role}");
    scene.bind(&scene.namespace, user, &role).await?;
    may_list(scene, &scene.namespace, user).await
}

/// Waits until a user may list the Deployments of a namespace. The apiserver grants what a new binding says a moment
/// later, and the plugin can be faster.
async fn may_list(scene: &Scene, namespace: &str, user: &str) -> Result<()> {
    let list = ResourceAttributes {
        group: Some("apps".to_owned()),
        namespace: Some(namespace.to_owned()),
        resource: Some("deployments".to_owned()),
        verb: Some("list".to_owned()),
        ..ResourceAttributes::default()
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            resource_attributes: Some(list),
            user: Some(user.to_owned()),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(scene.client.clone());
    let what = format!("{user} to have rights in {namespace}");
    wait_for(&what, PATIENCE, async || {
        let answer = reviews.create(&PostParams::default(), &review).await?;
        let status = answer.status.unwrap_or_default();
        done_if(status.allowed, format!("{status:?}"))
    })
    .await
}

/// Runs a command of the plugin that ends with this code.
async fn ended(scene: &Scene, args: &[&str], code: i32) -> Result<Output> {
    let output = plugin(scene, args).await?;
    ensure!(output.code == Some(code), "{args:?}: {output:?}");
    Ok(output)
}

async fn text_of(scene: &Scene, args: &[&str], code: i32) -> Result<String> {
    Ok(ended(scene, args, code).await?.stdout)
}

pub(crate) async fn text(scene: &Scene, args: &[&str]) -> Result<String> {
    text_of(scene, args, 0).await
}

async fn json_of(scene: &Scene, args: &[&str]) -> Result<Value> {
    let output = plugin(scene, &[args, &["--output=json"]].concat()).await?;
    serde_json::from_str(&output.stdout).with_context(|| format!("{args:?}: {output:?}"))
}

async fn explained(scene: &Scene, workload: &Workload, args: &[&str]) -> Result<Value> {
    let reference = workload.reference();
    json_of(scene, &[&["explain", &reference], args].concat()).await
}
