//! Limits: no more rollouts are under way at once than their users allow, and everybody gets a turn.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use pod_reloader_e2e::workload::{CONFIG_HASH, Workload, config_map};
use pod_reloader_e2e::{Options, PATIENCE, Scene, full};
use serde_json::json;
use tokio::time::timeout;

#[tokio::test]
async fn a_change_of_many_keeps_to_the_part_of_the_limit_of_one_namespace_there_and_back()
-> Result<()> {
    const LIMIT: usize = 5;
    let size = if full() { 200 } else { 15 };
    // One namespace has half of it.
    let options = Options::with_values(json!({"maxConcurrentRestarts": {"cluster": 2 * LIMIT}}));
    Scene::play(options, async |scene| {
        scene.apply(&[config_map("app", "1")]).await?;
        let web = |number| Workload::deployment(&format!("w{number:03}")).lists("app");
        let all: Vec<_> = (0..size).map(web).collect();
        scene.create_all(&all).await?;
        let mut rollouts = Rollouts::now(scene).await?;
        rollouts.end(&all).await?;
        // The way back is to ReplicaSets that exist already.
        for content in ["2", "1"] {
            let before = rollouts.versions.clone();
            scene.apply(&[config_map("app", content)]).await?;
            let most = rollouts.each_restarts(&all).await?;
            ensure!(most == LIMIT, "{most} rollouts were under way at once");
            let mut begun = std::mem::take(&mut rollouts.begun);
            begun.sort();
            ensure!(begun.iter().eq(all.iter().map(|it| &it.name)), "{begun:?}");
            scene.quiet().await?;
            let after = Rollouts::now(scene).await?.versions;
            for Workload { name, .. } in &all {
                let (before, after) = (&before[name], &after[name]);
                let changes = after.generation - before.generation;
                ensure!(changes == 1, "{name}: {before:?}, {after:?}");
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn stuck_rollouts_hold_up_the_stages_of_others_until_their_deadline_through_a_kill()
-> Result<()> {
    const LIMIT: usize = 2;
    const DEADLINE: Duration = Duration::from_secs(5);
    let options = Options::with_values(json!({
        "maxConcurrentRestarts": {"namespace": LIMIT},
        "staged": {"soak": "1s", "deadline": "10s"},
    }));
    Scene::play(options, async |scene| {
        scene
            .apply(&[config_map("app", "1"), config_map("stuck", "1")])
            .await?;
        let stuck = ["stuck-0", "stuck-1"].map(never_available);
        let mut web: Vec<_> = (0..5).map(|number| in_stage(number, "1")).collect();
        web[4] = in_stage(4, "0");
        scene.create_all(&stuck).await?;
        scene.create_all(&web).await?;
        let mut rollouts = Rollouts::now(scene).await?;
        rollouts.end(&web).await?;

        let mark = scene.mark().await?;
        scene.apply(&[config_map("stuck", "2")]).await?;
        for workload in &stuck {
            scene.right(workload).await?;
        }
        scene.apply(&[config_map("app", "2")]).await?;
        let note = scene.event(&web[4], "WaitingForSlot").await?;
        let why = "2 rollouts are in progress, which is the limit of the namespace";
        ensure!(note.ends_with(why), "{note}");
        // For the present leader, a rollout keeps the deadline with which it began.
        let deadline = format!("{}s", DEADLINE.as_secs());
        let sooner = json!({"metadata": {"annotations": {DEADLINE_ANNOTATION: deadline}}});
        for workload in &stuck {
            scene.patch(workload, &sooner).await?;
        }
        // The next leader sees what is under way.
        scene.operator.process().kill().await;
        let killed = Timestamp::now();
        scene.operator.start_again().await?;
        let most = rollouts.each_restarts(&web).await?;
        ensure!(most <= LIMIT, "{most} rollouts were under way at once");
        let begun = &rollouts.begun;
        ensure!(begun.len() == web.len() && begun[0] == "w4", "{begun:?}");

        let requests = scene.requests(mark).await?;
        let patched = |name: &str| {
            let patch = requests
                .iter()
                .find(|it| it.verb == "patch" && it.name == name);
            let patch = patch.with_context(|| format!("no patch of {name}"))?;
            anyhow::Ok(patch.received)
        };
        let held_up: Duration = patched("w4")?.duration_since(killed).try_into()?;
        ensure!(held_up >= DEADLINE, "only for {held_up:?}");
        let soaked = patched(&begun[1])?.duration_since(patched("w4")?);
        ensure!(soaked.as_secs_f64() > 0.8, "only for {soaked:?}");
        Ok(())
    })
    .await
}

/// Returns a Deployment whose pods take an hour to count as available, which is also its deadline.
fn never_available(name: &str) -> Workload {
    Workload::deployment(name)
        .lists("stuck")
        .annotated(DEADLINE_ANNOTATION, "1h")
        .with(&["spec", "minReadySeconds"], json!(3600))
        .with(&["spec", "progressDeadlineSeconds"], json!(7200))
}

fn in_stage(number: usize, stage: &str) -> Workload {
    Workload::deployment(&format!("w{number}"))
        .lists("app")
        .annotated("pod-reloader.cs.sap.com/staged", "configmaps")
        .annotated("pod-reloader.cs.sap.com/stage", stage)
}

const DEADLINE_ANNOTATION: &str = "pod-reloader.cs.sap.com/deadline";

/// The Deployments of a scene, as each of their versions shows them, in the order of the writes.
struct Rollouts {
    api: Api<Deployment>,
    resource_version: String,
    /// The last version of each.
    versions: BTreeMap<String, Version>,
    /// The Deployments that got another config hash, in that order.
    begun: Vec<String>,
}

#[derive(Clone, Debug)]
struct Version {
    key: Option<String>,
    generation: i64,
    /// True if kubectl would say that the rollout was successful.
    is_complete: bool,
}

impl Rollouts {
    /// Looks at all Deployments.
    async fn now(scene: &Scene) -> Result<Self> {
        let api: Api<Deployment> = Api::namespaced(scene.client.clone(), &scene.namespace);
        let list = api.list(&ListParams::default()).await?;
        let versions = list.items.iter().map(Version::of);
        Ok(Self {
            versions: versions.collect(),
            resource_version: list.metadata.resource_version.unwrap_or_default(),
            begun: Vec::new(),
            api,
        })
    }

    /// Follows the Deployments until the rollouts of all of these are complete.
    async fn end(&mut self, all: &[Workload]) -> Result<usize> {
        self.follow(all, |_| true).await
    }

    /// Follows the Deployments until each of these has got another config hash, and its rollout is complete.
    /// Returns how many of them were under way at once.
    async fn each_restarts(&mut self, all: &[Workload]) -> Result<usize> {
        let has_begun = |begun: &[String]| all.iter().all(|it| begun.contains(&it.name));
        self.follow(all, has_begun).await
    }

    async fn follow(
        &mut self,
        all: &[Workload],
        have_begun: impl Fn(&[String]) -> bool,
    ) -> Result<usize> {
        let params = WatchParams::default();
        let events = self.api.watch(&params, &self.resource_version).await?;
        let mut events = events.boxed();
        let mut most = 0;
        loop {
            let under_way = all.iter().filter(|it| !self.versions[&it.name].is_complete);
            let count = under_way.count();
            most = most.max(count);
            if count == 0 && have_begun(&self.begun) {
                return Ok(most);
            }
            let next = timeout(PATIENCE, events.try_next()).await;
            let next =
                next.with_context(|| format!("{count} are under way of {:?}", self.begun))??;
            match next.context("the watch has ended")? {
                WatchEvent::Added(now) | WatchEvent::Modified(now) => self.take_in(all, &now),
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => bail!("{status:?}"),
            }
        }
    }

    fn take_in(&mut self, all: &[Workload], now: &Deployment) {
        let resource_version = now.metadata.resource_version.clone();
        self.resource_version = resource_version.unwrap_or_default();
        let (name, version) = Version::of(now);
        let is_one = all.iter().any(|it| it.name == name);
        if is_one && self.versions[&name].key != version.key {
            self.begun.push(name.clone());
        }
        self.versions.insert(name, version);
    }
}

impl Version {
    /// Returns the name of a Deployment, and how it is.
    fn of(deployment: &Deployment) -> (String, Self) {
        let spec = deployment.spec.clone().unwrap_or_default();
        let status = deployment.status.clone().unwrap_or_default();
        let generation = deployment.metadata.generation.unwrap_or_default();
        let wanted = spec.replicas.unwrap_or(1);
        let annotations = spec.template.metadata.unwrap_or_default().annotations;
        let version = Self {
            key: annotations.and_then(|mut it| it.remove(CONFIG_HASH)),
            generation,
            is_complete: status.observed_generation >= Some(generation)
                && status.replicas.unwrap_or_default() == wanted
                && status.updated_replicas.unwrap_or_default() == wanted
                && status.available_replicas.unwrap_or_default() == wanted,
        };
        (
            deployment.metadata.name.clone().unwrap_or_default(),
            version,
        )
    }
}
