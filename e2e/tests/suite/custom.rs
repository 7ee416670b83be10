//! Custom resources: restarted by the config hash on their pod templates, or by a time in a field. Their
//! controllers do not run here.

pub(crate) mod managed;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use pod_reloader_e2e::crds::crd;
use pod_reloader_e2e::workload::{BASELINE, CONFIG_HASH, Kind, Workload, config_map, secret};
use pod_reloader_e2e::{
    Attempt, ControlPlane, Mark, Operator, Options, PATIENCE, Scene, done_if, wait_for,
};
use serde_json::{Value, json};
use tokio::time::sleep;

use self::managed::{
    Managed, State, created, each_once, each_once_though_killed, install, install_to_stay, none,
    writes,
};

#[tokio::test]
async fn each_custom_resource_is_restarted_once_for_each_change() -> Result<()> {
    let options =
        Options::with_values(json!({"customResources": PRESETS, "fence": {"enabled": true}}));
    Scene::play_on(with_definitions().await?, options, async |scene| {
        scene.apply(&config("1")).await?;
        let all = each_kind();
        let mark = scene.mark().await?;
        let mut before = created(scene, &all, "app").await?;
        // Workloads that are restarted by a time get a baseline; the others already have their hash.
        let first = writes(scene, mark).await?;
        let written: Vec<_> = first.keys().map(String::as_str).collect();
        let by_time = ["cluster", "rollout-by-time", "rollout-finds-by-time"];
        ensure!(written == by_time, "{first:?}");
        ensure!(first.values().all(|bodies| bodies.len() == 1), "{first:?}");
        ensure!(states(scene, &all).await? == before, "{before:?}");

        for change in [
            config_map("app", "2"),
            secret("app", "2"),
            config_map("app", "3"),
        ] {
            let mark = scene.mark().await?;
            scene.apply(&[change]).await?;
            before = each_once(scene, mark, &all, &before, "app").await?;
        }
        for managed in &all {
            event(scene, managed, "ConfigChanged").await?;
        }
        let mark = scene.mark().await?;
        scene.apply(&[config_map("other", "2")]).await?;
        none(scene, mark, &all, &before).await
    })
    .await
}

