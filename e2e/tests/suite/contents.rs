//! Changes of content restart pods once; nothing else does.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use pod_reloader_e2e::workload::{
    CONFIG_HASH, CONFIG_MAPS, Kind, Workload, both_kinds, config_map, secret,
};
use pod_reloader_e2e::{Mark, Options, PATIENCE, Scene, Snapshot, done_if, wait_for};
use serde_json::{Value, json};

#[tokio::test]
async fn a_change_of_content_rolls_every_kind_of_workload_once() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&both_kinds("app", "1")).await?;
        let workloads = every_kind("web", |workload| workload.lists("app").lists_secrets("app"));
        let mut before = created(scene, &workloads).await?;
        for (workload, before) in workloads.iter().zip(&before) {
            let expected = scene.expected_key(workload).await?;
            assert_eq!(before.key, Some(expected), "set on create");
        }
        for change in [config_map("app", "2"), secret("app", "2")] {
            scene.apply(&[change]).await?;
            before = scene.each_rolls_once(&workloads, &before).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn objects_that_come_go_or_have_other_content_of_any_form_roll_once_and_others_never()
-> Result<()> {
    Scene::play(Options::default(), async |scene| {
        a_listed_object_that_comes_or_goes_rolls_once(scene)
            .await
            .context("an object that comes or goes")?;
        every_form_of_content_is_tracked(scene)
            .await
            .context("every form of content")?;
        an_immutable_object_that_is_recreated_with_other_content_rolls_once(scene)
            .await
            .context("an immutable object")?;
        a_config_hash_on_the_metadata_of_the_workload_is_neither_obeyed_nor_touched(scene)
            .await
            .context("a config hash on the metadata")?;
        what_opts_out_or_is_ignored_is_left_alone_until_it_is_not_ignored_any_more(scene)
            .await
            .context("what opts out or is ignored")?;
        an_event_names_the_object_that_changed(scene)
            .await
            .context("the Event")
    })
    .await
}

async fn every_form_of_content_is_tracked(scene: &Scene) -> Result<()> {
    let binary = |value: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "binary"},
            "data": {"same": "same"}, "binaryData": {"key": value},
        })
    };
    let opaque = |value: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "opaque"},
            "data": {"key": value},
        })
    };
    scene
        .apply(&[binary("/w=="), opaque("MQ=="), secret("plain", "1")])
        .await?;
    let workloads = every_kind("forms", |workload| {
        workload.lists("binary").lists_secrets("opaque,plain")
    });
    let mut before = created(scene, &workloads).await?;
    for change in [
        binary("/g=="),
        opaque("Mg=="),
        secret("plain", "2"),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "binary"},
            "data": {"renamed": "same"}, "binaryData": {"key": "/g=="},
        }),
    ] {
        scene.apply(&[change]).await?;
        before = scene.each_rolls_once(&workloads, &before).await?;
    }
    Ok(())
}

async fn an_immutable_object_that_is_recreated_with_other_content_rolls_once(
    scene: &Scene,
) -> Result<()> {
    let immutable = |mut object: Value| {
        object["immutable"] = json!(true);
        object
    };
    scene
        .apply(&[
            immutable(config_map("fixed", "1")),
            immutable(secret("fixed", "1")),
        ])
        .await?;
    // The pods need both objects, so the moment without one restarts nothing, however long it lasts.
    let volumes = json!([
        {"name": "config", "configMap": {"name": "fixed"}},
        {"name": "secret", "secret": {"secretName": "fixed"}},
    ]);
    let mounts = json!([
        {"name": "config", "mountPath": "/config"},
        {"name": "secret", "mountPath": "/secret"},
    ]);
    let containers = json!([{"name": "main", "image": "app:1", "volumeMounts": mounts}]);
    let workloads = every_kind("fixed", |workload| {
        workload
            .lists("fixed")
            .lists_secrets("fixed")
            .with(&["spec", "template", "spec", "volumes"], volumes.clone())
            .with(
                &["spec", "template", "spec", "containers"],
                containers.clone(),
            )
    });
    let mut before = created(scene, &workloads).await?;
    for change in [config_map("fixed", "2"), secret("fixed", "2")] {
        let change = immutable(change).to_string();
        scene
            .kubectl_with_input(&["replace", "--force", "--filename=-"], &change)
            .await?;
        before = scene.each_rolls_once(&workloads, &before).await?;
    }
    Ok(())
}

