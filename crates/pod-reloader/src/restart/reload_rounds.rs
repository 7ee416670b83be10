//! Runs the rounds in which pods reload changed config, beside the passes of the loop, and remembers how far the one of a
//! workload is.
//!
//! A pass never waits for pods: it begins a round, and the end of the round brings the workload back into the queue.
//!
//! Its rule is `pod_reloader_core::reload_round`.

mod calls;
mod play;

use std::collections::BTreeSet;
use std::sync::Arc;
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

/// What runs rounds.
pub(crate) struct Reloads {
    calls: Arc<Calls>,
    reach: Reach,
    worker: Arc<Worker<WorkloadId>>,
}

/// The reloads of one workload. Dropping it ends its round.
#[derive(Default)]
pub(crate) struct Reload {
    /// The tracked objects as they were when a pass last found that the pods have the right content.
    had: Option<Had>,
    /// The objects because of which rounds have begun since.
    touched: BTreeSet<Reference>,
    round: Option<Running>,
}

/// A round for the content of one config hash.
struct Running {
    config_hash: Box<str>,
    /// The time when it ends at the latest.
    until: Instant,
    task: AbortOnDropHandle<()>,
    /// The outcome, once it has ended: the number of pods that have reloaded.
    outcome: Arc<Mutex<Option<Result<usize, Failed>>>>,
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
            calls: Arc::new(Calls::new(client, budget, ask)),
            reach,
            worker,
        }
    }

    /// Begins a round of a workload for the content of `config_hash`. Returns when it ends at the latest.
    pub(crate) fn begin(&self, own: &mut Reload, begin: Begin<'_>) -> Instant {
        let (id, reload) = (begin.id, begin.reload);
        let now = Instant::now();
        let until = deadline(reload, now.into_std()).into();
        let played = play(Play {
            round: Round::new(reload, begin.config_created, self.reach, now.into_std()),
            id: id.clone(),
            selector: reload.selector.to_string(),
            path: reload.target.path.clone(),
            calls: self.calls.clone(),
        });
        // The task before must not outlive this.
        own.round = None;
        let changed = begin.changes.objects.into_iter();
        own.touched.extend(changed.flatten());
        let outcome = Arc::new(Mutex::new(None));
        let (noted, worker, id) = (Arc::downgrade(&outcome), self.worker.clone(), id.clone());
        let task = tokio::spawn(async move {
            let ended = played.await;
            // Otherwise nobody waits for it any more.
            if let Some(outcome) = noted.upgrade() {
                *outcome.lock() = Some(ended);
                worker.push(id, Instant::now());
            }
        });
        own.round = Some(Running {
            config_hash: begin.config_hash.into(),
            until,
            task: AbortOnDropHandle::new(task),
            outcome,
        });
        until
    }
}

impl Reload {
    /// Notes that the pods have these contents, which ends the round.
    pub(crate) fn are_right(&mut self, had: Had) {
        if self.round.is_some() || self.had.as_ref() != Some(&had) {
            *self = Self {
                had: Some(had),
                ..Self::default()
            };
        }
    }

    /// Ends the round. Returns true if there was one.
    pub(crate) fn abandon(&mut self) -> bool {
        self.round.take().is_some()
    }

    /// Returns how far the round for this config hash is. Ends a round for another one.
    pub(crate) fn stand(&mut self, config_hash: &str) -> Option<Stand> {
        let round = self.round.take();
        self.round = round.filter(|round| *round.config_hash == *config_hash);
        self.round.as_ref().map(Running::stand)
    }

    /// Returns the changes that lie between what the pods have and these contents.
    ///
    /// # Errors
    ///
    /// Returns an object whose change does not reach running pods, if that is known of one.
    pub(crate) fn changes(
        &self,
        contents: &Contents<'_>,
        reload: &HttpReload,
    ) -> Result<Changes, Option<Reference>> {
        let Some(had) = &self.had else {
            let obstacle = obstacle_among(contents, reload);
            return obstacle.map_or(Ok(Changes { objects: None }), |it| Err(Some(it)));
        };
        let now = Had::of(contents);
        let mut objects: BTreeSet<_> = had.changes(&now).into_iter().cloned().collect();
        objects.extend(self.touched.iter().cloned());
        let is_lost = |it: &&Reference| !reload.reaches(it);
        let obstacle = had.obstacle(&now, reload);
        let obstacle = obstacle.or_else(|| self.touched.iter().find(is_lost).cloned());
        match (obstacle, objects.is_empty()) {
            (None, false) => Ok(Changes {
                objects: Some(objects),
            }),
            (obstacle, _) => Err(obstacle),
        }
    }
}

impl Running {
    fn stand(&self) -> Stand {
        // Asked for first, because the outcome comes before the end of the task.
        let is_finished = self.task.is_finished();
        match self.outcome.lock().clone() {
            Some(outcome) => Stand::Ended(outcome),
            // A task that ends without an outcome has panicked.
            None if is_finished => Stand::Ended(Err(Failed::NOT_LISTED)),
            None => Stand::Runs(self.until.max(Instant::now() + LOOK_AGAIN)),
        }
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
