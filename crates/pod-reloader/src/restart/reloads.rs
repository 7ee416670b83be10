//! Remembers which workloads reload changed config, and runs their rounds beside the passes of the loop.
//!
//! A pass never waits for pods: it begins a round, and the end of the round brings the workload back into the queue.

mod calls;
mod play;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use pod_reloader_core::digest::Contents;
use pod_reloader_core::http_reload::{Had, HttpReload, obstacle_among};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::reload_round::{Failed, Reach, Round, deadline};
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use self::calls::Calls;
pub(crate) use self::calls::{Ask, over_http};
use self::play::{Play, play};
use crate::runtime::budget::Budget;
use crate::runtime::client::pod_namespace;
use crate::runtime::worker::Worker;

/// The time after which a workload whose pods reload is looked at again. The end of the round comes first, as a rule.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The workloads whose pods reload changed config.
pub(crate) struct Reloads {
    known: Arc<Mutex<HashMap<WorkloadId, Known>>>,
    calls: Arc<Calls>,
    reach: Reach,
    worker: Arc<Worker<WorkloadId>>,
}

/// The state of one workload. Dropping it ends its round.
#[derive(Default)]
struct Known {
    /// The tracked objects as they were when a pass last found that the pods have the right content.
    had: Option<Had>,
    /// The objects because of which rounds have begun since.
    touched: BTreeSet<Reference>,
    round: Option<Running>,
}

/// A round for the content of one config hash.
struct Running {
    config_hash: Box<str>,
    state: State,
}

enum State {
    Runs {
        until: Instant,
        task: AbortOnDropHandle<()>,
    },
    Ended(Result<usize, Failed>),
}

/// The state of the round of a workload.
pub(crate) enum Stand {
    /// Runs, and ends then at the latest.
    Runs(Instant),
    /// Has ended, with so many pods that have reloaded.
    Ended(Result<usize, Failed>),
}

/// The changes that a round is for.
pub(crate) struct Changes {
    /// The objects. `None` if nobody knows which of them have changed.
    pub(crate) objects: Option<BTreeSet<Reference>>,
}

impl Reloads {
    /// Returns the reloads of one term. The end of a round puts its workload into the queue of `worker`.
    pub(crate) fn new(
        client: Client,
        budget: Budget,
        ask: Ask,
        worker: Arc<Worker<WorkloadId>>,
    ) -> Self {
        let reach = match pod_namespace() {
            Some(_) => Reach::Pods,
            None => Reach::PodsAndLoopback,
        };
        Self {
            known: Arc::default(),
            calls: Arc::new(Calls::new(client, budget, ask)),
            reach,
            worker,
        }
    }

    /// Notes that the pods of a workload have these contents, which ends its round.
    pub(crate) fn are_right(&self, id: &WorkloadId, contents: &Contents<'_>) {
        let had = Had::of(contents);
        let mut known = self.known.lock();
        let known = known.entry(id.clone()).or_default();
        if known.round.is_some() || known.had.as_ref() != Some(&had) {
            *known = Known {
                had: Some(had),
                ..Known::default()
            };
        }
    }

    /// Ends the round of a workload. Returns true if it had one.
    pub(crate) fn abandon(&self, id: &WorkloadId) -> bool {
        let mut known = self.known.lock();
        let round = known.get_mut(id).and_then(|it| it.round.take());
        round.is_some()
    }

    /// Forgets a workload, and ends its round.
    pub(crate) fn forget(&self, id: &WorkloadId) {
        self.known.lock().remove(id);
    }

    /// Returns how far the round of a workload for this config hash is. Ends a round for another one.
    pub(crate) fn stand(&self, id: &WorkloadId, config_hash: &str) -> Option<Stand> {
        let mut known = self.known.lock();
        let known = known.get_mut(id)?;
        let round = known.round.take();
        known.round = round.filter(|it| *it.config_hash == *config_hash);
        Some(match &known.round.as_ref()?.state {
            // A task that ends without an outcome has panicked.
            State::Runs { task, .. } if task.is_finished() => Stand::Ended(Err(Failed::NOT_LISTED)),
            State::Runs { until, .. } => Stand::Runs((*until).max(Instant::now() + LOOK_AGAIN)),
            State::Ended(outcome) => Stand::Ended(outcome.clone()),
        })
    }

