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
use crate::workloads::{self, Inquiry, Seen};

/// How often each workload is looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longer than anybody waits.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

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
) -> (Waited, Verdict) {
    let deadline = Instant::now() + timeout.min(MAX_TIMEOUT);
    let mut unseen = operators.unseen.clone();
    let targets = match targets.is_empty() {
        false => targets.to_vec(),
        true => {
            let (all, unlisted) =
                workloads::list(cluster, operators, Some(&cluster.namespace)).await;
            unseen.extend(unlisted);
            let kept = all.iter().filter(|seen| seen.obstacle.is_none());
            kept.map(Seen::target).collect()
        }
    };
    for error in &unseen {
        eprintln!("not seen: {error}");
    }
    let mut told = BTreeMap::new();
    // Until all are done at once: one may become due while another is waited for.
    let workloads = loop {
        let mut outcomes = Vec::new();
        let mut is_pending = false;
        for target in &targets {
            let name = format!("{}/{}", target.kind, target.name);
            let (verdict, state) = match state(cluster, operators, target).await {
                State::Done(state) => (Verdict::Good, state),
                State::Over(verdict, state) => (verdict, state),
                State::Pending(state) => {
                    is_pending = true;
                    if told.get(&name) != Some(&state) {
                        eprintln!("{name}: {state}");
                        told.insert(name.clone(), state.clone());
                    }
                    (Verdict::Bad, format!("not in time: {state}"))
                }
            };
            outcomes.push(Outcome {
                workload: name,
                done: verdict == Verdict::Good,
                state,
                verdict,
            });
        }
        if !is_pending || Instant::now() >= deadline {
            break outcomes;
        }
        sleep(INTERVAL).await;
    };
    let verdicts = workloads.iter().map(|outcome| outcome.verdict);
    // Of all of a namespace, some may not have been seen.
    let of_list = match workloads.is_empty() && !unseen.is_empty() {
        true => Verdict::Unknown,
        false => Verdict::Good,
    };
    let verdict = verdicts.max().unwrap_or(of_list);
    (Waited { workloads }, verdict)
}

async fn state(cluster: &Cluster, operators: &Operators, target: &Target) -> State {
    let seen = match workloads::get(cluster, operators, target).await {
        Ok(seen) => seen,
        Err(error) => return State::of(error),
    };
    if let Some(obstacle) = &seen.obstacle {
        return State::Over(Verdict::Bad, format!("it is not kept: {obstacle}"));
    }
    let standing = match seen.inquire(cluster).await {
        Inquiry::Answered(report) => report.standing,
        Inquiry::Unanswered => {
            return State::Pending("the webhook of pod-reloader does not answer".to_owned());
        }
        Inquiry::Impossible(error) if error.is_forbidden() => {
            let text = format!("{error}: only a dry run of that lets pod-reloader tell");
            return State::Over(Verdict::Unknown, text);
        }
        Inquiry::Impossible(error) => return State::of(error),
    };
    let pending = match standing {
        Standing::Current => None,
        Standing::NotKept => {
            let text = "it is not kept: the operator does not look after it";
            return State::Over(Verdict::Bad, text.to_owned());
        }
        Standing::Due(_) => Some("a restart is due"),
        Standing::Waiting => Some("its pods could not start: objects or keys are missing"),
        Standing::BaselineDue => Some("a baseline is due"),
        Standing::Unknown => Some("pod-reloader cannot read its objects"),
    };
    if let Some(pending) = pending {
        let reconcile = seen.operator.map(|it| it.args.reconcile);
        let is_idle = reconcile.is_some_and(|it| it != Reconcile::On);
        return match is_idle {
            true => State::Over(
                Verdict::Bad,
                format!("{pending}, but the operator does not restart anything"),
            ),
            false => State::Pending(pending.to_owned()),
        };
    }
    // Once more: what the operator told may have been about a newer template.
    let seen = match workloads::get(cluster, operators, target).await {
        Ok(seen) => seen,
        Err(error) => return State::of(error),
    };
    let rollout = Rollout::of(&seen.workload, &seen.object);
    match rollout {
        Rollout::Done(text) => State::Done(text),
        Rollout::Running(text) => State::Pending(text),
        Rollout::Stopped(text) => State::Over(Verdict::Bad, text),
        Rollout::Unknown(text) => {
            let text = format!("nothing is pending; its rollout is {text}");
            State::Over(Verdict::Unknown, text)
        }
    }
}

impl State {
    /// What an error means: what is not there does not come, and what fails now may not the next time.
    fn of(error: Unseen) -> Self {
        match error {
            Unseen::Absent(_) => Self::Over(Verdict::Bad, error.to_string()),
            Unseen::Forbidden(_) => Self::Over(Verdict::Unknown, error.to_string()),
            Unseen::Refused { .. } | Unseen::Unreachable(..) => Self::Pending(error.to_string()),
        }
    }
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
