//! Remembers which rollouts are in progress, and which workloads wait for one to end.
//!
//! Every rollout of a managed workload takes a slot, whoever began it, until the workload is healthy or its
//! deadline has passed. Nothing is stored: a new leader sees which rollouts are in progress.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::line::Line;
use super::{Full, Limits, Rollouts};
use crate::staging::Health;
use crate::workload::{Workload, WorkloadId};

/// The time after which a workload that waits looks again, if nothing happens earlier.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The rollouts that are in progress, and the workloads that wait for one to end.
pub struct Slots {
    limits: Limits,
    taken: HashMap<WorkloadId, Slot>,
    line: Line,
}

/// A rollout that is in progress.
struct Slot {
    /// The generation of the workload that is rolled out. An older state says nothing about it.
    generation: i64,
    /// The time when it counts no longer. It is remembered until the workload is healthy, so that it does not
    /// count again.
    until: Instant,
}

impl Slots {
    /// Returns slots with these limits, of which none is taken.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            taken: HashMap::new(),
            line: Line::default(),
        }
    }

    /// Takes in a workload as it is now. Returns the workloads that may go because of that.
    pub fn saw(&mut self, workload: &Workload, now: Instant) -> Vec<WorkloadId> {
        let Some(staging) = workload.staging.as_deref() else {
            return Vec::new();
        };
        let is_rolling = match staging.health {
            _ if workload.stall.is_some() => false,
            // On the way back to an earlier ReplicaSet, the status of a Deployment at first says the same.
            Health::Unavailable => return Vec::new(),
            Health::Rolling => true,
            Health::Healthy | Health::Unknown => false,
        };
        let (id, generation) = (&*workload.id, workload.generation);
        match (is_rolling, self.taken.get_mut(id)) {
            (true, None) => self.begin(id, generation, staging.deadline, now),
            // Until it is healthy, it is one rollout, however often it is scaled.
            (true, Some(slot)) => slot.generation = slot.generation.max(generation),
            (false, Some(slot)) if slot.generation <= generation => {
                self.taken.remove(id);
                return self.wake(now);
            }
            (false, _) => {}
        }
        Vec::new()
    }

    /// Takes in that nothing is rolled out to a workload: it is gone, or refuses our write. Returns the
    /// workloads that may go because of that.
    pub fn free(&mut self, id: &WorkloadId, now: Instant) -> Vec<WorkloadId> {
        let was_in_line = self.line.leave(id);
        match self.taken.remove(id).is_some() || was_in_line {
            true => self.wake(now),
            false => Vec::new(),
        }
    }

    /// Notes that a pass over a workload begins. Until it ends, the workload keeps its place in the line.
    pub fn pass_begins(&mut self, id: &WorkloadId) {
        self.line.pass_begins(id);
    }

    /// Notes that a pass over a workload has ended. If the workload does not wait for a slot, it leaves the line.
    /// Returns the workloads that may go because of that.
    pub fn pass_ended(&mut self, id: &WorkloadId, now: Instant) -> Vec<WorkloadId> {
        match self.line.pass_ended(id) {
            true => self.wake(now),
            false => Vec::new(),
        }
    }

    /// Asks for a slot for a workload that is to be restarted. It stays free for the workload until its pass ends.
    ///
    /// # Errors
    ///
    /// Returns the limit that keeps it from going, and when to look again, if nothing happens earlier.
    pub fn ask(&mut self, workload: &Workload, now: Instant) -> Result<(), (Full, Instant)> {
        let Some(staging) = workload.staging.as_deref() else {
            return Ok(());
        };
        let id = &*workload.id;
        // It has a slot already, or nobody could say when it is done.
        let needs_none =
            self.in_progress(now).any(|it| it == id) || staging.health == Health::Unknown;
        if !needs_none && let Err(full) = self.may_go(id, now) {
            self.line.waits(id);
            let ends = self.taken.values().map(|slot| slot.until);
            let next = ends.filter(|end| now < *end).min();
            let look_again = now + LOOK_AGAIN;
            return Err((full, next.map_or(look_again, |next| next.min(look_again))));
        }
        Ok(())
    }

    /// Takes the slot for a workload that is about to be restarted, for which it was [asked](Self::ask).
    pub fn take(&mut self, workload: &Workload, now: Instant) {
        let Some(staging) = workload.staging.as_deref() else {
            return;
        };
        self.line.goes(&workload.id);
        if staging.health != Health::Unknown && workload.stall.is_none() {
            // The patch makes it the next generation.
            let generation = workload.generation + 1;
            self.begin(&workload.id, generation, staging.deadline, now);
        }
    }

    /// Notes that a workload is rolled out. Until its deadline, that is one rollout, however often it is tried.
    fn begin(&mut self, id: &WorkloadId, generation: i64, deadline: Duration, now: Instant) {
        let in_progress = self.taken.get(id).filter(|slot| now < slot.until);
        let until = in_progress.map_or(now + deadline, |slot| slot.until);
        self.taken.insert(id.clone(), Slot { generation, until });
    }

    /// Returns the workloads whose rollouts are in progress and count.
    fn in_progress(&self, now: Instant) -> impl Iterator<Item = &WorkloadId> {
        let taken = self.taken.iter();
        taken.filter_map(move |(id, slot)| (now < slot.until).then_some(id))
    }

    fn rollouts(&self, now: Instant) -> Rollouts {
        Rollouts::new(self.limits, self.in_progress(now).map(|id| &id.namespace))
    }

    /// Puts a workload into the line.
    ///
    /// # Errors
    ///
    /// Returns the limit that keeps it from going, if it is not its turn.
    fn may_go(&mut self, id: &WorkloadId, now: Instant) -> Result<(), Full> {
        self.line.join(id);
        let mut rollouts = self.rollouts(now);
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
    fn wake(&mut self, now: Instant) -> Vec<WorkloadId> {
        let mut rollouts = self.rollouts(now);
        let turns = rollouts.begin(self.line.turns()).into_iter();
        let mut woken: Vec<_> = turns.cloned().collect();
        woken.retain(|id| self.line.wakes(id));
        woken
    }
}

#[cfg(test)]
mod tests;