#[tokio::test]
async fn nothing_but_content_rolls() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let two_keys = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app"},
            "data": {"a": "1", "b": "2"},
        });
        scene.apply(&[two_keys.clone(), secret("app", "1")]).await?;
        let workloads = every_kind("web", |workload| workload.lists("app").lists_secrets("app"));
        let before = created(scene, &workloads).await?;

        scene.apply(&[two_keys, secret("app", "1")]).await?;
        let other_order = r#"{"metadata": {"name": "app"}, "data": {"b": "2", "a": "1"},
            "kind": "ConfigMap", "apiVersion": "v1"}"#;
        scene
            .kubectl_with_input(&["replace", "--filename=-"], other_order)
            .await?;
        for object in ["configmap/app", "secret/app"] {
            for args in [
                &["label", object, "team=x"][..],
                &["label", object, "team-"],
                &["annotate", object, "note=x"],
                &[
                    "patch",
                    object,
                    "--type=merge",
                    r#"--patch={"metadata": {"finalizers": ["example.com/keep"]}}"#,
                ],
                &[
                    "patch",
                    object,
                    "--type=merge",
                    r#"--patch={"metadata": {"finalizers": null}}"#,
                ],
                &["patch", object, "--patch={}"],
                &["patch", object, r#"--patch={"immutable": true}"#],
            ] {
                scene.kubectl(args).await?;
            }
        }
        scene.each_rolls_not(&workloads, &before).await
    })
    .await
}

#[tokio::test]
async fn a_restart_of_the_operator_rolls_nothing_and_a_change_meanwhile_is_one_rollout()
-> Result<()> {
    Scene::play(Options::ignoring(), async |scene| {
        a_restart_of_the_operator_rolls_nothing_and_writes_nothing(scene)
            .await
            .context("a restart")?;
        a_change_while_the_operator_is_down_is_caught_up_by_one_rollout(scene)
            .await
            .context("a change while it is down")
    })
    .await
}

async fn a_restart_of_the_operator_rolls_nothing_and_writes_nothing(scene: &Scene) -> Result<()> {
    scene.apply(&both_kinds("app", "1")).await?;
    let workloads = every_kind("web", |workload| {
        workload.lists("app").lists_secrets("app,absent")
    });
    let before = created(scene, &workloads).await?;
    scene.quiet().await?;
    for ended in [Ended::Asked, Ended::Killed] {
        let mark = scene.mark().await?;
        ended.end(scene).await;
        scene.operator.start_again().await?;
        scene.each_rolls_not(&workloads, &before).await?;
        assert_eq!(writes_to(scene, mark, "web").await?, Vec::<String>::new());
    }
    Ok(())
}

