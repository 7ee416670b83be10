//! The selectors of the chart select the same workloads for webhook, policy and reconcile loop.

use anyhow::{Result, ensure};
use pod_reloader_e2e::workload::{CONFIG_HASH, Workload, config_map, key_of};
use pod_reloader_e2e::{
    Attempt, Operator, Options, PATIENCE, Scene, done_if, has_mutating_policies, oracle, wait_for,
};
use serde_json::{Value, json};

#[tokio::test]
async fn a_workload_selector_picks_the_workloads_that_are_managed() -> Result<()> {
    Scene::play(Options::released(), async |scene| {
        let podless = Workload::podless;
        let shop = |name| podless(name).labelled("team", "shop");
        // The workload that `Scene::quiet` waits for must be managed, too.
        let sentinel = shop("sentinel").lists("sentinel").lists_secrets("sentinel");
        scene
            .apply(&[config_map("app", "1"), sentinel.manifest()])
            .await?;
        let bank = podless("bank").labelled("team", "bank");
        let (bank, gains) = (bank.lists("app"), podless("gains").lists("app"));
        let (stays, loses) = (shop("stays").lists("app"), shop("loses").lists("app"));
        let selector = json!({"workloadSelector": {"matchLabels": {"team": "shop"}}});
        let operator = upgraded(scene, selector, false).await?;
        stamps_new_ones(scene, &scene.namespace, &bank, false).await?;

        let mut before = Vec::new();
        for (workload, is_kept) in [
            (&stays, true),
            (&loses, true),
            (&bank, false),
            (&gains, false),
        ] {
            let created = scene.create(workload).await?;
            ensure!(created.key.is_some() == is_kept, "the webhook: {created:?}");
            before.push(created);
        }
        let [stays_before, loses_before, bank_before, gains_before] = &before[..] else {
            unreachable!("four were created");
        };
        scene.rolls_not(&gains, gains_before).await?;

        scene.label("deployment/loses", "team-").await?;
        scene.label("deployment/gains", "team=shop").await?;
        let gains_before = scene.rolls_once(&gains, gains_before).await?;

        scene.apply(&[config_map("app", "2")]).await?;
        scene.rolls_once(&stays, stays_before).await?;
        scene.rolls_once(&gains, &gains_before).await?;
        for (workload, before) in [(&bank, bank_before), (&loses, loses_before)] {
            let now = scene.snapshot(workload).await?;
            ensure!(now == *before, "the loop: {before:?}, {now:?}");
        }

        operator.stop().await;
        for (workload, is_kept) in [
            (&stays, true),
            (&gains, true),
            (&bank, false),
            (&loses, false),
        ] {
            keeps_its_hash(scene, &scene.namespace, workload, is_kept).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_namespace_selector_picks_the_namespaces_that_are_managed() -> Result<()> {
    Scene::play(Options::released(), async |scene| {
        let test = async |loses: &str| {
            let test = async |gains: &str| in_namespaces(scene, loses, gains).await;
            scene.with_namespace("gains", test).await
        };
        scene.with_namespace("loses", test).await
    })
    .await
}

async fn in_namespaces(scene: &Scene, loses: &str, gains: &str) -> Result<()> {
    // A value of our own: other tests have namespaces, too.
    let live = format!("stage={}", scene.namespace);
    let label = async |namespace: &str, label: &str| {
        let namespace = format!("namespace/{namespace}");
        scene.label(&namespace, label).await
    };
    label(&scene.namespace, &live).await?;
    label(loses, &live).await?;
    let selector = json!({"namespaceSelector": {"matchLabels": {"stage": scene.namespace}}});
    let operator = upgraded(scene, selector, true).await?;
    let web = Workload::podless("web").lists("app");
    stamps_new_ones(scene, loses, &web, true).await?;

    let write = async |value: &str| -> Result<()> {
        for namespace in [&scene.namespace, loses, gains] {
            let config = [config_map("app", value)];
            scene.put_all_in(namespace, &config).await?;
        }
        Ok(())
    };
    write("1").await?;
    for (namespace, is_kept) in [(loses, true), (gains, false)] {
        let web = std::slice::from_ref(&web);
        scene.create_all_in(namespace, web).await?;
        let key = key(scene, namespace).await?;
        ensure!(
            key.is_some() == is_kept,
            "the webhook, {namespace}: {key:?}"
        );
    }
    write("2").await?;
    right(scene, loses).await?;
    scene.quiet().await?;
    let key_in_gains = key(scene, gains).await?;
    ensure!(key_in_gains.is_none(), "the loop: {key_in_gains:?}");

    // The loop sees both in this order.
    label(loses, "stage-").await?;
    label(gains, &live).await?;
    right(scene, gains).await?;
    let left = key(scene, loses).await?;
    write("3").await?;
    right(scene, gains).await?;
    scene.quiet().await?;
    let now = key(scene, loses).await?;
    ensure!(now == left, "the loop: {left:?}, {now:?}");

    stamps_new_ones(scene, loses, &web, false).await?;
    stamps_new_ones(scene, gains, &web, true).await?;
    operator.stop().await;
    keeps_its_hash(scene, loses, &web, false).await?;
    keeps_its_hash(scene, gains, &web, true).await
}

/// Upgrades the operator to a selector, and starts it.
async fn upgraded(scene: &Scene, selector: Value, everywhere: bool) -> Result<Operator> {
    let options = Options {
        everywhere,
        values: json!({"watch": selector}),
        ..Options::ignoring()
    };
    scene.operator.stop().await;
    let mut installation = scene.installation.clone();
    installation
        .upgrade(&options.values(&scene.namespace))
        .await?;
    let directory = scene.directory();
    scene.start_replica(&installation, directory, &[]).await
}

/// Waits until the webhook is called, or is not, for a workload that is created.
async fn stamps_new_ones(
    scene: &Scene,
    namespace: &str,
    workload: &Workload,
    is_called: bool,
) -> Result<()> {
    let new = workload.clone().with(&["metadata", "name"], json!("new"));
    let new = new.manifest();
    let what = format!("a hash to be set in {namespace}, {is_called}");
    wait_for(&what, PATIENCE, async || {
        let created = scene.try_create(namespace, &new).await?;
        let key = key_of(&created);
        done_if(key.is_some() == is_called, format!("{key:?}"))
    })
    .await
}

/// Waits until the policy restores a hash that somebody changes, or does not. Without such policies, none does.
async fn keeps_its_hash(
    scene: &Scene,
    namespace: &str,
    workload: &Workload,
    is_kept: bool,
) -> Result<()> {
    let is_kept = is_kept && has_mutating_policies().await?;
    let rubbish =
        json!({"spec": {"template": {"metadata": {"annotations": {CONFIG_HASH: "rubbish"}}}}});
    let name = workload.reference();
    let what = format!("the hash of {namespace}/{name} to be kept, {is_kept}");
    wait_for(&what, PATIENCE, async || {
        let key = key_of(&scene.try_patch(namespace, workload, &rubbish).await?);
        Ok(match key.as_deref() != Some("rubbish") {
            kept if kept == is_kept => Attempt::Done(()),
            _ => Attempt::NotYet(format!("{key:?}")),
        })
    })
    .await
}

/// Waits until `web` in a namespace carries the hash of the current state.
async fn right(scene: &Scene, namespace: &str) -> Result<()> {
    let what = format!("{namespace}/web to carry the hash of what is true");
    wait_for(&what, PATIENCE, async || {
        let object = web(scene, namespace).await?;
        let key = key_of(&object);
        let expected = oracle::config_hash(&scene.client, &object, &scene.installation).await?;
        Ok(match key {
            Some(key) if key == expected => Attempt::Done(()),
            key => Attempt::NotYet(format!("{key:?}, expected {expected}")),
        })
    })
    .await
}

async fn key(scene: &Scene, namespace: &str) -> Result<Option<String>> {
    Ok(key_of(&web(scene, namespace).await?))
}

async fn web(scene: &Scene, namespace: &str) -> Result<Value> {
    scene.object_in(namespace, "deployment/web").await
}
