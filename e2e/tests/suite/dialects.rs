//! The annotations of other controllers, and where those differ from ours.

mod case;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams, PostParams};
use pod_reloader_e2e::workload::{
    BASELINE, CONFIG_HASH, CONFIG_MAPS, Kind, Workload, config_map, key_of, secret,
};
use pod_reloader_e2e::{Mark, Operator, Options, PATIENCE, Scene, Snapshot, dialects, wait_for};
use serde::Serialize;
use serde_json::{Value, json};

use self::case::{Case, created, each_rolls_where, taken_over};

#[tokio::test]
async fn every_dialect_is_taken_over_without_a_rollout_and_rolls_once_for_a_change() -> Result<()> {
    Scene::play(
        before_the_takeover(json!({"dialects": dialects()})),
        async |scene| {
            scene.apply(&config("1")).await?;
            mark(scene, "configmap/app", "reloader.stakater.com/match=true").await?;
            let cases: Vec<_> = opted_in().into_iter().map(|(_, case)| case).collect();
            let before = taken_over(scene, &cases).await?;
            let templates = templates(scene, &cases).await?;
            let restarted = scene.mark().await?;
            scene.operator.restart().await?;
            let before = each_rolls_where(scene, &cases, &before, |_| false).await?;
            let writes = writes(scene, restarted).await?;
            ensure!(writes.is_empty(), "after a restart: {writes:?}");

            scene.apply(&[config_map("app", "2")]).await?;
            let counts = |case: &Case| case.has_config_map("app");
            let before = each_rolls_where(scene, &cases, &before, counts).await?;
            scene.apply(&[secret("app", "2")]).await?;
            each_rolls_where(scene, &cases, &before, |case| case.has_secret("app")).await?;
            // Everything that others wrote is unchanged, and only the config hash is added.
            ensure!(self::templates(scene, &cases).await? == templates);
            Ok(())
        },
    )
    .await
}