async fn a_change_while_the_operator_is_down_is_caught_up_by_one_rollout(
    scene: &Scene,
) -> Result<()> {
    scene.apply(&both_kinds("caught-up", "1")).await?;
    let workloads = every_kind("caught-up", |workload| {
        workload.lists("caught-up").lists_secrets("caught-up")
    });
    let mut before = created(scene, &workloads).await?;
    for (ended, change) in [
        (Ended::Asked, config_map("caught-up", "2")),
        (Ended::Killed, secret("caught-up", "2")),
    ] {
        ended.end(scene).await;
        scene.apply(&[change]).await?;
        scene.operator.start_again().await?;
        before = scene.each_rolls_once(&workloads, &before).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_required_object_that_goes_is_waited_for_and_only_new_content_rolls() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        for (kind, of, build) in [
            (
                Kind::Deployment,
                "configmap",
                config_map as fn(&str, &str) -> Value,
            ),
            (Kind::StatefulSet, "secret", secret),
            (Kind::DaemonSet, "configmap", config_map),
        ] {
            scene.apply(&[build("app", "1")]).await?;
            let workload = Workload::new(kind, "web").without_pods();
            let workload = match of {
                "secret" => workload.lists_secrets("app").requires_secret("app"),
                _ => workload.lists("app").requires("app"),
            };
            let before = scene.create(&workload).await?;
            let object = format!("{of}/app");

            scene.delete(&object).await?;
            let note = scene.event(&workload, "MissingConfig").await?;
            assert!(note.to_lowercase().contains(&format!("{of} app")), "{note}");
            scene
                .shows("pod_reloader_missing_config_workloads", "1")
                .await?;
            scene.rolls_not(&workload, &before).await?;

            scene.apply(&[build("app", "1")]).await?;
            scene
                .shows("pod_reloader_missing_config_workloads", "0")
                .await?;
            scene.rolls_not(&workload, &before).await?;

            scene.delete(&object).await?;
            scene
                .shows("pod_reloader_missing_config_workloads", "1")
                .await?;
            scene.apply(&[build("app", "2")]).await?;
            scene.rolls_once(&workload, &before).await?;
            scene
                .shows("pod_reloader_missing_config_workloads", "0")
                .await?;
            scene.delete(&workload.reference()).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn while_something_that_pods_need_is_missing_none_is_restarted() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        while_a_required_object_is_missing_the_changes_of_others_wait_too(scene)
            .await
            .context("a required object")?;
        no_pod_is_restarted_without_an_untracked_object_that_it_needs(scene)
            .await
            .context("an untracked object")?;
        a_key_that_becomes_binary_rolls_only_pods_that_mount_it(scene)
            .await
            .context("a key that becomes binary")
    })
    .await
}

async fn while_a_required_object_is_missing_the_changes_of_others_wait_too(
    scene: &Scene,
) -> Result<()> {
    scene
        .apply(&[config_map("app", "1"), secret("other", "1")])
        .await?;
    let web = Workload::podless("waits")
        .lists("app")
        .lists_secrets("other")
        .requires("app");
    let before = scene.create(&web).await?;
    scene.delete("configmap/app").await?;
    scene.event(&web, "MissingConfig").await?;
    scene.apply(&[secret("other", "2")]).await?;
    scene.rolls_not(&web, &before).await?;
    scene.apply(&[config_map("app", "1")]).await?;
    scene.rolls_once(&web, &before).await.map(|_| ())
}

/// The kubelet takes variables from `data` alone, and files from `binaryData`, too.
async fn a_key_that_becomes_binary_rolls_only_pods_that_mount_it(scene: &Scene) -> Result<()> {
    let greetings = |map: &str, value: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greetings"},
            (map): {"greeting": value},
        })
    };
    scene.put_all(&[greetings("data", "hello")]).await?;
    let pod = ["spec", "template", "spec"];
    let container = [&pod[..], &["containers"]].concat();
    let from = json!({"configMapKeyRef": {"name": "greetings", "key": "greeting"}});
    let env = json!([{"name": "GREETING", "valueFrom": from}]);
    let variable = Workload::podless("variable").lists("greetings").with(
        &container,
        json!([{"name": "main", "image": "app:1", "env": env}]),
    );
    let mounts = json!([{"name": "app", "mountPath": "/etc/app"}]);
    let items = json!([{"key": "greeting", "path": "greeting"}]);
    let file = Workload::podless("file")
        .lists("greetings")
        .with(
            &container,
            json!([{"name": "main", "image": "app:1", "volumeMounts": mounts}]),
        )
        .with(
            &[&pod[..], &["volumes"]].concat(),
            json!([{"name": "app", "configMap": {"name": "greetings", "items": items}}]),
        );
    let before = [scene.create(&variable).await?, scene.create(&file).await?];
    scene.quiet().await?;

    scene
        .put_all(&[greetings("binaryData", "Z3L83w==")])
        .await?;
    scene.rolls_once(&file, &before[1]).await?;
    let note = scene.event(&variable, "MissingConfig").await?;
    ensure!(
        note.contains("key greeting of ConfigMap greetings") && note.contains("binaryData"),
        "{note}"
    );
    scene.rolls_not(&variable, &before[0]).await?;
    scene.put_all(&[greetings("data", "hallo")]).await?;
    scene.rolls_once(&variable, &before[0]).await.map(|_| ())
}

