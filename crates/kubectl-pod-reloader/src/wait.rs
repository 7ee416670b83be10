//! `wait`: until nothing is pending for workloads and their rollouts are done.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_reloader::args::Reconcile;
use pod_reloader_core::standing::Standing;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::args::Target;
use crate::cluster::{Cluster, Unseen};
use crate::operators::Operators;
use crate::print::{Answer, Verdict, by};
use crate::rollout::Rollout;
use crate::workloads::{self, Inquiry};

/// How often each workload is looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// What came of waiting.
#[derive(Debug, Serialize)]
pub(crate) struct Waited {
    workloads: Vec<Outcome>,
}

#[derive(Debug, Serialize)]
struct Outcome {
    /// As it is typed: `deployment/web`.
    workload: String,
    /// Whether nothing is pending, and its rollout is done.
    done: bool,
    /// How it is.
    state: String,
    #[serde(skip)]
    verdict: Verdict,
}

/// How a workload is now.
enum State {
    /// Nothing is pending.
    Done(String),
    /// It may come to that by itself.
    Pending(String),
    /// It does not come to that by itself, or nobody can tell.
    Over(Verdict, String),
}

/// Waits for `targets`, or for all workloads of the namespace that are kept; not longer than `timeout`.
///
/// Says on standard error how it goes.
pub(crate) async fn wait(
    cluster: &Cluster,
    operators: &Operators,
    targets: &[Target],
    timeout: Duration,
) -> Result<(Waited, Verdict), Unseen> {
    let deadline = Instant::now() + timeout;
    let mut targets = targets.to_vec();
    if targets.is_empty() {
        let (all, unseen) = workloads::list(cluster, operators, Some(&cluster.namespace)).await;
        for error in unseen {
            eprintln!("not seen: {error}");
        }
        let kept = all.iter().filter(|seen| seen.obstacle.is_none());
        targets = kept
            .map(|seen| Target {
                kind: seen.workload.id.kind.shape().plural.to_owned()
                    + "."
                    + seen.workload.id.kind.shape().group,
                name: seen.workload.id.name.to_string(),
            })
            .collect();
    }
    let mut told = BTreeMap::new();
    let mut outcomes = Vec::new();
    for target in &targets {
        let name = format!("{}/{}", target.kind, target.name);
        let outcome = loop {
            let (verdict, state) = match state(cluster, operators, target).await? {
                State::Done(state) => (Verdict::Good, state),
                State::Over(verdict, state) => (verdict, state),
                State::Pending(state) if Instant::now() < deadline => {
                    if told.get(&name) != Some(&state) {
                        eprintln!("{name}: {state}");
                        told.insert(name.clone(), state);
                    }
                    sleep(INTERVAL).await;
                    continue;
                }
                State::Pending(state) => (Verdict::Bad, format!("not in time: {state}")),
            };
            break Outcome {
                workload: name,
                done: verdict == Verdict::Good,
                state,
                verdict,
            };
        };
        outcomes.push(outcome);
    }
    let verdict = outcomes.iter().map(|outcome| outcome.verdict).max();
    let waited = Waited {
        workloads: outcomes,
    };
    Ok((waited, verdict.unwrap_or(Verdict::Good)))
}

async fn state(cluster: &Cluster, operators: &Operators, target: &Target) -> Result<State, Unseen> {
    let seen = workloads::get(cluster, operators, target).await?;
    let standing = match &seen.obstacle {
        Some(obstacle) => Err(format!("it is not kept: {obstacle}")),
        None => match seen.inquire(cluster).await {
            Inquiry::Answered(report) => Ok(report.standing),
            Inquiry::Unanswered => {
                return Ok(State::Pending(
                    "the webhook of pod-reloader does not answer".to_owned(),
                ));
            }
            Inquiry::Impossible(error) if error.is_forbidden() => {
                let text = format!("{error}: only a dry run of that lets pod-reloader tell");
                return Ok(State::Over(Verdict::Unknown, text));
            }
            Inquiry::Impossible(error) => return Ok(State::Pending(error.to_string())),
        },
    };
    let pending = match &standing {
        Err(_) | Ok(Standing::Current | Standing::NotKept) => None,
        Ok(Standing::Due(_)) => Some("a restart is due"),
        Ok(Standing::Waiting) => Some("its pods could not start: objects or keys are missing"),
        Ok(Standing::BaselineDue) => Some("a baseline is due"),
        Ok(Standing::Unknown) => Some("pod-reloader cannot read its objects"),
    };
    if let Some(pending) = pending {
        let reconcile = seen.operator.map(|it| it.args.reconcile);
        let is_idle = reconcile.is_some_and(|it| it != Reconcile::On);
        return Ok(match is_idle {
            true => State::Over(
                Verdict::Bad,
                format!("{pending}, but the operator does not restart anything"),
            ),
            false => State::Pending(pending.to_owned()),
        });
    }
    // Once more: what the operator told may have been about a newer template.
    let seen = workloads::get(cluster, operators, target).await?;
    let remark = standing
        .err()
        .map(|obstacle| format!(" ({obstacle})"))
        .unwrap_or_default();
    let rollout = Rollout::of(seen.workload.id.kind, &seen.object);
    let text = format!("{}{remark}", rollout.text());
    Ok(match rollout {
        Rollout::Done(_) => State::Done(text),
        Rollout::Running(_) => State::Pending(text),
        Rollout::Stopped(_) => State::Over(Verdict::Bad, text),
        Rollout::Unknown => State::Done(format!("nothing is pending; its rollout is {text}")),
    })
}

impl Answer for Waited {
    fn text(&self) -> String {
        let line = |outcome: &Outcome| {
            let state = by(outcome.verdict, &outcome.state);
            format!("{}: {state}\n", outcome.workload)
        };
        self.workloads.iter().map(line).collect()
    }
}
