//! Checks at the end that all is well: nothing lost, nothing restarted needlessly, nothing moved back.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use kube::{ResourceExt, api::ListParams};
use pod_reloader_e2e::workload::{Kind, key_of};
use pod_reloader_e2e::{Attempt, CANARY, Scene, oracle, wait_for};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    history::{History, all},
    population::Population,
};

/// Everything that is wrong, one line for each problem.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Workloads without the hash of the current state.
    pub(crate) lost: Vec<String>,
    /// Workloads with more revisions than there were reasons for.
    pub(crate) spurious: Vec<String>,
    /// Workloads whose hash returned after another.
    pub(crate) moved_back: Vec<String>,
    /// Places that reveal a Secret.
    pub(crate) told: Vec<String>,
    /// Time until no workload was wrong.
    pub(crate) convergence: Duration,
}

impl Verdict {
    /// Waits until all is quiet, and checks everything.
    ///
    /// # Errors
    /// When something cannot be read.
    pub(crate) async fn pass(
        scene: &Scene,
        population: &Population,
        history: &History,
    ) -> Result<Self> {
        let began = Instant::now();
        let mut verdict = Self::default();
        let waited = wait_for("each workload to be right", CONVERGENCE, async || {
            verdict.lost = wrong(scene).await?;
            Ok(match verdict.lost.first() {
                None => Attempt::Done(()),
                Some(first) => Attempt::NotYet(first.clone()),
            })
        })
        .await;
        verdict.convergence = began.elapsed();
        // Workloads that are still wrong are reported with the other problems.
        if let (Err(error), true) = (waited, verdict.lost.is_empty()) {
            return Err(error);
        }
        seen_by_their_controllers(scene).await?;
        history.catch_up().await?;
        verdict.look_back(population, history);
        verdict.told = told(scene).await?;
        Ok(verdict)
    }

    fn look_back(&mut self, population: &Population, history: &History) {
        for (at, kept) in population.workloads.iter().enumerate() {
            let name = &kept.workload.name;
            // The workload was never created, as the control plane was down, or it came and went during the
            // outage.
            let Some(life) = history.of(&kept.namespace, name) else {
                continue;
            };
            let may_have = population.may_have_revisions(at) + usize::from(life.began_without());
            if life.revisions.len() > may_have {
                self.spurious.push(format!(
                    "{}/{name} has {} revisions and reasons for {may_have}: {:?}",
                    kept.namespace,
                    life.revisions.len(),
                    life.keys,
                ));
            }
            if life.moved_back() {
                let keys = &life.keys;
                self.moved_back
                    .push(format!("{}/{name}: {keys:?}", kept.namespace));
            }
        }
    }
}

/// Returns the workloads without the hash of the current state.
async fn wrong(scene: &Scene) -> Result<Vec<String>> {
    let mut truth = oracle::Truth::read(&scene.client, &scene.installation).await?;
    let mut wrong = Vec::new();
    for kind in Kind::ALL {
        for object in all(&scene.client, kind.as_str())
            .list(&ListParams::default())
            .await?
        {
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            if !namespace.starts_with("soak-") {
                continue;
            }
            let object: Value = serde_json::to_value(object)?;
            let (key, expected) = (key_of(&object), truth.config_hash(&object).await?);
            if key.as_ref() != Some(&expected) {
                wrong.push(format!("{namespace}/{name} has {key:?}, not {expected}"));
            }
        }
    }
    Ok(wrong)
}

async fn seen_by_their_controllers(scene: &Scene) -> Result<()> {
    let observed = |object: &Value| object["status"]["observedGeneration"].as_i64();
    wait_for(
        "the controllers to have seen the workloads",
        CONVERGENCE,
        async || {
            for kind in Kind::ALL {
                for object in all(&scene.client, kind.as_str())
                    .list(&ListParams::default())
                    .await?
                {
                    if observed(&object.data) < object.metadata.generation {
                        return Ok(Attempt::NotYet(object.name_any()));
                    }
                }
            }
            Ok(Attempt::Done(()))
        },
    )
    .await
}

/// Returns the places in which the operator reveals the content of a Secret.
async fn told(scene: &Scene) -> Result<Vec<String>> {
    let encoded = serde_json::to_value(ByteString(CANARY.into()))?;
    let encoded = encoded.as_str().context("bytes are base64")?.to_owned();
    let events = [
        "get",
        "events.events.k8s.io",
        "--all-namespaces",
        "--output=yaml",
    ];
    let mut places = HashMap::from([("Events".to_owned(), scene.tool().run(&events).await?)]);
    for (at, replica) in scene.processes().enumerate() {
        places.insert(format!("the log of replica {at}"), replica.operator.log()?);
        places.insert(
            format!("the metrics of replica {at}"),
            replica.operator.metrics().await?,
        );
    }
    let tells = |text: &String| text.contains(CANARY) || text.contains(&encoded);
    places.retain(|_, text| tells(text));
    Ok(places
        .into_keys()
        .map(|place| format!("{place} tell of a Secret"))
        .collect())
}

const CONVERGENCE: Duration = Duration::from_secs(120);