async fn no_pod_is_restarted_without_an_untracked_object_that_it_needs(
    scene: &Scene,
) -> Result<()> {
    scene
        .apply(&[config_map("plain", "1"), secret("creds", "1")])
        .await?;
    let web = Workload::podless("needs")
        .lists("plain")
        .requires_secret("creds");
    let before = scene.create(&web).await?;
    scene.delete("secret/creds").await?;
    scene.apply(&[config_map("plain", "2")]).await?;
    let note = scene.event(&web, "MissingConfig").await?;
    ensure!(note.contains("Secret creds"), "{note}");
    scene.rolls_not(&web, &before).await?;
    scene.apply(&[secret("creds", "2")]).await?;
    scene.rolls_once(&web, &before).await.map(|_| ())
}

async fn a_listed_object_that_comes_or_goes_rolls_once(scene: &Scene) -> Result<()> {
    scene.apply(&[secret("app", "1")]).await?;
    let workloads = every_kind("listed", |workload| {
        workload.lists("app").lists_secrets("app")
    });
    let mut before = created(scene, &workloads).await?;
    scene.apply(&[config_map("app", "1")]).await?;
    before = scene.each_rolls_once(&workloads, &before).await?;
    scene.delete("secret/app").await?;
    before = scene.each_rolls_once(&workloads, &before).await?;
    scene.apply(&[secret("app", "2")]).await?;
    before = scene.each_rolls_once(&workloads, &before).await?;
    scene.delete("configmap/app").await?;
    scene.each_rolls_once(&workloads, &before).await.map(|_| ())
}