#[tokio::test]
async fn a_restart_of_the_operator_restarts_no_custom_resource() -> Result<()> {
    Scene::play_on(with_definitions().await?, presets(), async |scene| {
        scene.apply(&config("1")).await?;
        let all = each_kind();
        let before = created(scene, &all, "app").await?;
        let mark = scene.mark().await?;
        scene.operator.restart().await?;
        keeps(&scene.operator, &all).await?;
        none(scene, mark, &all, &before).await?;
        let mark = scene.mark().await?;
        scene.operator.process().kill().await;
        scene.operator.start_again().await?;
        keeps(&scene.operator, &all).await?;
        none(scene, mark, &all, &before).await?;

        let mark = scene.mark().await?;
        scene.operator.process().kill().await;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.operator.start_again().await?;
        each_once(scene, mark, &all, &before, "app").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_new_leader_restarts_no_custom_resource() -> Result<()> {
    let options = Options {
        replicas: 2,
        ..presets()
    };
    Scene::play_on(with_definitions().await?, options, async |scene| {
        scene.apply(&config("1")).await?;
        let all = each_kind();
        let before = created(scene, &all, "app").await?;
        let mark = scene.mark().await?;
        scene.leader().await?.operator.process().kill().await;
        keeps(&scene.leader().await?.operator, &all).await?;
        none(scene, mark, &all, &before).await?;
        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let before = each_once(scene, mark, &all, &before, "app").await?;

        // This replica dies with a change that it may have written in part.
        for replica in scene.replicas() {
            if replica.operator.process().exit().is_some() {
                replica.operator.start_again().await?;
            }
        }
        let mark = scene.mark().await?;
        let leader = scene.leader().await?.operator;
        scene.apply(&[config_map("app", "3")]).await?;
        wait_for("a write", PATIENCE, async || {
            done_if(!writes(scene, mark).await?.is_empty(), "there is none")
        })
        .await?;
        leader.process().kill().await;
        scene.leader().await?;
        each_once_though_killed(scene, mark, &all, &before, "app").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn changes_in_quick_succession_are_restarts_of_their_own() -> Result<()> {
    let options = Options {
        settle_period: "1ms",
        ..presets()
    };
    Scene::play_on(with_definitions().await?, options, async |scene| {
        scene.apply(&config("1")).await?;
        let all = [
            Managed::cluster("cluster").lists("app"),
            Managed::rollout("by-time").lists("app").by_time(),
        ];
        let mut before = created(scene, &all, "app").await?;
        for round in 0..5 {
            scene
                .apply(&[config_map("app", &format!("round {round}"))])
                .await?;
            for (managed, before) in all.iter().zip(&mut before) {
                let after = managed.right(scene, "app").await?;
                let time = |state: &State| state.value.as_deref().map(str::parse).transpose();
                let (was, is): (Option<jiff::Timestamp>, _) = (time(before)?, time(&after)?);
                ensure!(is > was, "{}: {before:?}, {after:?}", managed.name);
                *before = after;
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_restart_of_a_human_stays_until_the_next_change() -> Result<()> {
    Scene::play_on(with_definitions().await?, presets(), async |scene| {
        const PAST: &str = "2020-01-01T00:00:00Z";
        scene.apply(&config("1")).await?;
        let all = [
            Managed::cluster("cluster").lists("app"),
            Managed::rollout("by-time").lists("app").by_time(),
            Managed::knative("by-hash").lists("app"),
        ];
        let before = created(scene, &all, "app").await?;
        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        each_once(scene, mark, &all, &before, "app").await?;

        let restarted_at = json!({"annotations": {"kubectl.kubernetes.io/restartedAt": PAST}});
        for (managed, restart) in all.iter().zip([
            json!({"metadata": restarted_at}),
            json!({"spec": {"restartAt": PAST}}),
            json!({"spec": {"template": {"metadata": restarted_at}}}),
        ]) {
            patch(scene, &managed.reference(), &restart, &[]).await?;
        }
        let before = states(scene, &all).await?;
        ensure!(
            before[..2]
                .iter()
                .all(|it| it.value.as_deref() == Some(PAST))
        );
        let mark = scene.mark().await?;
        none(scene, mark, &all, &before).await?;
        scene.operator.restart().await?;
        keeps(&scene.operator, &all).await?;
        none(scene, mark, &all, &before).await?;
        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "3")]).await?;
        each_once(scene, mark, &all, &before, "app").await?;
        let object = scene.object(&all[2].reference()).await?;
        let annotations = &object["spec"]["template"]["metadata"]["annotations"];
        ensure!(annotations["kubectl.kubernetes.io/restartedAt"] == PAST);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_definition_may_come_go_and_come_back() -> Result<()> {
    const GROUP: &str = "late.example.com";
    let mut definition = crd("rollouts");
    definition["metadata"]["name"] = json!(format!("rollouts.{GROUP}"));
    definition["spec"]["group"] = json!(GROUP);
    let options = Options::with_values(json!({"customResources": [{
        "group": GROUP,
        "resource": "rollouts",
        "kind": "Rollout",
        "podTemplates": ["spec.template"],
        "restartAt": "spec.restartAt",
    }]}));
    Scene::play(options, async |scene| {
        scene.apply(&config("1")).await?;
        for round in ["first", "second"] {
            install(&scene.control_plane, &definition).await?;
            let all = [
                Managed::rollout("by-hash").of_group(GROUP).lists("app"),
                Managed::rollout("by-time")
                    .of_group(GROUP)
                    .lists("app")
                    .by_time(),
            ];
            let before = created(scene, &all, "app").await?;
            let mark = scene.mark().await?;
            scene.apply(&[config_map("app", round)]).await?;
            each_once(scene, mark, &all, &before, "app").await?;
            scene.shows("pod_reloader_workloads", "3").await?;

            let name = format!("rollouts.{GROUP}");
            scene.tool().run(&["delete", "crd", &name]).await?;
            scene.shows("pod_reloader_workloads", "1").await?;
            // The second time, it only has to come back.
            if round == "second" {
                return Ok(());
            }
            let let_go = "the cluster no longer serves a kind kind=Rollout";
            wait_for("the kind to be let go", PATIENCE, async || {
                let count = scene.operator.log()?.matches(let_go).count();
                done_if(count == 1, format!("{count} turns"))
            })
            .await?;
            let mark = scene.mark().await?;
            let let_go_at = Timestamp::now();
            let of_kind = || {
                let mut warnings = warnings(scene)?;
                warnings.retain(|line| line.contains("Rollout"));
                anyhow::Ok(warnings)
            };
            let warned = of_kind()?.len();
            // The question about all kinds, which let it go, is the only one until it is asked again.
            let requests = wait_for("another look at all kinds", PATIENCE, async || {
                let mut requests = scene.requests(mark).await?;
                // A request from before may end later.
                requests.retain(|it| it.received > let_go_at);
                Ok(match requests.iter().any(|it| it.uri == "/apis") {
                    true => Attempt::Done(requests),
                    false => Attempt::NotYet(format!("{} requests", requests.len())),
                })
            })
            .await?;
            let asked = requests.iter().filter(|it| it.uri.contains(GROUP));
            ensure!(asked.count() == 0, "{requests:?}");
            let warnings = of_kind()?;
            println!("{} warnings: {warnings:?}", warnings.len());
            ensure!(warnings.len() == warned, "{warnings:?}");
            ensure!(warnings.len() <= 8, "{warnings:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_change_sets_the_hash_of_a_cron_job_and_starts_nothing() -> Result<()> {
    Scene::play(cron_jobs(&[]), async |scene| {
        scene.apply(&config("1")).await?;
        let all = [
            Managed::cron_job("nightly").lists("app"),
            suspended(Managed::cron_job("suspended").lists("app")),
        ];
        let manifests: Vec<_> = all.iter().map(|managed| managed.manifest.clone()).collect();
        scene.apply(&manifests).await?;
        let finished = finished_job(scene).await?;
        scene.operator.start_again().await?;
        for managed in &all {
            managed.right(scene, "app").await?;
        }
        let before = states(scene, &all).await?;
        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        each_once(scene, mark, &all, &before, "app").await?;
        ensure!(jobs(scene).await?.len() == 1, "{:?}", jobs(scene).await?);
        let version = |job: &Value| job["metadata"]["resourceVersion"].clone();
        let now = scene.object("job/finished").await?;
        ensure!(version(&now) == version(&finished), "{now}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_change_runs_a_cron_job_once_if_that_is_requested() -> Result<()> {
    let options = cron_jobs(&["--run-cron-jobs-on-change"]);
    Scene::play(options, async |scene| {
        may_create_jobs(scene).await?;
        scene.apply(&config("1")).await?;
        let all = [
            Managed::cron_job("nightly").lists("app"),
            suspended(Managed::cron_job("suspended").lists("app")),
        ];
        let manifests: Vec<_> = all.iter().map(|managed| managed.manifest.clone()).collect();
        scene.apply(&manifests).await?;
        scene.operator.start_again().await?;
        for managed in &all {
            managed.right(scene, "app").await?;
        }
        scene.quiet().await?;
        ensure!(jobs(scene).await?.is_empty(), "at first sight");

        for runs in [1, 2] {
            scene
                .apply(&[config_map("app", &format!("{runs} runs"))])
                .await?;
            for managed in &all {
                managed.right(scene, "app").await?;
            }
            scene.quiet().await?;
            let jobs = jobs(scene).await?;
            ensure!(jobs.len() == runs, "{jobs:?}");
            let cron_job = scene.object("cronjob/nightly").await?;
            for job in jobs {
                let metadata = &job["metadata"];
                let [owner] = &metadata["ownerReferences"].as_array().context("no owner")?[..]
                else {
                    anyhow::bail!("{metadata}");
                };
                ensure!(owner["uid"] == cron_job["metadata"]["uid"], "{owner}");
                ensure!(owner["controller"] == true, "{owner}");
                let annotation = &metadata["annotations"]["cronjob.kubernetes.io/instantiate"];
                ensure!(annotation == "manual", "{metadata}");
            }
        }
        scene.operator.restart().await?;
        scene.quiet().await?;
        ensure!(jobs(scene).await?.len() == 2, "after a restart");
        Ok(())
    })
    .await
}

/// Creates CronJob `nightly` with this change of its spec, starts the operator, and waits until it manages the CronJob.
async fn managed_nightly(scene: &Scene, change: impl FnOnce(&mut Value)) -> Result<Managed> {
    may_create_jobs(scene).await?;
    scene.apply(&config("1")).await?;
    let mut nightly = Managed::cron_job("nightly").lists("app");
    change(&mut nightly.manifest["spec"]);
    scene.apply(&[nightly.manifest.clone()]).await?;
    scene.operator.start_again().await?;
    nightly.right(scene, "app").await?;
    Ok(nightly)
}

#[tokio::test]
async fn a_run_waits_until_no_other_is_active_if_the_cron_job_forbids_two() -> Result<()> {
    let options = cron_jobs(&["--run-cron-jobs-on-change"]);
    Scene::play(options, async |scene| {
        let change = |spec: &mut Value| {
            spec["concurrencyPolicy"] = json!("Forbid");
            // Its pods never start.
            spec["jobTemplate"]["spec"]["template"]["spec"]["schedulerName"] = json!("nobody");
        };
        let nightly = managed_nightly(scene, change).await?;

        scene.apply(&[config_map("app", "2")]).await?;
        let first = other_job(scene, &Value::Null).await?;
        wait_for("the Job to count as active", PATIENCE, async || {
            let cron_job = scene.object("cronjob/nightly").await?;
            let active = &cron_job["status"]["active"];
            done_if(
                active[0]["uid"] == first["metadata"]["uid"],
                active.to_string(),
            )
        })
        .await?;
        scene.apply(&[config_map("app", "3")]).await?;
        nightly.right(scene, "app").await?;
        scene.quiet().await?;
        ensure!(jobs(scene).await?.len() == 1, "{:?}", jobs(scene).await?);

        let name = first["metadata"]["name"].as_str().context("a name")?;
        scene.delete(&format!("job/{name}")).await?;
        other_job(scene, &first).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_history_limit_of_a_cron_job_covers_runs_after_changes() -> Result<()> {
    let options = cron_jobs(&["--run-cron-jobs-on-change"]);
    Scene::play(options, async |scene| {
        let change = |spec: &mut Value| {
            spec["successfulJobsHistoryLimit"] = json!(1);
            // Its Jobs succeed at once.
            spec["jobTemplate"]["spec"]["completions"] = json!(0);
        };
        managed_nightly(scene, change).await?;

        let mut last = Value::Null;
        for value in ["2", "3"] {
            scene.apply(&[config_map("app", value)]).await?;
            last = other_job(scene, &last).await?;
            past_the_second_of(scene, &last).await?;
        }
        Ok(())
    })
    .await
}

/// Waits until a Job that starts now starts in a later second than this one. Of two Jobs of the same second, the
/// controller of CronJobs takes the one with the lower name for the older one.
async fn past_the_second_of(scene: &Scene, job: &Value) -> Result<()> {
    let name = job["metadata"]["name"].as_str().context("a name")?;
    wait_for("the next second", PATIENCE, async || {
        let job = scene.object(&format!("job/{name}")).await?;
        let start = job["status"]["startTime"].as_str();
        let start = start.map(str::parse::<Timestamp>).transpose()?;
        Ok(match start {
            Some(start) if Timestamp::now().as_second() > start.as_second() => Attempt::Done(()),
            start => Attempt::NotYet(format!("it started at {start:?}")),
        })
    })
    .await
}

/// Owners who revert each restart see a few of them at once and then one now and then, and the next change gets its turn,
/// too.
#[tokio::test]
async fn the_loop_gives_way_to_owners_that_revert_the_hash_or_the_restart_time() -> Result<()> {
    Scene::play_on(with_definitions().await?, owned(), async |scene| {
        scene.apply(&config("1")).await?;
        let all = [
            Managed::knative("by-hash").lists("app"),
            Managed::rollout("by-time").lists("app").by_time(),
        ];
        let before = created(scene, &all, "app").await?;
        let undo = [
            json!({"spec": {"template": {"metadata": {"annotations": {CONFIG_HASH: null}}}}}),
            json!({
                "metadata": {"annotations": {BASELINE: before[1].baseline}},
                "spec": {"restartAt": before[1].value},
            }),
        ];
        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        for managed in &all {
            managed.right(scene, "app").await?;
        }
        let take_back = async || -> Result<()> {
            let impersonation = [
                format!("--as={OWNER}"),
                "--as-group=system:masters".to_owned(),
            ];
            loop {
                for ((managed, before), undo) in all.iter().zip(&before).zip(&undo) {
                    let state = managed.state(scene).await?;
                    let is_new =
                        (&state.value, &state.baseline) != (&before.value, &before.baseline);
                    if is_new && state.value.is_some() {
                        patch(scene, &managed.reference(), undo, &impersonation).await?;
                    }
                }
                // The pace of the owners.
                sleep(Duration::from_millis(50)).await;
            }
        };
        let claims = async || -> Result<()> {
            for managed in &all {
                event(scene, managed, "ConfigHashReverted").await?;
            }
            let name = "pod_reloader_reverted_workloads";
            scene.shows(name, "2").await?;
            let turns = turns_of_each(scene, mark, &all).await?;
            // Nothing but time shows that a loop does not go on.
            sleep(Duration::from_secs(5)).await;
            let later = turns_of_each(scene, mark, &all).await?;
            let mut both = turns.iter().zip(&later);
            let has_stopped = both.all(|(turns, later)| *turns <= 8 && *later <= turns + 1);
            ensure!(has_stopped, "{turns:?}, then {later:?}");
            scene.apply(&[config_map("app", "3")]).await?;
            wait_for("a turn for a change", PATIENCE, async || {
                let turns = turns_of_each(scene, mark, &all).await?;
                let had_one = turns.iter().zip(&later).all(|(turns, later)| turns > later);
                done_if(had_one, format!("{turns:?}, before {later:?}"))
            })
            .await?;
            let turns = turns_of_each(scene, mark, &all).await?;
            ensure!(turns.iter().all(|turns| *turns <= 12), "{turns:?}");
            Ok(())
        };
        tokio::select! {
            ended = take_back() => ended.context("taking it back"),
            ended = claims() => ended,
        }
    })
    .await
}

#[tokio::test]
async fn an_edit_without_the_hash_leaves_it_in_place_on_a_custom_resource() -> Result<()> {
    Scene::play_on(with_definitions().await?, presets(), async |scene| {
        scene.apply(&config("1")).await?;
        let all = each_kind();
        let before = created(scene, &all, "app").await?;
        let mark = scene.mark().await?;
        for managed in &all {
            let manifest = managed.manifest.to_string();
            let replace = ["replace", "--filename=-"];
            scene.kubectl_with_input(&replace, &manifest).await?;
        }
        none(scene, mark, &all, &before).await?;
        // A restart that happens anyway also sets the hash.
        let (knative, before) = (&all[4], &before[4]);
        ensure!(knative.name == "knative-lists", "{}", knative.name);
        scene.operator.process().pause()?;
        scene.apply(&[config_map("app", "2")]).await?;
        scene.operator.process().resume()?;
        let mut manifest = knative.manifest.clone();
        manifest["spec"]["template"]["spec"]["containers"][0]["image"] = json!("app:2");
        scene.apply(&[manifest]).await?;
        let after = knative.right(scene, "app").await?;
        ensure!(after.generation - before.generation <= 2, "{after:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn another_way_to_be_restarted_is_not_a_restart() -> Result<()> {
    Scene::play_on(with_definitions().await?, presets(), async |scene| {
        scene.apply(&config("1")).await?;
        let by_hash = Managed::rollout("rollout").lists("app");
        let by_time = by_hash.clone().by_time();
        let hash = created(scene, std::slice::from_ref(&by_hash), "app").await?;
        let restart = |way: &str| {
            json!({"metadata": {"annotations": {"pod-reloader.cs.sap.com/restart": way}}})
        };
        let mark = scene.mark().await?;
        let mut before = hash[0].clone();
        for way in ["at", "template", "at"] {
            patch(scene, &by_hash.reference(), &restart(way), &[]).await?;
            scene.quiet().await?;
            before = by_time.right(scene, "app").await?;
            ensure!(before.value.is_none(), "{way}: {before:?}");
            ensure!(before.generation == hash[0].generation, "{before:?}");
        }
        let count = turns_of_each(scene, mark, std::slice::from_ref(&by_hash)).await?;
        ensure!(count == [1], "{count:?} writes, and not just one baseline");
        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        each_once(scene, mark, &[by_time], &[before], "app").await?;
        ensure!(by_hash.state(scene).await?.value == hash[0].value);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn kinds_of_the_same_name_are_distinguished() -> Result<()> {
    const GROUP: &str = "apps.kruise.io";
    let mut definition = crd("rollouts");
    definition["metadata"]["name"] = json!(format!("statefulsets.{GROUP}"));
    definition["spec"]["group"] = json!(GROUP);
    definition["spec"]["names"] = json!({
        "plural": "statefulsets", "singular": "statefulset",
        "kind": "StatefulSet", "listKind": "StatefulSetList",
    });
    let options = Options::with_values(json!({"customResources": ["openkruise"]}));
    Scene::play(options, async |scene| {
        install(&scene.control_plane, &definition).await?;
        scene.apply(&config("1")).await?;
        let mut kruise = Managed::rollout("web").of_group(GROUP).lists("app");
        kruise.manifest["kind"] = json!("StatefulSet");
        kruise.resource = format!("statefulsets.{GROUP}");
        let built_in = Workload::new(Kind::StatefulSet, "web").lists("other");
        let all = [kruise];
        let before_built_in = scene.create(&built_in).await?;
        let before = created(scene, &all, "app").await?;
        // The definition of this kind came late.
        scene.shows("pod_reloader_workloads", "3").await?;
        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        let before = each_once(scene, mark, &all, &before, "app").await?;
        scene.rolls_not(&built_in, &before_built_in).await?;
        scene.apply(&[config_map("other", "2")]).await?;
        scene.right(&built_in).await?;
        scene.quiet().await?;
        let after = scene.snapshot(&built_in).await?;
        ensure!(after.new_revisions(&before_built_in) == 1, "{after:?}");
        ensure!(states(scene, &all).await? == before, "{before:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_rollout_that_leaves_its_template_to_a_deployment_is_restarted_by_time_alone()
-> Result<()> {
    Scene::play_on(with_definitions().await?, presets(), async |scene| {
        scene.apply(&config("1")).await?;
        let refers = |mut rollout: Managed| {
            let spec = &mut rollout.manifest["spec"];
            *spec = json!({"workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}});
            rollout
        };
        let by_hash = [refers(Managed::rollout("by-hash").lists("app"))];
        let by_time = [refers(Managed::rollout("by-time").lists("app").by_time())];
        scene.apply(&[by_hash[0].manifest.clone()]).await?;
        let before = created(scene, &by_time, "app").await?;
        let before_by_hash = states(scene, &by_hash).await?;
        let mark = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        each_once(scene, mark, &by_time, &before, "app").await?;
        ensure!(states(scene, &by_hash).await? == before_by_hash);
        let warnings = warnings(scene)?;
        ensure!(warnings.is_empty(), "{warnings:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn kinds_that_are_not_installed_are_neither_queried_nor_reported() -> Result<()> {
    let mut resources = vec![
        json!("argo-rollouts"),
        json!("knative"),
        json!("cloudnativepg"),
    ];
    resources.extend((0..47).map(|number| {
        json!({
            "group": format!("absent-{number}.example.com"),
            "resource": "absents",
            "kind": format!("Absent{number}"),
            "podTemplates": ["spec.template"],
        })
    }));
    let options = Options::with_values(json!({"customResources": resources}));
    Scene::play_on(with_definitions().await?, options, async |scene| {
        scene.apply(&config("1")).await?;
        let mark = scene.mark().await?;
        scene.operator.restart().await?;
        let all = [
            Managed::rollout("rollout").lists("app"),
            Managed::knative("knative").lists("app"),
            Managed::cluster("cluster").lists("app"),
        ];
        let before = created(scene, &all, "app").await?;
        let changed = scene.mark().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        each_once(scene, changed, &all, &before, "app").await?;
        wait_for("three looks", PATIENCE, async || {
            let requests = scene.requests(mark).await?;
            let looks = requests.iter().filter(|it| it.uri == "/apis").count();
            done_if(looks >= 3, format!("{looks}"))
        })
        .await?;
        let requests = scene.requests(mark).await?;
        let of_absent: Vec<_> = requests
            .iter()
            .filter(|it| it.uri.to_lowercase().contains("absent"))
            .collect();
        ensure!(of_absent.is_empty(), "{of_absent:?}");
        let warnings = warnings(scene)?;
        ensure!(warnings.is_empty(), "{warnings:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_workload_that_a_new_hash_does_not_restart_is_reported() -> Result<()> {
    Scene::play(Options::default(), async |scene| {
        scene.apply(&config("1")).await?;
        let paused = Workload::deployment("paused").lists("app");
        let paused = paused.with(&["spec", "paused"], json!(true));
        let on_delete = Workload::new(Kind::StatefulSet, "on-delete").lists("app");
        let strategy = json!({"type": "OnDelete"});
        let on_delete = on_delete.with(&["spec", "updateStrategy"], strategy);
        let daemon_set = Workload::new(Kind::DaemonSet, "daemon-set").lists("app");
        let strategy = json!({"type": "OnDelete"});
        let daemon_set = daemon_set.with(&["spec", "updateStrategy"], strategy);
        let moving = Workload::deployment("moving").lists("app");
        let all = [&paused, &on_delete, &daemon_set];
        for workload in [&paused, &on_delete, &daemon_set, &moving] {
            scene.apply(&[workload.manifest()]).await?;
        }
        scene.quiet().await?;
        scene.apply(&[config_map("app", "2")]).await?;
        for (workload, reason) in all.iter().zip(["resumed", "deleted", "deleted"]) {
            scene.right(workload).await?;
            let note = scene.event(workload, "RestartStalled").await?;
            ensure!(
                note.contains(reason) && note.contains("ConfigMap app"),
                "{note}"
            );
            let events = scene.events(workload).await?;
            ensure!(events.len() == 1, "{events:?}");
        }
        scene.event(&moving, "ConfigChanged").await?;
        for (kind, reason) in [
            ("Deployment", "paused"),
            ("StatefulSet", "on_delete"),
            ("DaemonSet", "on_delete"),
        ] {
            let name = format!(
                "pod_reloader_stalled_restarts_total{{kind=\"{kind}\",reason=\"{reason}\"}}"
            );
            scene.shows(&name, "1").await?;
        }
        Ok(())
    })
    .await
}

const PRESETS: [&str; 4] = ["argo-rollouts", "kafkaconnect", "knative", "cloudnativepg"];

fn presets() -> Options {
    Options::with_values(json!({"customResources": PRESETS}))
}

/// The user who reverts what is written to custom resources.
const OWNER: &str = "owner-of-custom-resources";

/// Returns options in which the webhook is not called for writes of [`OWNER`].
fn owned() -> Options {
    let not_the_owner = format!("request.userInfo.username != '{OWNER}'");
    let condition = json!({"name": "not-the-owner", "expression": not_the_owner});
    Options::with_values(
        json!({"customResources": PRESETS, "webhook": {"matchConditions": [condition]}}),
    )
}

/// Returns one resource for each kind, each way to opt in and each way to be restarted.
fn each_kind() -> Vec<Managed> {
    vec![
        Managed::rollout("rollout-lists").lists("app"),
        Managed::rollout("rollout-finds").finds("app"),
        Managed::rollout("rollout-by-time").lists("app").by_time(),
        Managed::rollout("rollout-finds-by-time")
            .finds("app")
            .by_time(),
        Managed::knative("knative-lists").lists("app"),
        Managed::knative("knative-finds").finds("app"),
        Managed::kafka_connect("connect").lists("app"),
        Managed::cluster("cluster").lists("app"),
    ]
}

/// Returns options in which the operator starts late, and its webhook is not missed.
fn cron_jobs(args: &[&str]) -> Options {
    Options {
        failure_policy: "Ignore",
        running: false,
        values: json!({"customResources": ["cronjobs"]}),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        ..Options::default()
    }
}

fn suspended(mut cron_job: Managed) -> Managed {
    cron_job.manifest["spec"]["suspend"] = json!(true);
    cron_job
}

/// Returns ConfigMaps `app` and `other`, and Secret `app`.
fn config(value: &str) -> [Value; 3] {
    [
        config_map("app", value),
        config_map("other", value),
        secret("app", value),
    ]
}

/// Returns the control plane, with the definitions of the presets. They stay: other tests share them.
async fn with_definitions() -> Result<ControlPlane> {
    let control_plane = ControlPlane::connect()?;
    for name in ["rollouts", "kafkaconnects", "services", "clusters"] {
        install_to_stay(&control_plane, &crd(name)).await?;
    }
    Ok(control_plane)
}

/// Waits until an operator that has just started manages `all`, and the sentinel.
async fn keeps(operator: &Operator, all: &[Managed]) -> Result<()> {
    let count = all.len() + 1;
    operator
        .shows("pod_reloader_workloads", &count.to_string())
        .await
}

async fn states(scene: &Scene, all: &[Managed]) -> Result<Vec<State>> {
    let mut states = Vec::new();
    for managed in all {
        states.push(managed.state(scene).await?);
    }
    Ok(states)
}

/// Patches an object as `kubectl patch --type=merge` does, with further flags.
async fn patch(scene: &Scene, reference: &str, patch: &Value, flags: &[String]) -> Result<()> {
    let patch = format!("--patch={patch}");
    let mut args = vec!["patch", reference, "--type=merge", &patch];
    args.extend(flags.iter().map(|flag| &**flag));
    scene.kubectl(&args).await.map(drop)
}

/// Returns how often the operator has written to each of these resources since `mark`.
async fn turns_of_each(scene: &Scene, mark: Mark, all: &[Managed]) -> Result<Vec<usize>> {
    let writes = writes(scene, mark).await?;
    let turns = |managed: &Managed| {
        let bodies = writes.get(&managed.name).into_iter().flatten();
        bodies.filter(|body| body.starts_with("Some(200)")).count()
    };
    Ok(all.iter().map(turns).collect())
}

/// Waits for an Event of this reason about a custom resource.
async fn event(scene: &Scene, managed: &Managed, reason: &str) -> Result<()> {
    let what = format!("an Event {reason} about {}", managed.name);
    wait_for(&what, PATIENCE, async || {
        let events = scene.events_in(&scene.namespace).await?;
        let is_it = |event: &Value| {
            event["reason"] == reason
                && event["regarding"]["kind"] == managed.manifest["kind"]
                && event["regarding"]["name"] == managed.manifest["metadata"]["name"]
        };
        done_if(events.iter().any(is_it), "there is none")
    })
    .await
}

/// Returns the warnings and errors in the operator's log.
fn warnings(scene: &Scene) -> Result<Vec<String>> {
    let log = scene.operator.log()?;
    let is_warning = |line: &&str| line.contains(" WARN ") || line.contains(" ERROR ");
    let lines = log.lines().filter(is_warning);
    Ok(lines.map(str::to_owned).collect())
}

async fn jobs(scene: &Scene) -> Result<Vec<Value>> {
    scene.objects("batch/v1", "Job").await
}

/// Creates a finished Job that would track the same objects.
async fn finished_job(scene: &Scene) -> Result<Value> {
    let cron_job = Managed::cron_job("finished").lists("app").manifest;
    let template = &cron_job["spec"]["jobTemplate"]["spec"]["template"];
    scene
        .apply(&[json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": cron_job["metadata"],
            "spec": {"completions": 0, "template": template},
        })])
        .await?;
    let wait = [
        "wait",
        "--for=condition=Complete",
        "job/finished",
        "--timeout=20s",
    ];
    scene.kubectl(&wait).await?;
    scene.object("job/finished").await
}

/// Waits until there is one Job, which is not `before`.
async fn other_job(scene: &Scene, before: &Value) -> Result<Value> {
    wait_for("one other Job", PATIENCE, async || {
        let jobs = jobs(scene).await?;
        let uid = |job: &Value| job["metadata"]["uid"].clone();
        Ok(match &jobs[..] {
            [job] if uid(job) != uid(before) => Attempt::Done(job.clone()),
            _ => Attempt::NotYet(format!("{jobs:?}")),
        })
    })
    .await
}

/// Allows the operator to run CronJobs in the namespace of the workloads.
async fn may_create_jobs(scene: &Scene) -> Result<()> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "runs-jobs"},
        "rules": [
            {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "delete"]},
            {"apiGroups": ["batch"], "resources": ["cronjobs/status"], "verbs": ["patch"]},
        ],
    });
    let group = "rbac.authorization.k8s.io";
    let account = scene.installation.username();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "runs-jobs"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "runs-jobs"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": account}],
    });
    scene.apply(&[role, binding]).await
}
