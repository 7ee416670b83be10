//! However late a watch is, and whatever changes between decision and write, a config hash never goes back.

use std::{collections::HashSet, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use http::Method;
use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::ConfigMap,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use pod_reloader_e2e::proxy::{Fault, Proxy, Requests, Rule};
use pod_reloader_e2e::workload::{CONFIG_MAPS, Workload, config_map, key_of};
use pod_reloader_e2e::{
    Attempt, AuditEvent, Mark, Options, PATIENCE, Scene, Snapshot, done_if, wait_for,
};
use serde_json::{Value, json};
use tokio::time::Instant;

#[tokio::test]
async fn no_hash_comes_back_while_the_config_watch_is_late() -> Result<()> {
    Scene::play(slow_to_settle(), async |scene| {
        releases_with_a_late_watch(scene, "/api/v1/", "configmaps").await
    })
    .await
}

#[tokio::test]
async fn no_hash_comes_back_while_the_workload_watch_is_late() -> Result<()> {
    Scene::play(slow_to_settle(), async |scene| {
        releases_with_a_late_watch(scene, "/apis/apps/v1/", "deployments").await
    })
    .await
}

#[tokio::test]
async fn changes_that_the_watches_never_report_are_found_by_the_next_lists() -> Result<()> {
    let options = Options {
        args: vec!["--resync-period=3s".to_owned()],
        ..Options::proxied()
    };
    Scene::play(options, async |scene| {
        scene
            .apply(&[config_map("app", "1"), config_map("other", "1")])
            .await?;
        let web = Workload::podless("web").lists("app");
        let api = Workload::podless("api").lists("app");
        let before = scene.create(&web).await?;
        let before_api = scene.create(&api).await?;
        scene.quiet().await?;
        let proxy = scene.proxy.as_ref().context("the scene is proxied")?;
        let silent = Rule::new(Requests::any().watches(), Fault::DropWatch);
        let silent = proxy.add(silent);
        scene.apply(&[config_map("app", "2")]).await?;
        let other = json!({"metadata": {"annotations": {CONFIG_MAPS: "other"}}});
        scene.patch(&api, &other).await?;
        scene.right(&web).await?;
        scene.right(&api).await?;
        ensure!(silent.hits().applied > 0, "the watches were not silent");
        silent.remove();
        scene.rolls_once(&web, &before).await?;
        scene.rolls_once(&api, &before_api).await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_write_does_not_hit_a_workload_whose_image_has_changed_meanwhile() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        let Overtaken { before, after } = overtake(scene, async || {
            patch(scene, "web", image("app:2")).await?;
            Ok(())
        })
        .await?;
        ensure!(after.new_revisions(&before) == 1, "{before:?}, {after:?}");
        scene.right(&web()).await
    })
    .await
}

#[tokio::test]
async fn a_write_does_not_hit_a_workload_that_was_labelled_ignored_meanwhile() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        let Overtaken { before, after } = overtake(scene, async || {
            let labels = json!({"pod-reloader.cs.sap.com/ignored": "true"});
            patch(scene, "web", json!({"metadata": {"labels": labels}})).await
        })
        .await?;
        ensure!(after == before, "{before:?}, {after:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_write_does_not_hit_a_workload_that_was_made_anew_meanwhile() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        let Overtaken { before, after } = overtake(scene, async || {
            // The new one carries the old hash again, so that it differs only in its UID.
            set_config(scene, "app", "1").await?;
            let api = deployments(scene);
            let uid = api.get("web").await?.metadata.uid;
            api.delete("web", &DeleteParams::background()).await?;
            wait_for("the old one to be gone", PATIENCE, async || {
                done_if(api.get_opt("web").await?.is_none(), "it is there")
            })
            .await?;
            let new: Deployment = serde_json::from_value(web().manifest())?;
            let new = api.create(&Default::default(), &new).await?;
            ensure!(new.metadata.uid != uid && new.metadata.generation == Some(1));
            Ok(())
        })
        .await?;
        ensure!(after.key == before.key, "{before:?}, {after:?}");
        ensure!(after.revisions.len() == 1, "{before:?}, {after:?}");
        scene.right(&web()).await
    })
    .await
}

/// Returns options with [`SETTLE_PERIOD`]. The loop may learn of a ConfigMap before the image has changed, and would be
/// right to restart pods if that took longer.
fn slow_to_settle() -> Options {
    Options {
        settle_period: "5s",
        ..Options::proxied()
    }
}

fn web() -> Workload {
    Workload::deployment("web")
        .lists("app")
        .with(&["spec", "replicas"], json!(0))
        .with(&["spec", "revisionHistoryLimit"], json!(200))
}