#[tokio::test]
async fn a_workload_may_have_a_settle_period_of_its_own() -> Result<()> {
    Scene::play(Options::settling("1h"), async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let patient = Workload::podless("patient").lists("app");
        let hasty = Workload::podless("hasty")
            .lists("app")
            .annotated(SETTLE_PERIOD, "0s");
        let (patient_before, hasty_before) =
            (scene.create(&patient).await?, scene.create(&hasty).await?);

        scene.apply(&[config_map("app", "2")]).await?;
        scene.right(&hasty).await?;
        let after = scene.snapshot(&hasty).await?;
        assert_eq!(after.new_revisions(&hasty_before), 1);
        assert_eq!(scene.snapshot(&patient).await?, patient_before);

        let shorter = format!("{SETTLE_PERIOD}=0s");
        scene.annotate(&patient.reference(), &shorter).await?;
        scene.right(&patient).await?;
        let after = scene.snapshot(&patient).await?;
        assert_eq!(after.new_revisions(&patient_before), 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn ten_quick_changes_make_one_rollout_with_the_last_value() -> Result<()> {
    Scene::play(Options::settling("10s"), async |scene| {
        scene.apply(&[config_map("app", "0")]).await?;
        let workloads = every_kind("web", |workload| workload.lists("app"));
        let before = created(scene, &workloads).await?;
        let config_maps: Api<ConfigMap> = Api::namespaced(scene.client.clone(), &scene.namespace);
        for value in 1..=10 {
            let change = Patch::Merge(json!({"data": {"key": value.to_string()}}));
            config_maps
                .patch("app", &PatchParams::default(), &change)
                .await?;
        }
        scene.each_rolls_once(&workloads, &before).await.map(|_| ())
    })
    .await
}

/// How often it is restarted is asserted in the tests of the loop, with a clock that is paused.
#[tokio::test]
async fn an_object_that_never_rests_is_rolled_out_all_the_same() -> Result<()> {
    Scene::play(Options::settling("1s"), async |scene| {
        scene.apply(&[config_map("app", "0")]).await?;
        let web = Workload::podless("web").lists("app");
        let before = scene.create(&web).await?;
        let config_maps: Api<ConfigMap> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let params = PatchParams::default();
        let changes = async {
            let mut value = 0;
            loop {
                value += 1;
                let change = Patch::Merge(json!({"data": {"key": value.to_string()}}));
                if let Err(error) = config_maps.patch("app", &params, &change).await {
                    return error;
                }
            }
        };
        let rollout = scene.gets_another_key(&web, &before.key);
        tokio::select! {
            error = changes => return Err(error.into()),
            rolled = rollout => rolled?,
        }
        scene.right(&web).await
    })
    .await
}

#[tokio::test]
async fn a_change_that_waited_long_for_missing_config_still_settles() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        let configs = [config_map("app", "1"), config_map("clock", "1")];
        scene.apply(&configs).await?;
        scene.apply(&[secret("other", "1")]).await?;
        let web = Workload::podless("web")
            .lists("app")
            .lists_secrets("other")
            .requires("app")
            .annotated(SETTLE_PERIOD, "4s");
        // Longer than five settle periods of the other one.
        let clock = Workload::podless("clock").lists("clock");
        let clock = clock.annotated(SETTLE_PERIOD, "21s");
        let before = scene.create(&web).await?;
        let began = scene.create(&clock).await?.key;
        scene.quiet().await?;
        // The workload is about to be restarted, then its config is missing until the other one is restarted.
        let config_maps: Api<ConfigMap> = Api::namespaced(scene.client.clone(), &scene.namespace);
        scene.put_all(&[secret("other", "2")]).await?;
        config_maps
            .delete("app", &DeleteParams::default())
            .await
            .map(drop)?;
        scene.event(&web, "MissingConfig").await?;
        scene.put_all(&[config_map("clock", "2")]).await?;
        scene.gets_another_key(&clock, &began).await?;
        scene.rolls_not(&web, &before).await?;
        let mark = scene.mark().await?;
        let params = PostParams::default();
        let created: ConfigMap = serde_json::from_value(config_map("app", "2"))?;
        config_maps.create(&params, &created).await?;
        let change = async |value: u32| {
            let change = Patch::Merge(json!({"data": {"key": value.to_string()}}));
            config_maps
                .patch("app", &PatchParams::default(), &change)
                .await
        };
        // Some issuers create a Secret first and fill it later.
        wait_for("the operator to have read it", PATIENCE, async || {
            let requests = scene.requests(mark).await?;
            done_if(
                requests
                    .iter()
                    .any(|request| request.uri.ends_with("/configmaps/app")),
                "it has not",
            )
        })
        .await?;
        change(3).await?;
        scene.rolls_once(&web, &before).await.map(|_| ())
    })
    .await
}

async fn what_opts_out_or_is_ignored_is_left_alone_until_it_is_not_ignored_any_more(
    scene: &Scene,
) -> Result<()> {
    scene.apply(&[config_map("ignored", "0")]).await?;
    let opting_out = every_kind("opting-out", |workload| workload.lists("ignored"));
    let before = created(scene, &opting_out).await?;
    for (workload, before) in opting_out.iter().zip(&before) {
        assert!(before.key.is_some());
        let opt_out = format!("{CONFIG_MAPS}-");
        scene.annotate(&workload.reference(), &opt_out).await?;
    }

    scene.apply(&[config_map("ignored", "1")]).await?;
    let never = Workload::podless("never")
        .lists("ignored")
        .labelled(IGNORED, "true");
    let sometimes = Workload::podless("sometimes").lists("ignored");
    let falsely = Workload::podless("falsely")
        .lists("ignored")
        .labelled(IGNORED, "false");
    let never_before = scene.create(&never).await?;
    assert_eq!(never_before.key, None);
    let sometimes_before = scene.create(&sometimes).await?;
    let falsely_before = scene.create(&falsely).await?;

    let label = format!("{IGNORED}=true");
    scene.label(&sometimes.reference(), &label).await?;
    scene.apply(&[config_map("ignored", "2")]).await?;
    scene.rolls_once(&falsely, &falsely_before).await?;
    scene.rolls_not(&sometimes, &sometimes_before).await?;
    scene.rolls_not(&never, &never_before).await?;
    scene.each_rolls_not(&opting_out, &before).await?;

    let unlabel = format!("{IGNORED}-");
    scene.label(&sometimes.reference(), &unlabel).await?;
    scene.rolls_once(&sometimes, &sometimes_before).await?;
    Ok(())
}

