//! Checks after a fault that all is well: nothing lost, nothing restarted needlessly, nothing leaked.

mod failed_calls;
mod history;

use std::{collections::HashSet, fs, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;

pub use self::failed_calls::FailedCalls;
use self::history::History;
use crate::{
    installation::has_own_values,
    operator::Operator,
    oracle::Truth,
    scene::Scene,
    wait::{Attempt, PATIENCE, wait_for},
    workload::{Kind, Workload, key_of},
};

/// Prefix of the values of Secrets, so that they can be recognised wherever they should not be. Its length is
/// a multiple of three, so that it also shows in base64.
pub const CANARY: &str = "hunter2-canary-";

/// Watches over some workloads of a scene while faults come and go.
pub struct Oracles<'a> {
    scene: &'a Scene,
    workloads: Vec<Workload>,
    history: History,
    failed_calls: FailedCalls,
}

/// The allowed effects of a fault.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// Number of new revisions of each workload: one for each change of its content or template.
    pub revisions: usize,
    /// Least number of those revisions that each workload must have.
    pub at_least: usize,
    /// Writes that failed because of the webhook, or bypassed it. Checked only on a control plane of its own.
    pub failed_calls: FailedCalls,
    /// Time limit for all hashes to be right, once the operator is quiet.
    pub within: Duration,
}

impl Expected {
    /// Expects exactly this number of new revisions of each workload, and no failed call of the webhook.
    pub fn revisions(revisions: usize) -> Self {
        Self {
            revisions,
            at_least: revisions,
            failed_calls: FailedCalls::default(),
            within: convergence(),
        }
    }

    /// Expects at least one new revision of each workload and at most this number, for changes that may be
    /// seen together.
    pub fn up_to(revisions: usize) -> Self {
        Self {
            at_least: 1,
            ..Self::revisions(revisions)
        }
    }
}

impl<'a> Oracles<'a> {
    /// Begins with the workloads' current state, as soon as their controllers have seen it.
    ///
    /// # Errors
    /// When something cannot be read.
    pub async fn begin(scene: &'a Scene, workloads: &[Workload]) -> Result<Self> {
        let mut oracles = Self {
            scene,
            workloads: workloads.to_vec(),
            history: History::begin(&scene.client, &scene.namespace).await?,
            failed_calls: failed_calls(scene).await?,
        };
        let objects = oracles.seen_by_their_controllers().await?;
        oracles.history.catch_up(&objects).await?;
        oracles.history.turn_the_page();
        Ok(oracles)
    }

    /// Returns the workloads that are watched over.
    pub fn workloads(&self) -> &[Workload] {
        &self.workloads
    }

    /// Asserts that all is well soon after the operator is quiet, and begins anew.
    ///
    /// # Errors
    /// When all is not well, with what is wrong.
    pub async fn check(&mut self, row: &str, expected: Expected) -> Result<()> {
        self.checked(expected)
            .await
            .with_context(|| format!("after: {row}"))
    }

    async fn checked(&mut self, expected: Expected) -> Result<()> {
        self.scene.quiet().await?;
        self.all_right(expected.within).await?;
        self.no_needless_rollout(expected).await?;
        for replica in self.scene.processes() {
            bounded(&replica.operator)?;
            self.clear(&replica.operator).await?;
        }
        let failed_calls = failed_calls(self.scene).await?;
        let new = failed_calls.since(self.failed_calls);
        ensure!(
            new == expected.failed_calls || !self.scene.control_plane.is_own(),
            "calls of the webhook: {new:?}, expected {:?}",
            expected.failed_calls
        );
        self.failed_calls = failed_calls;
        self.history.turn_the_page();
        Ok(())
    }

    /// Waits until each workload carries the hash of the current state.
    async fn all_right(&self, within: Duration) -> Result<()> {
        let mut wrong = self.workloads.clone();
        wait_for(
            "each workload to carry the hash of what is true",
            within,
            async || {
                let mut truth = Truth::read(&self.scene.client, &self.scene.installation).await?;
                let mut still_wrong = Vec::new();
                let objects = self.objects(&wrong).await?;
                for (workload, object) in wrong.drain(..).zip(objects) {
                    if key_of(&object) != Some(truth.config_hash(&object).await?) {
                        still_wrong.push(workload);
                    }
                }
                wrong = still_wrong;
                Ok(match wrong.first() {
                    None => Attempt::Done(()),
                    Some(first) => Attempt::NotYet(format!(
                        "{} are wrong, among them {}",
                        wrong.len(),
                        first.reference()
                    )),
                })
            },
        )
        .await
    }

    /// Reads the workloads as stored, which may differ from what the apiserver has cached.
    async fn objects(&self, workloads: &[Workload]) -> Result<Vec<Value>> {
        let reads = workloads.iter().map(|workload| async {
            let api = self.api(workload.kind);
            let object = api.get(&workload.name).await?;
            anyhow::Ok(serde_json::to_value(object)?)
        });
        stream::iter(reads).buffered(AT_ONCE).try_collect().await
    }

    fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("apps", "v1", kind.as_str());
        let resource = ApiResource::from_gvk(&kind);
        Api::namespaced_with(self.scene.client.clone(), &self.scene.namespace, &resource)
    }

    async fn no_needless_rollout(&self, expected: Expected) -> Result<()> {
        let objects = self.seen_by_their_controllers().await?;
        self.history.catch_up(&objects).await?;
        for object in objects {
            let (name, uid) = (&object["metadata"]["name"], &object["metadata"]["uid"]);
            let uid = uid.as_str().context("a workload has a UID")?;
            let new = self.history.new_revisions(uid);
            ensure!(
                (expected.at_least..=expected.revisions).contains(&new),
                "{name} has {new} new revisions, expected {expected:?}"
            );
            let keys = self.history.keys(uid);
            ensure!(
                !comes_back(&keys),
                "the hash of {name} came back to what it was: {keys:?}"
            );
        }
        Ok(())
    }

    /// Returns the workloads, once the revisions of their latest generation exist.
    async fn seen_by_their_controllers(&self) -> Result<Vec<Value>> {
        let generation = |object: &Value| object["metadata"]["generation"].as_i64();
        let observed = |object: &Value| object["status"]["observedGeneration"].as_i64();
        wait_for(
            "the controllers to have seen the workloads",
            PATIENCE,
            async || {
                let objects = self.objects(&self.workloads).await?;
                let unseen = objects
                    .iter()
                    .find(|object| observed(object) < generation(object));
                Ok(match unseen {
                    None => Attempt::Done(objects),
                    Some(object) => Attempt::NotYet(object["metadata"]["name"].to_string()),
                })
            },
        )
        .await
    }

    /// Asserts that no value of a Secret shows up anywhere.
    async fn clear(&self, operator: &Operator) -> Result<()> {
        let namespace = &self.scene.namespace;
        let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let events = http::Request::get(events).body(Vec::new())?;
        let told = [
            ("log", operator.log()?),
            // A replica that was stopped has no metrics.
            ("metrics", operator.metrics().await.unwrap_or_default()),
            ("Events", self.scene.client.request_text(events).await?),
        ];
        for (place, text) in told {
            for secret in [CANARY, CANARY_IN_BASE64] {
                ensure!(!text.contains(secret), "a Secret is told in the {place}");
            }
        }
        Ok(())
    }
}

/// Counts the failed calls of the webhook; none on a control plane with other tests, where they are not told apart: the
/// apiserver's metrics are megabytes there.
async fn failed_calls(scene: &Scene) -> Result<FailedCalls> {
    match scene.control_plane.is_own() {
        true => FailedCalls::count(&scene.client).await,
        false => Ok(FailedCalls::default()),
    }
}

/// Asserts that an operator has not ended by itself, and uses no more memory and files than it should.
fn bounded(operator: &Operator) -> Result<()> {
    let process = operator.process();
    process.must_not_end_by_itself()?;
    if process.exit().is_some() {
        return Ok(());
    }
    let directory = format!("/proc/{}", process.pid());
    let status = fs::read_to_string(format!("{directory}/status"))?;
    let peak: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"))
        .context("no VmHWM")?
        .parse()?;
    let files = fs::read_dir(format!("{directory}/fd"))?.count();
    println!("{}: {} MiB, {files} files", process.name(), peak / 1024);
    ensure!(peak < MAX_KIB, "{peak} KiB of memory");
    ensure!(files < MAX_FILES, "{files} files are open");
    Ok(())
}

/// Returns true if a value returns after another: A, B, A.
fn comes_back(keys: &[Option<String>]) -> bool {
    let mut changes = keys.to_vec();
    changes.dedup();
    let distinct: HashSet<_> = changes.iter().collect();
    distinct.len() < changes.len()
}

/// Returns the time in which everything must become right. After several failures, the operator pauses for up to 50
/// seconds.
fn convergence() -> Duration {
    PATIENCE * if has_own_values() { 4 } else { 2 }
}

const CANARY_IN_BASE64: &str = "aHVudGVyMi1jYW5hcnkt";
const MAX_KIB: u64 = 128 * 1024;
const MAX_FILES: usize = 200;
const AT_ONCE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &str) -> Vec<Option<String>> {
        keys.chars().map(|key| Some(key.to_string())).collect()
    }

    #[test]
    fn a_hash_that_was_left_must_not_come_back() {
        assert!(!comes_back(&keys("")));
        assert!(!comes_back(&keys("aabbc")));
        assert!(comes_back(&keys("abba")));
    }

    #[test]
    fn the_canary_in_base64_is_the_canary() {
        let encoded = serde_json::to_value(k8s_openapi::ByteString(CANARY.into()));

        assert_eq!(encoded.ok(), Some(Value::from(CANARY_IN_BASE64)));
    }
}