/// Makes [`RELEASES`], each of the ConfigMap and then the image, while the operator's watch of `resource`
/// shows nothing. Asserts one ReplicaSet for each release, and that no hash appears twice.
async fn releases_with_a_late_watch(scene: &Scene, api: &str, resource: &str) -> Result<()> {
    let proxy = proxy(scene)?;
    let web = web();
    // Shares nothing with `web`, but goes through the same watch, after it.
    let last = Workload::podless("last").lists("last");
    let created = Instant::now();
    scene
        .apply(&[config_map("app", "0"), config_map("last", "0")])
        .await?;
    let first = scene.create(&web).await?;
    let last_before = scene.create(&last).await?;
    scene.quiet().await?;
    let from = deployments(scene).get("web").await?;
    let from = from.metadata.resource_version.context("a version")?;
    let mark = scene.mark().await?;

    let path = format!("{api}namespaces/{}/{resource}", scene.namespace);
    let late = Requests::exactly(path).watches();
    let late = proxy.add(Rule::new(late, Fault::HoldWatch));
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    for release in 1..=RELEASES {
        let began = Instant::now();
        set_config(scene, "app", &release.to_string()).await?;
        patch(scene, "web", image(&format!("app:{}", release + 1))).await?;
        slowest = slowest.max(began.elapsed());
        observed(scene).await?;
    }
    let took = start.elapsed();
    // Config that may have changed at any time since it was first read is waited for during five settle periods.
    let is_quick = slowest < SETTLE_PERIOD && created.elapsed() < 5 * SETTLE_PERIOD;
    late.applied(RELEASES as u64, PATIENCE).await?;
    if resource == "deployments" {
        // The loop knows the ConfigMap by now, and decides by an earlier state of `web`.
        failed_write(scene, mark).await?;
    }
    let reads_then = reads_of_app(&scene.requests(mark).await?);

    // This event waits behind those of all releases: when it has arrived, so have they.
    match resource {
        "configmaps" => set_config(scene, "last", "1").await?,
        // The webhook leaves the hash unchanged, so the loop has to see it.
        _ => patch(scene, "last", lists("last,more")).await?,
    }
    let held = late.hits().applied;
    late.remove();
    // The last event has arrived then.
    scene.gets_another_key(&last, &last_before.key).await?;
    scene.quiet().await?;
    scene.right(&web).await?;

    let requests = scene.requests(mark).await?;
    let writes: Vec<_> = requests
        .iter()
        .filter(|event| event.verb == "patch" && event.name == "web")
        .map(|event| event.code)
        .collect();
    println!(
        "{RELEASES} releases in {took:?}, {held} late events of {resource}; the operator read the \
         ConfigMap {reads_then} times before they arrived and {} times after, and wrote {writes:?}",
        reads_of_app(&requests) - reads_then
    );
    let stood = writes.iter().filter(|code| **code == Some(200)).count();
    ensure!(stood == 0 || !is_quick, "{stood} restarts");
    let keys = keys_since(scene, &from, first.key.context("no hash")?).await?;
    let different: HashSet<_> = keys.iter().collect();
    ensure!(different.len() == keys.len(), "a hash came back: {keys:?}");
    ensure!(
        keys.len() == RELEASES + 1,
        "{} hashes in {RELEASES} releases",
        keys.len()
    );
    let revisions = scene.snapshot(&web).await?.revisions.len();
    ensure!(
        (RELEASES + 1..=RELEASES + 1 + stood).contains(&revisions),
        "{revisions} ReplicaSets in {RELEASES} releases and {stood} restarts"
    );
    no_failure_is_told(scene).await
}

fn reads_of_app(events: &[AuditEvent]) -> usize {
    let of_app = |event: &&AuditEvent| {
        event.verb == "get" && event.resource == "configmaps" && event.name == "app"
    };
    events.iter().filter(of_app).count()
}

/// Waits until the test of a write of the operator to `web` has failed since `mark`.
async fn failed_write(scene: &Scene, mark: Mark) -> Result<()> {
    wait_for("a write that fails", PATIENCE, async || {
        let mut writes = scene.requests(mark).await?;
        writes.retain(|event| event.verb == "patch" && event.name == "web");
        let codes: Vec<_> = writes.iter().map(|event| event.code).collect();
        done_if(codes.contains(&Some(422)), format!("{codes:?}"))
    })
    .await
}

/// Number of releases.
const RELEASES: usize = 8;
/// Settle period of [`slow_to_settle`].
const SETTLE_PERIOD: Duration = Duration::from_secs(5);

