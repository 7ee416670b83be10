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
            let cases = opted_in_in_each_dialect();
            let before = taken_over(scene, &cases).await?;
            let templates = templates(scene, &cases).await?;
            let restarted = scene.mark().await?;
            scene.operator.stop().await;
            scene.operator.start_again().await?;
            let before = each_rolls_where(scene, &cases, &before, |_| false).await?;
            let writes = writes(scene, restarted).await?;
            ensure!(writes.is_empty(), "after a restart: {writes:?}");

            let mut before = before;
            for (changed, counts) in [
                (config_map("app", "2"), Case::has_config_map as Counts),
                (secret("app", "2"), Case::has_secret),
            ] {
                scene.apply(&[changed]).await?;
                before =
                    each_rolls_where(scene, &cases, &before, |case| counts(case, "app")).await?;
            }
            scene.apply(&[config_map("other", "2")]).await?;
            let counts = |case: &Case| case.has_config_map("other");
            each_rolls_where(scene, &cases, &before, counts).await?;
            // Everything that others wrote is unchanged, and only the config hash is added.
            ensure!(self::templates(scene, &cases).await? == templates);
            Ok(())
        },
    )
    .await
}

#[tokio::test]
async fn every_workload_that_does_not_opt_out_is_taken_over_with_auto_reload_all() -> Result<()> {
    let values = json!({"dialects": ["pod-reloader", "stakater"], "autoReloadAll": true});
    Scene::play(before_the_takeover(values), async |scene| {
        scene.apply(&config("1")).await?;
        let uses_both = |name| uses(Workload::deployment(name), "app", "app");
        let says = |name, key, value| uses_both(name).annotated(key, value);
        let cases = [
            Case::of(uses_both("silent"), "app", "app"),
            Case::of(says("stakater-empty", STAKATER_AUTO, ""), "app", "app"),
            Case::of(
                says("stakater-search", STAKATER_SEARCH, "true"),
                "app",
                "app",
            ),
            Case::of(
                says("stakater-typed", STAKATER_CONFIG_MAP_AUTO, "no"),
                "",
                "app",
            ),
            Case::of(says("stakater-out", STAKATER_AUTO, "yes"), "", ""),
            Case::of(says("out", AUTO, "false"), "", ""),
            Case::of(says("out-in-part", AUTO, "secrets").stamped("x"), "", "app"),
        ];
        let before = taken_over(scene, &cases).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let counts = |case: &Case| case.has_config_map("app");
        let before = each_rolls_where(scene, &cases, &before, counts).await?;
        scene.apply(&[secret("app", "2")]).await?;
        each_rolls_where(scene, &cases, &before, |case| case.has_secret("app")).await?;
        Ok(())
    })
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
            let workload = Workload::deployment(name).annotated(app, "app");
            workload.annotated(STAKATER_RELOAD, "app,other")
        };
        let gate = |workload: Workload| {
            let gate = workload.annotated("wave.pusher.com/update-on-config-change", "true");
            uses(gate, "other", "app")
        };
        let cases = [
            Case::of(list("own-and-stakater", CONFIG_MAPS), "app,other", ""),
            Case::of(list("trigger-and-stakater", TRIGGER), "app,other", ""),
            Case::of(gate(list("wave-and-stakater", FABRIC8)), "app,other", "app"),
        ];
        let before = created(scene, &cases).await?;
        for (case, before) in cases.iter().zip(&before) {
            ensure!(before.key == Some(case.hash(scene).await?), "set on create");
        }
        scene.apply(&[config_map("app", "2")]).await?;
        let before = each_rolls_where(scene, &cases, &before, |_| true).await?;
        scene.apply(&[config_map("other", "2")]).await?;
        let before = each_rolls_where(scene, &cases, &before, |_| true).await?;
        scene.apply(&[secret("app", "2")]).await?;
        let counts = |case: &Case| case.has_secret("app");
        let before = each_rolls_where(scene, &cases, &before, counts).await?;
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
        let lists = |name| Workload::deployment(name).annotated(STAKATER_RELOAD, "app-.*");
        let mark = scene.mark().await?;
        let late = Workload::deployment("late");
        let [mut web, mut late] = [lists("web"), late].map(|it| Case::of(it, "app-1", ""));
        let before = scene.create(&web.workload).await?;
        ensure!(before.key == Some(web.hash(scene).await?), "set on create");
        let before_late = scene.create(&late.workload).await?;
        ensure!(before_late.key.is_none(), "{before_late:?}");
        let subscribe = format!("{STAKATER_RELOAD}=app-.*");
        let subscribe = ["annotate", &late.workload.reference(), &subscribe];
        scene.kubectl(&subscribe).await?;
        late.has_baseline(scene, "").await?;
        web.rolls_not(scene, &before).await?;
        late.rolls_not(scene, &before_late).await?;
        let written = writes(scene, mark).await?;
        ensure!(!written.contains_key("web"), "{written:?}");

        let mut before = vec![before, before_late];
        for (config_maps, change) in [
            ("app-1,app-2", config_map("app-2", "1")),
            ("app-1,app-2", config_map("app-2", "2")),
        ] {
            scene.apply(&[change]).await?;
            (web, late) = (web.counting(config_maps), late.counting(config_maps));
            let both = [web.clone(), late.clone()];
            before = each_rolls_where(scene, &both, &before, |_| true).await?;
        }
        let others = ["app", "myapp-3", "xapp-3"].map(|name| config_map(name, "1"));
        scene.apply(&others).await?;
        scene.apply(&[secret("app-3", "1")]).await?;
        let both = [web.counting("app-1,app-2"), late.counting("app-1,app-2")];
        each_rolls_where(scene, &both, &before, |_| false).await?;
        for (gone, config_maps) in [("app-1", "app-2"), ("app-2", "")] {
            scene.kubectl(&["delete", "configmap", gone]).await?;
            let both = both.clone().map(|case| case.counting(config_maps));
            before = each_rolls_where(scene, &both, &before, |_| true).await?;
        }
        scene.apply(&[config_map("app-4", "1")]).await?;
        let both = both.map(|case| case.counting("app-4"));
        each_rolls_where(scene, &both, &before, |_| true).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_match_that_the_pods_need_is_waited_for_while_it_is_gone() -> Result<()> {
    Scene::play(speaking(&STAKATER), async |scene| {
        let matches = ["app-1", "app-2"].map(|name| config_map(name, "1"));
        scene.apply(&matches).await?;
        let web = Workload::deployment("web").annotated(STAKATER_RELOAD, "app-.*");
        let web = Case::of(web.requires("app-1"), "app-1,app-2", "");
        let before = scene.create(&web.workload).await?;
        scene.kubectl(&["delete", "configmap", "app-1"]).await?;
        let note = scene.event(&web.workload, "MissingConfig").await?;
        ensure!(note.contains("ConfigMap app-1"), "{note}");
        scene.apply(&[config_map("app-2", "2")]).await?;
        web.rolls_not(scene, &before).await?;
        scene.apply(&[config_map("app-1", "1")]).await?;
        web.rolls_once(scene, &before).await.map(drop)
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
            let workload = Workload::deployment(name).annotated(STAKATER_AUTO, "true");
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
        let stakater = |name, key, value| {
            let workload = Workload::deployment(name).annotated(key, value);
            uses(workload, "app", "")
        };
        let alone = stakater("alone", STAKATER_RELOAD, "app");
        let auto = stakater("auto", STAKATER_AUTO, "true").annotated(STAKATER_RELOAD, "other");
        let own = stakater("own", CONFIG_MAPS, "app");
        let stackable = uses(Workload::new(Kind::StatefulSet, "stackable"), "app", "app");
        let stackable = stackable.labelled("restarter.stackable.tech/enabled", "true");
        for (mark, cases) in [
            (
                "reloader.stakater.com/ignore",
                &[Case::of(alone, "app", ""), Case::of(auto, "app,other", "")][..],
            ),
            (
                "restarter.stackable.tech/ignore",
                &[Case::of(stackable, "app", "app")],
            ),
        ] {
            let bystander = [Case::of(own.clone(), "app", "")];
            let cases = [cases, &bystander].concat();
            ignored_and_back(scene, mark, &cases).await?;
        }
        Ok(())
    })
    .await
}

