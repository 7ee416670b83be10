//! Unreadable objects are unknown, not absent: nothing is written because of them, and it is repaired
//! afterwards.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use http::{Method, StatusCode};
use pod_reloader_e2e::proxy::{Answer, Fault, Requests, Rule, RuleInForce};
use pod_reloader_e2e::workload::{Workload, config_map};
use pod_reloader_e2e::{Attempt, Mark, Options, PATIENCE, Scene, wait_for};

#[tokio::test]
async fn a_forbidden_read_is_reported_and_leads_to_no_write() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        let unreadable = changes_unseen(scene, error(StatusCode::FORBIDDEN), 1).await?;
        let note = scene.event(&web(), "ConfigUnreadable").await?;
        ensure!(note.contains("ConfigMap app"), "{note}");
        unreadable.repaired(scene).await
    })
    .await
}

#[tokio::test]
async fn a_failing_read_leads_to_no_write() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        let error = error(StatusCode::INTERNAL_SERVER_ERROR);
        let unreadable = changes_unseen(scene, error, 2).await?;
        unreadable.repaired(scene).await
    })
    .await
}

#[tokio::test]
async fn a_hanging_read_leads_to_no_write() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        // The second read is made after the first was given up.
        let unreadable = changes_unseen(scene, Fault::Hang, 2).await?;
        unreadable.repaired(scene).await
    })
    .await
}

#[tokio::test]
async fn a_workload_made_while_its_config_cannot_be_read_is_stamped_later() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        let made = try_join_all(unreadable().map(async |(fault, name)| {
            let workload = Workload::podless(name).lists(name);
            scene.apply(&[config_map(name, "1")]).await?;
            let unreadable = break_reads(scene, name, fault)?;
            let before = scene.create(&workload).await?;
            ensure!(before.key.is_none(), "{before:?}");
            unreadable.applied(1, Duration::from_secs(1)).await?;
            unreadable.remove();
            right_in_the_end(scene, &workload).await?;
            anyhow::Ok((workload, before))
        }))
        .await?;
        scene.quiet().await?;
        for (workload, before) in made {
            let after = scene.snapshot(&workload).await?;
            ensure!(after.revisions.len() == 2, "{before:?}, {after:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_update_while_the_config_cannot_be_read_leaves_the_hash_unchanged() -> Result<()> {
    Scene::play(Options::proxied(), async |scene| {
        let updated = try_join_all(unreadable().map(async |(fault, name)| {
            let workload = Workload::podless(name).lists(name);
            scene.apply(&[config_map(name, "1")]).await?;
            let before = scene.create(&workload).await?;
            let unreadable = break_reads(scene, name, fault)?;
            scene.apply(&[config_map(name, "2")]).await?;
            unreadable.applied(1, PATIENCE).await?;
            let image = scene
                .create(&workload.clone().image("app:2"))
                .await
                .context("changing the image")?;
            ensure!(image.key == before.key, "{before:?}, {image:?}");
            ensure!(image.revisions.len() == 2, "{before:?}, {image:?}");
            unreadable.remove();
            right_in_the_end(scene, &workload).await?;
            anyhow::Ok((workload, image))
        }))
        .await?;
        scene.quiet().await?;
        for (workload, image) in updated {
            let after = scene.snapshot(&workload).await?;
            ensure!(after.revisions.len() == 3, "{image:?}, {after:?}");
        }
        Ok(())
    })
    .await
}

fn web() -> Workload {
    Workload::podless("web").lists("app")
}

/// Returns each way in which reads fail, with the name of a ConfigMap whose reads fail so.
fn unreadable() -> [(Fault, &'static str); 3] {
    [
        (error(StatusCode::FORBIDDEN), "forbidden"),
        (error(StatusCode::INTERNAL_SERVER_ERROR), "failing"),
        (Fault::Hang, "hanging"),
    ]
}

fn error(code: StatusCode) -> Fault {
    Fault::Answer(Answer::error(code))
}

/// Breaks the operator's reads of one ConfigMap.
fn break_reads(scene: &Scene, name: &str, fault: Fault) -> Result<RuleInForce> {
    let proxy = scene.proxy.as_ref().context("the scene has no proxy")?;
    let path = format!("/api/v1/namespaces/{}/configmaps/{name}", scene.namespace);
    let reads = Requests::exactly(path).method(Method::GET);
    Ok(proxy.add(Rule::new(reads, fault)))
}

/// A workload whose ConfigMap has changed while the operator cannot read it.
struct Unreadable {
    rule: RuleInForce,
    before: pod_reloader_e2e::Snapshot,
    mark: Mark,
}

/// Changes the ConfigMap of `web` while reads of it end in `fault`, until the operator has tried this often.
async fn changes_unseen(scene: &Scene, fault: Fault, tries: u64) -> Result<Unreadable> {
    scene.apply(&[config_map("app", "1")]).await?;
    let before = scene.create(&web()).await?;
    scene.quiet().await?;
    let mark = scene.mark().await?;
    let rule = break_reads(scene, "app", fault)?;
    scene.apply(&[config_map("app", "2")]).await?;
    rule.applied(tries, Duration::from_secs(40)).await?;
    Ok(Unreadable { rule, before, mark })
}

impl Unreadable {
    /// Asserts that nothing was written, and that the hash is once the ConfigMap can be read again.
    async fn repaired(self, scene: &Scene) -> Result<()> {
        let Self { rule, before, mark } = self;
        scene.rolls_not(&web(), &before).await?;
        let requests = scene.requests(mark).await?;
        let writes: Vec<_> = requests
            .iter()
            .filter(|event| event.verb == "patch" && event.name == "web")
            .collect();
        ensure!(writes.is_empty(), "{writes:?}");
        println!("{} reads failed before", rule.hits().applied);
        rule.remove();
        right_in_the_end(scene, &web()).await?;
        scene.rolls_once(&web(), &before).await.map(|_| ())
    }
}

/// Waits until a workload is right, for longer than the loop waits between two tries.
async fn right_in_the_end(scene: &Scene, workload: &Workload) -> Result<()> {
    let what = format!("{} to be repaired", workload.reference());
    wait_for(&what, PATIENCE, async || {
        let expected = scene.expected_key(workload).await?;
        Ok(match scene.key(workload).await? {
            Some(key) if key == expected => Attempt::Done(()),
            key => Attempt::NotYet(format!("{key:?}, expected {expected}")),
        })
    })
    .await
}