    /// Returns the changes that lie between what the pods of a workload have and these contents.
    ///
    /// # Errors
    ///
    /// Returns an object whose change does not reach running pods, if that is known of one.
    pub(crate) fn changes(
        &self,
        id: &WorkloadId,
        contents: &Contents<'_>,
        reload: &HttpReload,
    ) -> Result<Changes, Option<Reference>> {
        let all_known = self.known.lock();
        let known = all_known.get(id);
        let Some((had, known)) = known.and_then(|known| Some((known.had.as_ref()?, known))) else {
            let obstacle = obstacle_among(contents, reload);
            return obstacle.map_or(Ok(Changes { objects: None }), |it| Err(Some(it)));
        };
        let now = Had::of(contents);
        let mut objects: BTreeSet<_> = had.changes(&now).into_iter().cloned().collect();
        objects.extend(known.touched.iter().cloned());
        let is_lost = |it: &&Reference| !reload.reaches(it);
        let obstacle = had.obstacle(&now, reload);
        let obstacle = obstacle.or_else(|| known.touched.iter().find(is_lost).cloned());
        match (obstacle, objects.is_empty()) {
            (None, false) => Ok(Changes {
                objects: Some(objects),
            }),
            (obstacle, _) => Err(obstacle),
        }
    }

    /// Begins a round for the content of `config_hash`. Returns when it ends at the latest.
    pub(crate) fn begin(&self, begin: Begin<'_>) -> Instant {
        let Begin {
            id,
            reload,
            config_hash,
            changes,
            config_created,
        } = begin;
        let now = Instant::now();
        let until = deadline(reload, now.into_std()).into();
        let played = play(Play {
            round: Round::new(reload, config_created, self.reach, now.into_std()),
            id: id.clone(),
            selector: reload.selector.to_string(),
            path: reload.target.path.clone(),
            calls: self.calls.clone(),
        });
        let (known, worker) = (Arc::downgrade(&self.known), self.worker.clone());
        let (own, hash) = (id.clone(), Box::<str>::from(config_hash));
        let mut all = self.known.lock();
        let entry = all.entry(id.clone()).or_default();
        // The task before must not outlive this.
        entry.round = None;
        entry.touched.extend(changes.objects.into_iter().flatten());
        let task = tokio::spawn(async move {
            let outcome = played.await;
            if note(&known, &own, &hash, outcome) {
                worker.push(own, Instant::now());
            }
        });
        entry.round = Some(Running {
            config_hash: config_hash.into(),
            state: State::Runs {
                until,
                task: AbortOnDropHandle::new(task),
            },
        });
        until
    }
}

/// A round that is about to begin.
pub(crate) struct Begin<'a> {
    pub(crate) id: &'a WorkloadId,
    pub(crate) reload: &'a HttpReload,
    pub(crate) config_hash: &'a str,
    pub(crate) changes: Changes,
    /// The time when the youngest of the changed objects was created.
    pub(crate) config_created: Option<jiff::Timestamp>,
}

/// Notes how a round has ended. Returns false if nobody waits for it any more.
fn note(
    known: &Weak<Mutex<HashMap<WorkloadId, Known>>>,
    id: &WorkloadId,
    config_hash: &str,
    outcome: Result<usize, Failed>,
) -> bool {
    let Some(known) = known.upgrade() else {
        return false;
    };
    let mut known = known.lock();
    let round = known.get_mut(id).and_then(|it| it.round.as_mut());
    let Some(round) = round.filter(|it| *it.config_hash == *config_hash) else {
        return false;
    };
    round.state = State::Ended(outcome);
    true
}
