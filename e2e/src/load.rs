//! Writes to workloads that go on while something is broken.

use std::{cell::Cell, fmt, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::{try_join, try_join_all};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    audit::Mark,
    scene::Scene,
    workload::{Workload, config_map},
};

/// The durations of many calls, sorted.
#[derive(Clone, Debug)]
pub struct Latencies(Vec<Duration>);

impl From<Vec<Duration>> for Latencies {
    fn from(mut took: Vec<Duration>) -> Self {
        took.sort();
        Self(took)
    }
}

impl Latencies {
    /// Returns the time within which `share` percent of the calls were done.
    pub fn of_a_hundred(&self, share: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get(last * share / 100).copied().unwrap_or_default()
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, most, all] = [50, 99, 100].map(|share| self.of_a_hundred(share));
        let count = self.0.len();
        write!(
            f,
            "{count} within {median:?} (median), {most:?} (99 of 100), {all:?} (all)"
        )
    }
}

/// Runs `test` while `writers` update Deployments through the apiserver: mostly labels, now and then the
/// template. Each of them writes ten times at least, however soon the test ends. Asserts that no write fails, and that
/// the webhook was called for each.
///
/// # Errors
/// Errors of the test, and the first write that fails or bypasses the webhook.
pub async fn under_load<T>(
    scene: &Scene,
    writers: usize,
    test: impl Future<Output = Result<T>>,
) -> Result<(T, Latencies)> {
    let names: Vec<_> = (0..writers)
        .map(|number| format!("load-{number}"))
        .collect();
    let workloads = names.iter().map(|name| {
        let workload = Workload::deployment(name).lists("load");
        workload.with(&["spec", "replicas"], json!(0)).manifest()
    });
    let manifests: Vec<_> = [config_map("load", "1")]
        .into_iter()
        .chain(workloads)
        .collect();
    scene.apply(&manifests).await?;
    let mark = scene.mark().await?;
    let ended = Cell::new(false);
    let test = async {
        let outcome = test.await;
        ended.set(true);
        outcome
    };
    let writes = try_join_all(names.iter().map(|name| write(scene, name, &ended)));
    let (outcome, latencies) = try_join(test, writes).await?;
    let latencies = latencies.concat();
    all_called(scene, mark, latencies.len()).await?;
    Ok((outcome, latencies.into()))
}

/// Updates one Deployment again and again until the test has ended, [`FEWEST`] times at least.
async fn write(scene: &Scene, name: &str, ended: &Cell<bool>) -> Result<Vec<Duration>> {
    let deployments: Api<Deployment> = Api::namespaced(scene.client.clone(), &scene.namespace);
    let mut latencies = Vec::new();
    while !ended.get() || latencies.len() < FEWEST {
        let labels = json!({"labels": {"n": latencies.len().to_string()}});
        let patch = match latencies.len() % 10 {
            0 => json!({"spec": {"template": {"metadata": labels}}}),
            _ => json!({"metadata": labels}),
        };
        let began = Instant::now();
        deployments
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("{patch} to {name} after {:?}", began.elapsed()))?;
        latencies.push(began.elapsed());
        sleep(PAUSE).await;
    }
    Ok(latencies)
}

/// Asserts that the webhook was called for each write of Deployments since `mark`, and that there were at
/// least `count`.
///
/// # Errors
/// When it was not called for one, or there were fewer.
pub async fn all_called(scene: &Scene, mark: Mark, count: usize) -> Result<()> {
    let mut writes = scene.requests_naming(&scene.namespace, mark).await?;
    writes.retain(|request| {
        request.namespace == scene.namespace
            && request.resource == "deployments"
            && request.subresource.is_empty()
            && request.verb == "patch"
            && request.user != scene.installation.username()
    });
    ensure!(writes.len() >= count, "only {} writes", writes.len());
    for write in writes {
        let noted = |prefix| write.annotations.keys().any(|key| key.starts_with(prefix));
        let called = noted("mutation.webhook.admission.k8s.io/");
        let passed_by = noted("failed-open.mutation.webhook.admission.k8s.io/");
        ensure!(called && !passed_by, "{write:?}");
    }
    Ok(())
}

/// The number of writes that a writer makes if the test ends sooner.
const FEWEST: usize = 10;
/// Pause between two writes of one writer.
const PAUSE: Duration = Duration::from_millis(50);
