//! Limits how many rollouts are under way at once, in the cluster and in each namespace.
//!
//! Every rollout of a managed workload takes a slot, whoever began it, until the workload is healthy or its
//! deadline has passed. Nothing is stored: a new leader sees which rollouts are under way.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_core::limit::{Full, Limits, full};
use pod_reloader_core::staging::Health;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

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
    waiting: BTreeSet<WorkloadId>,
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
        inner.waiting.remove(id);
        match inner.taken.remove(id) {
            Some(_) => inner.wake(self.limits),
            None => Vec::new(),
        }
    }

    /// Notes that a workload does not wait, unless it asks again.
    pub(crate) fn stops_waiting(&self, id: &WorkloadId) {
        self.inner.lock().waiting.remove(id);
    }

    /// Takes a slot for a workload that is about to be restarted, if `goes` is true.
    ///
    /// # Errors
    ///
    /// Returns the limit that keeps it from going, and when to look again, if nothing happens earlier.
    pub(crate) fn take(&self, workload: &Workload, goes: bool) -> Result<(), (Full, Instant)> {
        let Some(staging) = workload.staging.as_deref() else {
            return Ok(());
        };
        let mut inner = self.inner.lock();
        let now = Instant::now();
        // It has a slot already, or nobody could say when it is done.
        let needs_none =
            inner.under_way(now).any(|id| *id == workload.id) || staging.health == Health::Unknown;
        let full = full(self.limits, &workload.id.namespace, inner.under_way(now));
        if let Some(full) = full.filter(|_| !needs_none) {
            inner.waiting.insert(workload.id.clone());
            let ends = inner.taken.values().map(|slot| slot.until);
            let next = ends.filter(|end| now < *end).min();
            let look_again = now + LOOK_AGAIN;
            return Err((full, next.map_or(look_again, |next| next.min(look_again))));
        }
        if goes && staging.health != Health::Unknown && workload.stall.is_none() {
            // The patch makes it the next generation.
            inner.take(&workload.id, workload.generation + 1, staging.deadline);
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

    /// Returns the waiting workloads that may go now, which wait no longer.
    fn wake(&mut self, limits: Limits) -> Vec<WorkloadId> {
        let now = Instant::now();
        let mut woken = BTreeSet::new();
        for id in &self.waiting {
            match full(limits, &id.namespace, self.under_way(now).chain(&woken)) {
                None => drop(woken.insert(id.clone())),
                Some(Full::Cluster(_)) => break,
                Some(Full::Namespace(_)) => {}
            }
        }
        self.waiting.retain(|id| !woken.contains(id));
        woken.into_iter().collect()
    }
}