/// Asserts that a mark on ConfigMap `app`, which all these cases track, restarts nothing. A change while it
/// is marked restarts only the last case, and a change after the mark is gone restarts all.
async fn ignored_and_back(scene: &Scene, ignore: &str, cases: &[Case]) -> Result<()> {
    let without_app = |case: &Case| {
        let rest = case.config_maps.split(',').filter(|name| *name != "app");
        case.counting(&rest.collect::<Vec<_>>().join(","))
    };
    let (bystander, marked) = cases.split_last().context("no cases")?;
    let ignored: Vec<_> = marked.iter().map(without_app).collect();
    let with_bystander = |cases: &[Case]| [cases, std::slice::from_ref(bystander)].concat();
    let before = created(scene, cases).await?;
    mark(scene, "configmap/app", &format!("{ignore}=true")).await?;
    for (case, before) in ignored.iter().zip(&before) {
        case.has_baseline(scene, &otherwise(before)?).await?;
    }
    let before = each_rolls_where(scene, &with_bystander(&ignored), &before, |_| false).await?;

    scene.apply(&[config_map("app", "while ignored")]).await?;
    let counts = |case: &Case| case.workload.name == bystander.workload.name;
    let before = each_rolls_where(scene, &with_bystander(&ignored), &before, counts).await?;
    mark(scene, "configmap/app", &format!("{ignore}-")).await?;
    for (case, before) in marked.iter().zip(&before) {
        case.has_baseline(scene, &otherwise(before)?).await?;
    }
    let before = each_rolls_where(scene, cases, &before, |_| false).await?;
    scene.apply(&[config_map("app", ignore)]).await?;
    each_rolls_where(scene, cases, &before, |_| true).await?;
    let delete = cases.iter().map(|case| case.workload.reference());
    let delete: Vec<_> = delete.collect();
    let delete: Vec<_> = ["delete"]
        .into_iter()
        .chain(delete.iter().map(|it| &**it))
        .collect();
    scene.kubectl(&delete).await.map(drop)
}