/// Returns the hashes that `web` has carried, beginning with `first`, one for each time it was set.
async fn keys_since(scene: &Scene, version: &str, first: String) -> Result<Vec<String>> {
    let until = deployments(scene).get("web").await?;
    let until = until.metadata.resource_version;
    let params = WatchParams::default().fields("metadata.name=web");
    let mut events = deployments(scene).watch(&params, version).await?.boxed();
    let mut keys = vec![first];
    loop {
        let event = tokio::time::timeout(PATIENCE, events.try_next()).await?;
        let event = event?.context("the watch ended")?;
        let WatchEvent::Modified(deployment) = event else {
            continue;
        };
        let key = key_of(&serde_json::to_value(&deployment)?).context("no hash")?;
        if keys.last() != Some(&key) {
            keys.push(key);
        }
        if deployment.metadata.resource_version == until {
            return Ok(keys);
        }
    }
}

/// The state of a workload before a write that came too late, and at the end.
struct Overtaken {
    before: Snapshot,
    after: Snapshot,
}

/// Changes the ConfigMap of `web`, and holds back the operator's write of the new hash while `meanwhile`
/// runs. Then lets the write go on, and asserts that it fails, and that nothing is reported.
async fn overtake(scene: &Scene, meanwhile: impl AsyncFnOnce() -> Result<()>) -> Result<Overtaken> {
    let proxy = proxy(scene)?;
    let web = web();
    scene.apply(&[config_map("app", "1")]).await?;
    let before = scene.create(&web).await?;
    scene.quiet().await?;
    let mark = scene.mark().await?;
    let path = format!(
        "/apis/apps/v1/namespaces/{}/deployments/web",
        scene.namespace
    );
    let write = Requests::exactly(path).method(Method::PATCH);
    // Shorter than the time after which the operator gives up.
    let held = proxy.add(Rule::new(write, Fault::Delay(Duration::from_secs(9))).times(1));
    set_config(scene, "app", "2").await?;
    held.applied(1, PATIENCE).await?;
    meanwhile().await?;
    held.remove();

    let code = wait_for("the write to arrive", PATIENCE, async || {
        let requests = scene.requests(mark).await?;
        let first = requests
            .iter()
            .find(|event| event.verb == "patch" && event.name == "web");
        Ok(match first {
            Some(event) => Attempt::Done(event.code),
            None => Attempt::NotYet("it has not".to_owned()),
        })
    })
    .await?;
    ensure!(code == Some(422), "the late write was answered {code:?}");
    settled(scene).await?;
    let after = scene.snapshot(&web).await?;
    no_failure_is_told(scene).await?;
    Ok(Overtaken { before, after })
}

/// Waits twice until the operator has handled everything: a failed write is tried again.
async fn settled(scene: &Scene) -> Result<()> {
    scene.quiet().await?;
    scene.quiet().await
}

async fn no_failure_is_told(scene: &Scene) -> Result<()> {
    let events = scene.events(&web()).await?;
    let failures: Vec<_> = events
        .iter()
        .filter(|(reason, _)| reason != "ConfigChanged")
        .collect();
    ensure!(failures.is_empty(), "{failures:?}");
    Ok(())
}

/// Waits until the controller of `web` has made the ReplicaSet of its latest template.
async fn observed(scene: &Scene) -> Result<()> {
    let api = deployments(scene);
    let replica_sets: Api<ReplicaSet> = Api::namespaced(scene.client.clone(), &scene.namespace);
    wait_for("the controller to have seen web", PATIENCE, async || {
        let deployment = api.get("web").await?;
        let status = deployment.status.unwrap_or_default();
        if status.observed_generation != deployment.metadata.generation {
            return Ok(Attempt::NotYet(format!("{:?}", status.observed_generation)));
        }
        let selector = ListParams::default().labels("app=web");
        let list = replica_sets.list(&selector).await?;
        let template = deployment.spec.context("no spec")?.template;
        let image = |spec: &Option<k8s_openapi::api::core::v1::PodSpec>| -> Option<Option<String>> {
            Some(spec.as_ref()?.containers.first()?.image.clone())
        };
        let made = list.items.iter().any(|set| {
            let spec = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
            spec.is_some_and(|made| image(&made.spec) == image(&template.spec))
        });
        done_if(made, "no ReplicaSet yet")
    })
    .await
}

fn proxy(scene: &Scene) -> Result<&Proxy> {
    scene.proxy.as_ref().context("the scene has no proxy")
}

fn deployments(scene: &Scene) -> Api<Deployment> {
    Api::namespaced(scene.client.clone(), &scene.namespace)
}

async fn set_config(scene: &Scene, name: &str, value: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let change = json!({"data": {"key": value}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(change))
        .await?;
    Ok(())
}

async fn patch(scene: &Scene, name: &str, change: Value) -> Result<()> {
    let params = PatchParams::default();
    deployments(scene)
        .patch(name, &params, &Patch::Strategic(change))
        .await?;
    Ok(())
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

fn lists(config_maps: &str) -> Value {
    json!({"metadata": {"annotations": {CONFIG_MAPS: config_maps}}})
}