#[tokio::test]
async fn a_workload_with_several_dialects_has_one_hash_and_one_rollout() -> Result<()> {
    let options = Options {
        settle_period: "3s",
        ..speaking(&dialects())
    };
    Scene::play(options, async |scene| {
        scene.apply(&config("1")).await?;
        let list = |name, app| {
            let workload = Workload::podless(name).annotated(app, "app");
            workload.annotated(STAKATER_RELOAD, "app,other")
        };
        let wave = list("wave-and-stakater", FABRIC8);
        let wave = wave.annotated("wave.pusher.com/update-on-config-change", "true");
        let cases = [
            Case::of(list("own-and-stakater", CONFIG_MAPS), "app,other", ""),
            Case::of(uses(wave, "other", "app"), "app,other", "app"),
        ];
        let before = created(scene, &cases).await?;
        for (case, before) in cases.iter().zip(&before) {
            ensure!(before.key == Some(case.hash(scene).await?), "set on create");
        }
        scene.apply(&[config_map("app", "2")]).await?;
        let before = each_rolls_where(scene, &cases, &before, |_| true).await?;
        scene.put_all(&config("3")).await?;
        each_rolls_where(scene, &cases, &before, |_| true).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_match_of_a_regular_expression_rolls_when_it_comes_changes_and_goes() -> Result<()> {
    Scene::play(speaking(&STAKATER), async |scene| {
        scene.apply(&[config_map("app-1", "1")]).await?;
        let web = Workload::podless("web").annotated(STAKATER_RELOAD, "app-.*");
        let web = Case::of(web, "app-1", "");
        let before = scene.create(&web.workload).await?;
        ensure!(before.key == Some(web.hash(scene).await?), "set on create");

        let both = web.counting("app-1,app-2");
        scene.apply(&[config_map("app-2", "1")]).await?;
        let before = both.rolls_once(scene, &before).await?;
        scene.apply(&[config_map("app-2", "2")]).await?;
        let before = both.rolls_once(scene, &before).await?;
        let others = [config_map("myapp-3", "1"), secret("app-3", "1")];
        scene.apply(&others).await?;
        both.rolls_not(scene, &before).await?;
        scene.delete("configmap/app-1").await?;
        let one = web.counting("app-2");
        one.rolls_once(scene, &before).await.map(drop)
    })
    .await
}

/// Stakater's Reloader writes its mark as soon as it sees the change, within our settle period.
#[tokio::test]
async fn while_the_other_controller_runs_a_change_makes_only_its_rollout() -> Result<()> {
    let options = Options {
        settle_period: "6s",
        ..before_the_takeover(json!({"dialects": STAKATER}))
    };
    Scene::play(options, async |scene| {
        scene.apply(&config("1")).await?;
        let cases = ["patched", "updated", "annotated"].map(|name| {
            let workload = Workload::podless(name).annotated(STAKATER_AUTO, "true");
            Case::of(uses(workload, "app", ""), "app", "")
        });
        let mut before = taken_over(scene, &cases).await?;
        for value in ["2", "3"] {
            let began = scene.mark().await?;
            scene.put_all(&[config_map("app", value)]).await?;
            let reload = async |case: &Case, before: &Snapshot| {
                let key = stakater_reloads(scene, &case.workload.name, value).await?;
                ensure!(key.is_some() && key != before.key, "{key:?}");
                ensure!(key == Some(case.hash(scene).await?), "{key:?}");
                anyhow::Ok(())
            };
            let reloads = cases.iter().zip(&before);
            try_join_all(reloads.map(|(case, before)| reload(case, before))).await?;
            before = each_rolls_where(scene, &cases, &before, |_| true).await?;
            let writes = writes(scene, began).await?;
            let of_ours = cases.iter().filter_map(|it| writes.get(&it.workload.name));
            ensure!(of_ours.count() == 0, "{writes:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn marks_on_config_objects_roll_nothing_and_decide_what_is_tracked_from_then_on() -> Result<()>
{
    Scene::play(speaking(&dialects()), async |scene| {
        scene.apply(&config("1")).await?;
        let stakater = Workload::podless("stakater").annotated(STAKATER_RELOAD, "app");
        let stackable = uses(
            Workload::new(Kind::StatefulSet, "stackable").without_pods(),
            "app",
            "app",
        );
        let stackable = stackable.labelled("restarter.stackable.tech/enabled", "true");
        let bystander = Workload::podless("bystander").lists("app");
        let cases = [
            Case::of(stakater, "app", ""),
            Case::of(stackable, "app", "app"),
            Case::of(bystander, "app", ""),
        ];
        let [stakater, stackable, bystander] = &cases;
        let marked = [
            stakater.counting(""),
            stackable.counting(""),
            bystander.clone(),
        ];
        let each_is_marked = async |mark: &str| {
            for key in [
                "reloader.stakater.com/ignore",
                "restarter.stackable.tech/ignore",
            ] {
                self::mark(scene, "configmap/app", &format!("{key}{mark}")).await?;
            }
            anyhow::Ok(())
        };
        let before = created(scene, &cases).await?;
        each_is_marked("=true").await?;
        for (case, before) in marked.iter().zip(&before).take(2) {
            case.has_baseline(scene, &otherwise(before)?).await?;
        }
        let before = each_rolls_where(scene, &marked, &before, |_| false).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let counts = |case: &Case| case.workload.name == "bystander";
        let before = each_rolls_where(scene, &marked, &before, counts).await?;

        each_is_marked("-").await?;
        for (case, before) in cases.iter().zip(&before).take(2) {
            case.has_baseline(scene, &otherwise(before)?).await?;
        }
        let before = each_rolls_where(scene, &cases, &before, |_| false).await?;
        scene.apply(&[config_map("app", "3")]).await?;
        each_rolls_where(scene, &cases, &before, |_| true).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn labels_of_config_objects_roll_nothing_and_decide_what_is_tracked_afterwards() -> Result<()>
{
    let options = Options::with_values(json!({"resourceLabelSelector": "!hidden"}));
    Scene::play(options, async |scene| {
        scene.apply(&config("1")).await?;
        let lists = |name, list| Workload::podless(name).lists(list);
        let cases = [
            Case::of(lists("both", "app,other"), "app,other", ""),
            Case::of(lists("alone", "app"), "app", ""),
        ];
        let hidden = [cases[0].counting("other"), cases[1].counting("")];
        let before = created(scene, &cases).await?;
        scene.label("configmap/app", "hidden=yes").await?;
        for (case, before) in hidden.iter().zip(&before) {
            case.has_baseline(scene, &otherwise(before)?).await?;
        }
        scene.apply(&[config_map("app", "2")]).await?;
        let before = each_rolls_where(scene, &hidden, &before, |_| false).await?;
        scene.label("configmap/app", "hidden-").await?;
        for (case, before) in cases.iter().zip(&before) {
            case.has_baseline(scene, &otherwise(before)?).await?;
        }
        let before = each_rolls_where(scene, &cases, &before, |_| false).await?;
        scene.apply(&[config_map("app", "3")]).await?;
        each_rolls_where(scene, &cases, &before, |_| true).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_dialect_that_is_switched_on_rolls_nothing_and_applies_from_then_on() -> Result<()> {
    Scene::play(Options::released(), async |scene| {
        scene.apply(&config("1")).await?;
        let web = Workload::podless("web").lists("app");
        let own = Case::of(web.annotated(STAKATER_RELOAD, "other"), "app", "");
        let before = scene.create(&own.workload).await?;
        ensure!(before.key == Some(own.hash(scene).await?), "set on create");
        scene.apply(&[config_map("other", "2")]).await?;
        own.rolls_not(scene, &before).await?;

        let operator = upgraded(scene, json!({"dialects": STAKATER})).await?;
        let both = own.counting("app,other");
        both.has_baseline(scene, &otherwise(&before)?).await?;
        both.rolls_not(scene, &before).await?;
        scene.apply(&[config_map("other", "3")]).await?;
        let before = both.rolls_once(scene, &before).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        both.rolls_once(scene, &before).await?;
        operator.stop().await;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pause_period_is_a_settle_period_and_pauses_nothing() -> Result<()> {
    Scene::play(speaking(&STAKATER), async |scene| {
        const PAUSE_PERIOD: &str = "deployment.reloader.stakater.com/pause-period";
        scene.apply(&config("1")).await?;
        let pauses = |kind, name| {
            let workload = Workload::new(kind, name)
                .without_pods()
                .annotated(STAKATER_RELOAD, "app");
            Case::of(workload.annotated(PAUSE_PERIOD, "1h"), "app", "")
        };
        let hasty = pauses(Kind::StatefulSet, "hasty");
        let paused = pauses(Kind::Deployment, "paused");
        let (before_hasty, before) = (
            scene.create(&hasty.workload).await?,
            scene.create(&paused.workload).await?,
        );
        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let before_hasty = hasty.rolls_once(scene, &before_hasty).await?;
        paused.rolls_not(scene, &before).await?;
        scene.apply(&[config_map("app", "3")]).await?;
        hasty.rolls_once(scene, &before_hasty).await?;
        paused.rolls_not(scene, &before).await?;

        let shorter = format!("{PAUSE_PERIOD}=1s");
        scene.annotate("deployment/paused", &shorter).await?;
        paused.rolls_once(scene, &before).await?;
        let object = scene.object("deployment/paused").await?;
        ensure!(object["spec"]["paused"].is_null(), "{object}");
        let writes = writes(scene, mark).await?;
        let of_paused = writes.get("paused").context("no write")?;
        ensure!(!of_paused.contains("/paused"), "{of_paused}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn no_secret_is_read_where_secrets_are_ignored() -> Result<()> {
    let options = Options::with_values(json!({"dialects": dialects(), "ignoreSecrets": true}));
    Scene::play(options, async |scene| {
        scene.apply(&config("1")).await?;
        let mark = scene.mark().await?;
        let own = Workload::podless("own").annotated(AUTO, "true");
        let listed = Workload::podless("listed").lists_secrets("app");
        let cases = [
            Case::of(uses(own, "app", "app"), "app", ""),
            Case::of(listed.lists("app"), "app", ""),
        ];
        let before = created(scene, &cases).await?;
        for (case, before) in cases.iter().zip(&before) {
            ensure!(before.key == Some(case.hash(scene).await?), "set on create");
        }
        // `Scene::quiet` would wait for a Secret.
        scene.apply(&[secret("app", "2")]).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        for (case, before) in cases.iter().zip(&before) {
            case.right(scene).await?;
            let after = scene.snapshot(&case.workload).await?;
            ensure!(after.new_revisions(before) == 1, "{before:?}, {after:?}");
        }
        let requests = scene.requests(mark).await?;
        let of_secrets = requests.iter().filter(|it| it.resource == "secrets");
        let reads: Vec<_> = of_secrets.filter(|it| it.verb == "get").collect();
        ensure!(reads.is_empty(), "{reads:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn workloads_in_namespaces_to_ignore_are_left_alone() -> Result<()> {
    Scene::play(Options::released(), async |scene| {
        let test = async |ignored: &str| in_an_ignored_namespace(scene, ignored).await;
        scene.with_namespace("ignored", test).await
    })
    .await
}

async fn in_an_ignored_namespace(scene: &Scene, ignored: &str) -> Result<()> {
    let operator = upgraded(
        scene,
        json!({
            "dialects": STAKATER,
            "ignoreNamespaces": [ignored],
            "watch": {"namespaces": [scene.namespace, ignored]},
        }),
    )
    .await?;
    let kept = Workload::podless("web").annotated(STAKATER_RELOAD, "app");
    let kept = Case::of(kept.lists("app"), "app", "");
    let before = scene.create(&kept.workload).await?;
    let there = ["--namespace", ignored, "apply", "--filename=-"];
    let apply = async |object: Value| {
        let object = object.to_string();
        scene.tool().run_with_input(&there, &object).await
    };
    apply(config_map("app", "1")).await?;
    apply(kept.workload.manifest()).await?;
    let before_there = scene.snapshot_in(ignored, &kept.workload).await?;
    ensure!(before_there.key.is_none(), "{before_there:?}");
    let mark = scene.mark().await?;
    apply(config_map("app", "2")).await?;
    scene.apply(&[config_map("app", "2")]).await?;
    kept.rolls_once(scene, &before).await?;
    let after = scene.snapshot_in(ignored, &kept.workload).await?;
    ensure!(after == before_there, "{before_there:?}, {after:?}");
    let object = scene.object_in(ignored, "deployment/web").await?;
    ensure!(
        object["metadata"]["annotations"][BASELINE].is_null(),
        "{object}"
    );
    let requests = scene.requests(mark).await?;
    let asked = requests
        .iter()
        .find(|it| it.namespace == ignored && it.verb != "watch");
    ensure!(asked.is_none(), "{asked:?}");
    operator.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_match_beyond_256_objects_is_reported() -> Result<()> {
    Scene::play(speaking(&STAKATER), async |scene| {
        let matches = ["z-1", "z-2"].map(|name| config_map(name, "1"));
        scene.put_all(&matches).await?;
        let web = Workload::deployment("web").without_pods();
        scene.create(&web).await?;
        // Names come before matches, and leave room for one of them.
        let names: Vec<_> = (0..255).map(|index| format!("a{index:03}")).collect();
        let subscribe = format!("{STAKATER_RELOAD}={},z-.*", names.join(","));
        scene.annotate("deployment/web", &subscribe).await?;
        let note = scene.event(&web, "InvalidReference").await?;
        ensure!(note.contains("ConfigMap z-2 is left out"), "{note}");
        Ok(())
    })
    .await
}

/// Returns the pod templates without the config hash.
async fn templates(scene: &Scene, cases: &[Case]) -> Result<Vec<Value>> {
    let template = async |case: &Case| {
        let mut object = scene.object(&case.workload.reference()).await?;
        let mut template = object["spec"]["template"].take();
        if let Some(annotations) = template["metadata"]["annotations"].as_object_mut() {
            annotations.remove(CONFIG_HASH);
        }
        if template["metadata"]["annotations"] == json!({}) {
            template["metadata"]["annotations"] = Value::Null;
        }
        anyhow::Ok(template)
    };
    try_join_all(cases.iter().map(template)).await
}

/// Returns what the operator has written to workloads since `mark`, by name.
async fn writes(scene: &Scene, mark: Mark) -> Result<BTreeMap<String, String>> {
    let requests = scene.requests(mark).await?;
    let writes = requests
        .into_iter()
        .filter(|it| it.verb == "patch" && it.name != "sentinel");
    let body = |body: Option<Value>| body.unwrap_or_default().to_string();
    Ok(writes
        .map(|it| (it.name, body(it.request_object)))
        .collect())
}

/// Returns the prefix of a baseline for a config hash that can be verified.
fn otherwise(snapshot: &Snapshot) -> Result<String> {
    Ok(format!(
        "{}~",
        snapshot.key.as_deref().context("no CONFIG_HASH")?
    ))
}

/// Sets or removes an annotation or label of a config object, in kubectl's syntax.
async fn mark(scene: &Scene, object: &str, mark: &str) -> Result<()> {
    match mark.starts_with("restarter.stackable.tech/") {
        true => scene.label(object, mark).await,
        false => scene.annotate(object, mark).await,
    }
}

/// Does what Stakater's Reloader does to a Deployment when its config has changed, in the way that it uses
/// for workloads of this name. Returns the config hash of the answer.
async fn stakater_reloads(scene: &Scene, name: &str, hash: &str) -> Result<Option<String>> {
    const MANAGER: &str = "Reloader";
    let api: Api<Deployment> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let env = json!([{"name": "STAKATER_APP_CONFIGMAP", "value": hash}]);
    let patch = match name {
        "patched" => json!({"spec": {"containers": [{"name": "main", "env": env}]}}),
        _ => json!({"metadata": {"annotations": {LAST_RELOADED_FROM: hash}}}),
    };
    let written = if name == "updated" {
        wait_for("an update without a conflict", PATIENCE, async || {
            let mut object = serde_json::to_value(api.get(name).await?)?;
            object["spec"]["template"]["spec"]["containers"][0]["env"] = env.clone();
            let params = PostParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PostParams::default()
            };
            let object = serde_json::from_value(object)?;
            Ok(api.replace(name, &params, &object).await.into())
        })
        .await?
    } else {
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Strategic(json!({"spec": {"template": patch}}));
        api.patch(name, &params, &patch).await?
    };
    Ok(key_of(&serde_json::to_value(written)?))
}

/// Replaces the operator by one from the chart with these values.
async fn upgraded(scene: &Scene, values: Value) -> Result<Operator> {
    let options = Options::with_values(values);
    scene.operator.stop().await;
    let mut installation = scene.installation.clone();
    let values = options.values(&scene.namespace);
    installation.upgrade(&values).await?;
    let directory = scene.directory();
    scene.start_replica(&installation, directory, &[]).await
}

fn speaking(dialects: &[impl Serialize]) -> Options {
    Options::with_values(json!({"dialects": dialects}))
}

/// Returns options without a running operator, and with a webhook that is not in the way.
fn before_the_takeover(values: Value) -> Options {
    Options {
        failure_policy: "Ignore",
        running: false,
        values,
        ..Options::default()
    }
}

/// Returns ConfigMaps `app` and `other`, and Secret `app`.
fn config(value: &str) -> [Value; 3] {
    [
        config_map("app", value),
        config_map("other", value),
        secret("app", value),
    ]
}

/// Makes a workload take all of a ConfigMap and of a Secret as environment, if they are named.
fn uses(workload: Workload, config_map: &str, secret: &str) -> Workload {
    let container = ["spec", "template", "spec", "containers"];
    let config_map = json!({"configMapRef": {"name": config_map}});
    let all = match secret {
        "" => vec![config_map],
        secret => vec![config_map, json!({"secretRef": {"name": secret}})],
    };
    let all = json!([{"name": "main", "image": "app:1", "envFrom": all}]);
    workload.with(&container, all)
}

/// Makes a workload mount a ConfigMap.
fn mounts(workload: Workload, config_map: &str) -> Workload {
    let spec = |member| ["spec", "template", "spec", member];
    let volume = json!({"name": "config", "configMap": {"name": config_map}});
    let mount = json!({"name": "config", "mountPath": "/config"});
    let main = json!({"name": "main", "image": "app:1", "volumeMounts": [mount]});
    let workload = workload.with(&spec("volumes"), json!([volume]));
    workload.with(&spec("containers"), json!([main]))
}

/// Returns workloads that opt in, at least one for each dialect of others, with the name of that dialect.
pub(crate) fn opted_in_by_others() -> impl Iterator<Item = (&'static str, Workload)> {
    let all = opted_in().into_iter();
    all.map(|(dialect, case)| (dialect, case.workload))
}

/// Returns the same workloads with what they track, and with traces of their controllers. They use ConfigMap `app`, which
/// is marked for `match`, and Secret `app`.
fn opted_in() -> Vec<(&'static str, Case)> {
    let all = |kind, name| uses(Workload::new(kind, name).without_pods(), "app", "app");
    let of_template = |workload: Workload, key, value: &str| {
        let path = ["spec", "template", "metadata", "annotations", key];
        workload.with(&path, json!(value))
    };
    let reloaded = |workload| of_template(workload, LAST_RELOADED_FROM, RELOADED_FROM);
    let auto = all(Kind::DaemonSet, "stakater-kind").annotated(STAKATER_AUTO, "1");
    let search = all(Kind::Deployment, "search").annotated(STAKATER_SEARCH, "true");
    let lists = Workload::podless("lists").annotated(STAKATER_RELOAD, "app,other");
    let wave = mounts(Workload::podless("wave"), "app")
        .annotated("wave.pusher.com/update-on-config-change", "true")
        .annotated("wave.pusher.com/extra-secrets", "app");
    let wave = of_template(wave, "wave.pusher.com/config-hash", "0");
    let stackable = all(Kind::StatefulSet, "stackable");
    let stackable = stackable.labelled("restarter.stackable.tech/enabled", "true");
    let stackable = of_template(stackable, "configmap.restarter.stackable.tech/app", "uid/1");
    let trigger = Workload::podless("trigger").annotated(TRIGGER, "app,other");
    let trigger = trigger.annotated("trigger.k8s.io/triggering-secrets", "app");
    let trigger = of_template(trigger, "trigger.k8s.io/configMap-app-last-hash", "0");
    let fabric8 = all(Kind::Deployment, "fabric8").annotated(FABRIC8, "app");
    let env = json!([{"name": "FABRIC8_APP_CONFIGMAP", "value": "0123456789abcdef"}]);
    let fabric8 = with_env(fabric8, env);
    let item = all(Kind::StatefulSet, "item").annotated(AUTO_RESTART, "true");
    let infisical = all(Kind::Deployment, "infisical").annotated(AUTO_RELOAD, "true");
    let cases = [
        ("stakater", Case::of(reloaded(auto), "app", "app")),
        ("stakater", Case::of(search, "app", "")),
        ("stakater", Case::of(reloaded(lists), "app,other", "")),
        ("wave", Case::of(wave, "app", "app")),
        ("stackable", Case::of(stackable, "app", "app")),
        ("trigger-controller", Case::of(trigger, "app,other", "app")),
        ("fabric8", Case::of(fabric8, "app", "")),
        ("onepassword", Case::of(item, "", "app")),
        // Infisical's own operator restarts it.
        ("infisical", Case::of(infisical, "", "")),
    ];
    for dialect in dialects() {
        let is_of_it = |(own, _): &(&str, Case)| *own == dialect;
        let has_case = cases.iter().any(is_of_it);
        assert!(has_case || dialect == OURS, "{dialect} has no workload");
    }
    cases.into()
}

/// Adds variables to the container of a workload.
fn with_env(workload: Workload, env: Value) -> Workload {
    let path = ["spec", "template", "spec", "containers"];
    let mut containers = workload.manifest()["spec"]["template"]["spec"]["containers"].take();
    containers[0]["env"] = env;
    workload.with(&path, containers)
}

const OURS: &str = "pod-reloader";
const STAKATER: [&str; 2] = [OURS, "stakater"];
const AUTO: &str = "pod-reloader.cs.sap.com/auto";
const STAKATER_AUTO: &str = "reloader.stakater.com/auto";
const STAKATER_SEARCH: &str = "reloader.stakater.com/search";
const STAKATER_RELOAD: &str = "configmap.reloader.stakater.com/reload";
const TRIGGER: &str = "trigger.k8s.io/triggering-configMaps";
const FABRIC8: &str = "configmap.fabric8.io/update-on-change";
const AUTO_RELOAD: &str = "secrets.infisical.com/auto-reload";
const AUTO_RESTART: &str = "operator.1password.io/auto-restart";
const LAST_RELOADED_FROM: &str = "reloader.stakater.com/last-reloaded-from";
/// Value that Stakater's Reloader writes into a pod template.
const RELOADED_FROM: &str = r#"{"type":"CONFIGMAP","name":"app","namespace":"shop","hash":"0","containerRefs":["main"],"observedAt":1}"#;