#[tokio::test]
async fn labels_of_config_objects_roll_nothing_and_decide_what_is_tracked_afterwards() -> Result<()>
{
    let options = Options {
        values: json!({"dialects": STAKATER, "resourceLabelSelector": "!hidden"}),
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.apply(&config("1")).await?;
        let lists = |name, key| Workload::deployment(name).annotated(key, "app,other");
        let alone = Workload::deployment("alone").lists("app");
        let cases = [
            Case::of(lists("own", CONFIG_MAPS), "app,other", ""),
            Case::of(lists("stakater", STAKATER_RELOAD), "app,other", ""),
            Case::of(alone, "app", ""),
        ];
        let hidden = [
            cases[0].counting("other"),
            cases[1].counting("other"),
            cases[2].counting(""),
        ];
        let before = created(scene, &cases).await?;
        scene
            .kubectl(&["label", "configmap", "app", "hidden=yes"])
            .await?;
        for (case, before) in hidden.iter().zip(&before) {
            case.has_baseline(scene, &otherwise(before)?).await?;
        }
        scene.apply(&[config_map("app", "2")]).await?;
        let before = each_rolls_where(scene, &hidden, &before, |_| false).await?;
        scene
            .kubectl(&["label", "configmap", "app", "hidden-"])
            .await?;
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
async fn objects_that_say_match_are_tracked_by_workloads_that_search() -> Result<()> {
    Scene::play(speaking(&STAKATER), async |scene| {
        scene.apply(&config("1")).await?;
        let search = Workload::deployment("web").annotated(STAKATER_SEARCH, "true");
        let matched = Case::of(uses(search, "app", ""), "app", "");
        let unmatched = matched.counting("");
        let before = scene.create(&matched.workload).await?;
        scene.apply(&[config_map("app", "2")]).await?;
        unmatched.rolls_not(scene, &before).await?;
        mark(scene, "configmap/app", "reloader.stakater.com/match=true").await?;
        let of = before
            .key
            .as_ref()
            .map(|_| otherwise(&before))
            .transpose()?;
        let of = of.unwrap_or_default();
        matched.has_baseline(scene, &of).await?;
        matched.rolls_not(scene, &before).await?;
        scene.apply(&[config_map("app", "3")]).await?;
        let before = matched.rolls_once(scene, &before).await?;
        mark(scene, "configmap/app", "reloader.stakater.com/match-").await?;
        unmatched.has_baseline(scene, &otherwise(&before)?).await?;
        scene.apply(&[config_map("app", "4")]).await?;
        unmatched.rolls_not(scene, &before).await
    })
    .await
}

#[tokio::test]
async fn a_dialect_that_is_switched_on_rolls_nothing_and_applies_from_then_on() -> Result<()> {
    Scene::play(Options::released(), async |scene| {
        scene.apply(&config("1")).await?;
        let web = Workload::deployment("web").lists("app");
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
            let workload = Workload::new(kind, name).annotated(STAKATER_RELOAD, "app");
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
        let shorter = ["annotate", "--overwrite", "deployment/paused", &shorter];
        scene.kubectl(&shorter).await?;
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
    let options = Options {
        values: json!({"dialects": dialects(), "ignoreSecrets": true}),
        ..Options::default()
    };
    Scene::play(options, async |scene| {
        scene.apply(&config("1")).await?;
        let mark = scene.mark().await?;
        let auto = |name, key| {
            let workload = Workload::deployment(name).annotated(key, "true");
            Case::of(uses(workload, "app", "app"), "app", "")
        };
        let listed = Workload::deployment("listed")
            .lists_secrets("app")
            .lists("app");
        let cases = [
            auto("own", AUTO),
            auto("stakater", STAKATER_AUTO),
            auto("wave", "wave.pusher.com/update-on-config-change"),
            Case::of(listed, "app", ""),
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
    let kept = Workload::deployment("web").annotated(STAKATER_RELOAD, "app");
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
async fn a_bad_regular_expression_is_reported_and_the_other_items_are_tracked() -> Result<()> {
    Scene::play(speaking(&STAKATER), async |scene| {
        scene
            .apply(&[config_map("app-1", "1"), config_map("other", "1")])
            .await?;
        let web = Workload::deployment("web").annotated(STAKATER_RELOAD, "app-(,app-.,other");
        let manifest = web.manifest().to_string();
        let create = ["create", "--filename=-"];
        let created = scene.kubectl_output(&create, &manifest).await?;
        let told = "\"app-(\" is not a valid regular expression";
        ensure!(created.stderr.contains(told), "{}", created.stderr);
        let note = scene.event(&web, "InvalidReference").await?;
        ensure!(note.contains(told), "{note}");
        let web = Case::of(web, "app-1,other", "");
        let mut before = scene.snapshot(&web.workload).await?;
        for name in ["app-1", "other"] {
            scene.apply(&[config_map(name, "2")]).await?;
            before = web.rolls_once(scene, &before).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_first_256_of_three_hundred_matches_are_tracked() -> Result<()> {
    Scene::play(speaking(&STAKATER), async |scene| {
        // These names sort before those that others put into the namespace.
        let name = |index| format!("a{index:03}");
        let all: Vec<_> = (0..300)
            .map(|index| config_map(&name(index), "1"))
            .collect();
        scene.put_all(&all).await?;
        let names: Vec<_> = (0..256).map(name).collect();
        let web = Case::of(Workload::deployment("web"), &names.join(","), "");
        let before = scene.create(&web.workload).await?;
        let subscribe = format!("{STAKATER_RELOAD}=.*");
        scene
            .kubectl(&["annotate", "deployment/web", &subscribe])
            .await?;
        let note = scene.event(&web.workload, "InvalidReference").await?;
        ensure!(note.contains("ConfigMap a256 is left out"), "{note}");
        web.has_baseline(scene, "").await?;
        scene.put_all(&[config_map("a256", "2")]).await?;
        web.rolls_not(scene, &before).await?;
        scene.put_all(&[config_map("a255", "2")]).await?;
        let before = web.rolls_once(scene, &before).await?;
        scene.kubectl(&["delete", "configmap", "a000"]).await?;
        let names: Vec<_> = (1..257).map(name).collect();
        web.counting(&names.join(","))
            .rolls_once(scene, &before)
            .await?;
        Ok(())
    })
    .await
}

type Counts = fn(&Case, &str) -> bool;

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
    let verb = match mark.starts_with("restarter.stackable.tech/") {
        true => "label",
        false => "annotate",
    };
    scene.kubectl(&[verb, object, mark]).await.map(drop)
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
    let options = Options {
        values,
        ..Options::default()
    };
    scene.operator.stop().await;
    let mut installation = scene.installation.clone();
    let values = options.values(&scene.namespace);
    installation.upgrade(&values).await?;
    let directory = scene.directory();
    scene.start_replica(&installation, directory, &[]).await
}

fn speaking(dialects: &[impl Serialize]) -> Options {
    Options {
        values: json!({"dialects": dialects}),
        ..Options::default()
    }
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

/// Returns workloads that use ConfigMap `app` and Secret `app`, with traces of their controllers. ConfigMap
/// `app` is marked for `match`.
fn opted_in_in_each_dialect() -> Vec<Case> {
    let all = |name| uses(Workload::deployment(name), "app", "app");
    let of_template = |workload: Workload, key, value: &str| {
        let path = ["spec", "template", "metadata", "annotations", key];
        workload.with(&path, json!(value))
    };
    let env = |mut workload: Workload, name: &str| {
        let path = ["spec", "template", "spec", "containers"];
        let mut containers = workload.manifest()["spec"]["template"]["spec"]["containers"].take();
        containers[0]["env"] = json!([{"name": name, "value": "0123456789abcdef"}]);
        workload = workload.with(&path, containers);
        workload
    };
    let stakater = |name, key, value| all(name).annotated(key, value);
    let marked = |name, key, value| env(stakater(name, key, value), "STAKATER_APP_CONFIGMAP");
    let reloaded = |workload| of_template(workload, LAST_RELOADED_FROM, RELOADED_FROM);
    let daemons = uses(
        Workload::new(Kind::DaemonSet, "stakater-kind"),
        "app",
        "app",
    );
    let lists = |name| Workload::deployment(name).annotated(STAKATER_RELOAD, "app,other");
    let wave = mounts(Workload::deployment("wave"), "app")
        .annotated("wave.pusher.com/update-on-config-change", "true")
        .annotated("wave.pusher.com/extra-secrets", "app");
    let stackable = uses(Workload::new(Kind::StatefulSet, "stackable"), "app", "app");
    let enabled = |workload: Workload| {
        let label = "restarter.stackable.tech/enabled";
        workload.labelled(label, "true")
    };
    let excludes = |name, key| stakater(name, STAKATER_AUTO, "true").annotated(key, "app");
    let trigger = Workload::deployment("trigger").annotated(TRIGGER, "app,other");
    let trigger = trigger.annotated("trigger.k8s.io/triggering-secrets", "app");
    let fabric8 = all("fabric8").annotated(FABRIC8, "app");
    vec![
        Case::of(marked("stakater", STAKATER_AUTO, "true"), "app", "app"),
        Case::of(
            reloaded(daemons.annotated(STAKATER_AUTO, "1")),
            "app",
            "app",
        ),
        Case::of(marked("typed", STAKATER_CONFIG_MAP_AUTO, "T"), "app", ""),
        Case::of(
            stakater("typed-too", STAKATER_SECRET_AUTO, "true"),
            "",
            "app",
        ),
        Case::of(stakater("search", STAKATER_SEARCH, "true"), "app", ""),
        Case::of(reloaded(lists("lists")), "app,other", ""),
        Case::of(
            of_template(all("template"), STAKATER_AUTO, "true"),
            "app",
            "app",
        ),
        Case::of(excludes("excludes", STAKATER_EXCLUDE), "", "app"),
        Case::of(
            excludes("excludes-too", "pod-reloader.cs.sap.com/exclude-secrets"),
            "app",
            "",
        ),
        Case::of(
            of_template(wave, "wave.pusher.com/config-hash", "0"),
            "app",
            "app",
        ),
        Case::of(
            of_template(
                enabled(stackable),
                "configmap.restarter.stackable.tech/app",
                "uid/1",
            ),
            "app",
            "app",
        ),
        Case::of(
            of_template(trigger, "trigger.k8s.io/configMap-app-last-hash", "0"),
            "app,other",
            "app",
        ),
        Case::of(env(fabric8, "FABRIC8_APP_CONFIGMAP"), "app", ""),
        Case::of(
            uses(Workload::new(Kind::StatefulSet, "item"), "app", "app")
                .annotated(AUTO_RESTART, "true"),
            "",
            "app",
        ),
        // These workloads have not opted in, or their own operator restarts them.
        Case::of(all("item-not").annotated(AUTO_RESTART, "true"), "", ""),
        Case::of(all("infisical-not").annotated(AUTO_RELOAD, "true"), "", ""),
        Case::of(enabled(all("stackable-not")), "", ""),
        Case::of(stakater("stakater-not", STAKATER_AUTO, "yes"), "", ""),
        Case::of(
            stakater("wave-not", "wave.pusher.com/extra-configmaps", "app"),
            "",
            "",
        ),
    ]
}

const STAKATER: [&str; 2] = ["pod-reloader", "stakater"];
const AUTO: &str = "pod-reloader.cs.sap.com/auto";
const STAKATER_AUTO: &str = "reloader.stakater.com/auto";
const STAKATER_SEARCH: &str = "reloader.stakater.com/search";
const STAKATER_CONFIG_MAP_AUTO: &str = "configmap.reloader.stakater.com/auto";
const STAKATER_SECRET_AUTO: &str = "secret.reloader.stakater.com/auto";
const STAKATER_RELOAD: &str = "configmap.reloader.stakater.com/reload";
const STAKATER_EXCLUDE: &str = "configmaps.exclude.reloader.stakater.com/reload";
const TRIGGER: &str = "trigger.k8s.io/triggering-configMaps";
const FABRIC8: &str = "configmap.fabric8.io/update-on-change";
const AUTO_RELOAD: &str = "secrets.infisical.com/auto-reload";
const AUTO_RESTART: &str = "operator.1password.io/auto-restart";
const LAST_RELOADED_FROM: &str = "reloader.stakater.com/last-reloaded-from";
/// Value that Stakater's Reloader writes into a pod template.
const RELOADED_FROM: &str = r#"{"type":"CONFIGMAP","name":"app","namespace":"shop","hash":"0","containerRefs":["main"],"observedAt":1}"#;