async fn a_config_hash_on_the_metadata_of_the_workload_is_neither_obeyed_nor_touched(
    scene: &Scene,
) -> Result<()> {
    scene.apply(&[config_map("metadata", "1")]).await?;
    let workloads = every_kind("metadata", |workload| {
        workload.lists("metadata").annotated(CONFIG_HASH, "message")
    });
    let mut before = created(scene, &workloads).await?;
    for (workload, before) in workloads.iter().zip(&before) {
        let expected = scene.expected_key(workload).await?;
        assert_eq!(before.key, Some(expected), "set on create");
    }
    scene.apply(&[config_map("metadata", "2")]).await?;
    before = scene.each_rolls_once(&workloads, &before).await?;
    for workload in &workloads {
        let object = scene.object(&workload.reference()).await?;
        assert_eq!(object["metadata"]["annotations"][CONFIG_HASH], "message");
        let other = format!("{CONFIG_HASH}=other");
        scene.annotate(&workload.reference(), &other).await?;
    }
    scene.each_rolls_not(&workloads, &before).await?;
    for workload in &workloads {
        let object = scene.object(&workload.reference()).await?;
        assert_eq!(object["metadata"]["annotations"][CONFIG_HASH], "other");
    }
    Ok(())
}

async fn an_event_names_the_object_that_changed(scene: &Scene) -> Result<()> {
    scene
        .apply(&[
            config_map("told", "1"),
            config_map("other", "1"),
            secret("told", "1"),
        ])
        .await?;
    let workloads = every_kind("told", |workload| {
        workload.lists("told,other").lists_secrets("told")
    });
    let before = created(scene, &workloads).await?;
    // Objects that the operator sees for the first time are not reported as changed.
    scene.quiet().await?;
    scene.apply(&[secret("told", "2")]).await?;
    scene.each_rolls_once(&workloads, &before).await?;
    for workload in &workloads {
        let note = scene.event(workload, "ConfigChanged").await?;
        assert_eq!(note, "restarting pods: Secret told changed");
    }
    Ok(())
}

/// The way in which an operator ends.
#[derive(Clone, Copy, Debug)]
enum Ended {
    Asked,
    Killed,
}

impl Ended {
    async fn end(self, scene: &Scene) {
        match self {
            Self::Asked => scene.operator.stop().await,
            Self::Killed => scene.operator.process().kill().await,
        }
    }
}

/// Returns one workload of each kind, all with this name.
fn every_kind(name: &str, build: impl Fn(Workload) -> Workload) -> [Workload; 3] {
    Kind::ALL.map(|kind| build(Workload::new(kind, name).without_pods()))
}

async fn created(scene: &Scene, workloads: &[Workload]) -> Result<Vec<Snapshot>> {
    let manifests: Vec<_> = workloads.iter().map(Workload::manifest).collect();
    scene.apply(&manifests).await?;
    scene.snapshots(workloads).await
}

/// Returns the operator's writes to workloads of this name since `mark`.
async fn writes_to(scene: &Scene, mark: Mark, name: &str) -> Result<Vec<String>> {
    let requests = scene.requests(mark).await?;
    let writes = requests
        .into_iter()
        .filter(|request| request.verb == "patch" && request.name == name);
    Ok(writes.map(|request| request.uri).collect())
}

const SETTLE_PERIOD: &str = "pod-reloader.cs.sap.com/settle-period";
const IGNORED: &str = "pod-reloader.cs.sap.com/ignored";
