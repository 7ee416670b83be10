//! Limits how many rollouts are under way at once, in the cluster and in each namespace.
//!
//! Every rollout of a managed workload takes a slot, whoever began it, until the workload is healthy or its
//! deadline has passed. Nothing is stored: a new leader sees which rollouts are under way.

mod line;

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_core::limit::{Full, Limits, Rollouts};
use pod_reloader_core::staging::Health;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use self::line::Line;
use crate::restart::phase::Phase;

/// The time after which a workload that waits looks again, if nothing happens earlier.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The rollouts that are under way, and the workloads that wait for one to end.
pub(crate) struct Slots {
    limits: Limits,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    taken: HashMap<WorkloadId, Slot>,
    line: Line,
}

/// A rollout that is under way.
struct Slot {
    /// The generation of the workload that is rolled out. An older state says nothing about it.
    generation: i64,
    /// The time when it counts no longer. It is remembered until the workload is healthy, so that it does not
    /// count anew.
    until: Instant,
}

impl Slots {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            inner: Mutex::default(),
        }
    }

    /// Returns true if anything is limited.
    pub(crate) fn are_limited(&self) -> bool {
        self.limits != Limits::default()
    }

    /// Takes in a workload as it is now. Returns the workloads that may go because of that.
    pub(crate) fn saw(&self, workload: &Workload) -> Vec<WorkloadId> {
        let Some(staging) = workload.staging.as_deref().filter(|_| self.are_limited()) else {
            return Vec::new();
        };
        let mut inner = self.inner.lock();
        let is_rolling = match staging.health {
            _ if workload.stall.is_some() => false,
            // On the way back to an earlier ReplicaSet, the status of a Deployment at first says the same.
            Health::Unavailable => return Vec::new(),
            Health::Rolling => true,
            Health::Healthy | Health::Unknown => false,
        };
        match (is_rolling, inner.taken.get_mut(&workload.id)) {
            (true, None) => inner.take(&workload.id, workload.generation, staging.deadline),
            // Until it is healthy, it is one rollout, however often it is scaled.
            (true, Some(slot)) => slot.generation = slot.generation.max(workload.generation),
            (false, Some(slot)) if slot.generation <= workload.generation => {
                inner.taken.remove(&workload.id);
                return inner.wake(self.limits);
            }
            (false, _) => {}
        }
        Vec::new()
    }

    /// Takes in that nothing is rolled out to a workload: it is gone, or refuses our write. Returns the
    /// workloads that may go because of that.
    pub(crate) fn free(&self, id: &WorkloadId) -> Vec<WorkloadId> {
        let mut inner = self.inner.lock();
        let was_in_line = inner.line.leave(id);
        match inner.taken.remove(id).is_some() || was_in_line {
            true => inner.wake(self.limits),
            false => Vec::new(),
        }
    }

    /// Notes that a pass over a workload begins. Until it ends, the workload keeps its place in the line.
    pub(crate) fn pass_begins(&self, id: &WorkloadId) {
        self.inner.lock().line.pass_begins(id);
    }

    /// Notes that a pass over a workload has ended. If the workload does not wait for a slot, it leaves the line.
    /// Returns the workloads that may go because of that.
    pub(crate) fn pass_ended(&self, id: &WorkloadId) -> Vec<WorkloadId> {
        let mut inner = self.inner.lock();
        match inner.line.pass_ended(id) {
            true => inner.wake(self.limits),
            false => Vec::new(),
        }
    }

    /// Takes a slot for a workload that is about to be restarted, in the commit phase. Before that, the slot stays free for
    /// the workload until its pass ends.
    ///
    /// # Errors
    ///
    /// Returns the limit that keeps it from going, and when to look again, if nothing happens earlier.
    pub(crate) fn take(&self, workload: &Workload, phase: Phase) -> Result<(), (Full, Instant)> {
        let Some(staging) = workload.staging.as_deref() else {
            return Ok(());
        };
        let (id, now) = (&workload.id, Instant::now());
        let mut inner = self.inner.lock();
        // It has a slot already, or nobody could say when it is done.
        let needs_none =
            inner.under_way(now).any(|it| it == id) || staging.health == Health::Unknown;
        if !needs_none && let Err(full) = inner.may_go(id, self.limits, now) {
            inner.line.waits(id);
            let ends = inner.taken.values().map(|slot| slot.until);
            let next = ends.filter(|end| now < *end).min();
            let look_again = now + LOOK_AGAIN;
            return Err((full, next.map_or(look_again, |next| next.min(look_again))));
        }
        if phase == Phase::Commit {
            inner.line.goes(id);
            if staging.health != Health::Unknown && workload.stall.is_none() {
                // The patch makes it the next generation.
                inner.take(id, workload.generation + 1, staging.deadline);
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Notes that a workload is rolled out. Until its deadline, that is one rollout, however often it is tried.
    fn take(&mut self, id: &WorkloadId, generation: i64, deadline: Duration) {
        let now = Instant::now();
        let under_way = self.taken.get(id).filter(|slot| now < slot.until);
        let until = under_way.map_or(now + deadline, |slot| slot.until);
        self.taken.insert(id.clone(), Slot { generation, until });
    }

    /// Returns the workloads whose rollouts are under way and count.
    fn under_way(&self, now: Instant) -> impl Iterator<Item = &WorkloadId> {
        let taken = self.taken.iter();
        taken.filter_map(move |(id, slot)| (now < slot.until).then_some(id))
    }

    fn rollouts(&self, limits: Limits, now: Instant) -> Rollouts {
        Rollouts::new(limits, self.under_way(now).map(|id| &id.namespace))
    }

    /// Puts a workload into the line. Returns the limit that keeps it from going, if it is not its turn.
    fn may_go(&mut self, id: &WorkloadId, limits: Limits, now: Instant) -> Result<(), Full> {
        self.line.join(id);
        let mut rollouts = self.rollouts(limits, now);
        // Most of those that wait need not be compared with the others.
        if let Some(full) = rollouts.full(&id.namespace) {
            return Err(full);
        }
        let is_its_turn = rollouts.begin(self.line.turns()).contains(&id);
        match rollouts.full(&id.namespace) {
            Some(full) if !is_its_turn => Err(full),
            _ => Ok(()),
        }
    }

    /// Returns the waiting workloads whose turn it is, and which do not know that yet.
    fn wake(&mut self, limits: Limits) -> Vec<WorkloadId> {
        let mut rollouts = self.rollouts(limits, Instant::now());
        let turns = rollouts.begin(self.line.turns()).into_iter();
        let mut woken: Vec<_> = turns.cloned().collect();
        woken.retain(|id| self.line.wakes(id));
        woken
    }
}

#[cfg(test)]
mod tests;
