//! Remembers what is known of workloads whose restarts are staged, and who waits for whom.
//!
//! A workload is on trial from the moment when it is seen to get changed content until it has been healthy for
//! its soak. A new leader has seen nobody get anything: it begins with another trial, unless somebody's
//! rollout is stuck.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::fronts::{Blocker, FRESH, Fronts};
use super::known::{Known, Look, Trial};
use super::{Front, Peer, Standing, Why};
use crate::decision::is_reloading;
use crate::reference::Reference;
use crate::staging::{Health, Staging};
use crate::workload::{Workload, WorkloadId};

/// The time after which a workload that waits looks again, if nothing happens earlier.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The time after which a workload looks again that waits for one which is about to be looked at.
const UNSEEN: Duration = Duration::from_secs(1);
/// The number of workloads over which it is followed who waits for whom.
const MAX_STEPS: usize = 100;

/// What is known of workloads whose restarts are staged.
#[derive(Default)]
pub struct Stages {
    known: HashMap<WorkloadId, Known>,
    fronts: Fronts,
}

/// An object that has changed.
pub struct Changed {
    /// The object.
    pub object: Reference,
    /// The time of the change, or since when the workload that asks has been due if that is unknown.
    pub at: Instant,
    /// True if the object was seen to change.
    pub is_known: bool,
}

/// A workload for which another one waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The workload.
    pub workload: WorkloadId,
    /// The reason.
    pub why: Why,
    /// The time to look again, if nothing happens earlier.
    pub until: Instant,
}

/// Whether a workload may go.
pub struct Turn {
    /// The workload that it waits for. `None` if it may go.
    pub wait: Option<Wait>,
    /// The workload that it has waited for so far, if that is another one.
    pub before: Option<WorkloadId>,
}

impl Stages {
    /// Takes in a workload as it is now. Returns the workloads that wait for it, if that may matter to them.
    pub fn saw(&mut self, workload: &Workload, now: Instant) -> Vec<WorkloadId> {
        let Some(staging) = workload.staged() else {
            return self.forget(&workload.id);
        };
        let Some(known) = self.known.get_mut(&*workload.id) else {
            let mut known = Known::new(staging.clone(), now);
            if is_reloading(workload) {
                known.is_found_reloading(now);
            }
            self.known.insert((*workload.id).clone(), known);
            self.fronts.bump(&workload.id.namespace);
            return Vec::new();
        };
        known.judge(now);
        if is_reloading(workload) {
            known.is_found_reloading(now);
        }
        if known.staging == *staging {
            return self.waiting_for(&workload.id);
        }
        if known.staging.health != staging.health {
            known.health_since = now;
        }
        known.staging = staging.clone();
        self.fronts.bump(&workload.id.namespace);
        self.waiting_for(&workload.id)
    }

    /// Forgets a workload. Returns the workloads that wait for it, and the one that it waits for.
    pub fn forget(&mut self, id: &WorkloadId) -> Vec<WorkloadId> {
        let before = self.stops_waiting(id);
        let Some(known) = self.known.remove(id) else {
            return Vec::new();
        };
        self.fronts.bump(&id.namespace);
        known.waiting.into_iter().chain(before).collect()
    }

    /// Notes that a workload waits for something other than a workload. Returns the one that it has waited for.
    pub fn stops_waiting(&mut self, id: &WorkloadId) -> Option<WorkloadId> {
        let taken = self.known.get_mut(id)?.blocker.take()?;
        let (blocker, _) = *taken;
        if let Some(known) = self.known.get_mut(&blocker) {
            known.waiting.remove(id);
        }
        Some(blocker)
    }

    /// Takes in that an event of an object has arrived that these workloads track. Those that could not get
    /// the content before may be able to now.
    pub fn news(&mut self, consumers: &[WorkloadId], now: Instant) {
        for id in consumers {
            if let Some(known) = self.known.get_mut(id) {
                known.news_at = Some(now);
                self.fronts.bump(&id.namespace);
            }
        }
    }

    /// Returns true if others wait for a workload.
    pub fn is_waited_for(&self, id: &WorkloadId) -> bool {
        let known = self.known.get(id);
        known.is_some_and(|known| !known.waiting.is_empty())
    }

    /// Returns when a pass last found that a workload has the present content.
    pub fn right_at(&self, id: &WorkloadId) -> Option<Instant> {
        self.known.get(id)?.right_at
    }

    /// Notes what a pass over a workload has found, and the objects whose present content was undone, if the pass
    /// has got as far as that. Returns the workloads that wait for it, if that is news,
    /// and the one that it no longer waits for.
    pub fn looked(
        &mut self,
        workload: &Workload,
        look: Look,
        undone: Option<Vec<Reference>>,
        now: Instant,
    ) -> Vec<WorkloadId> {
        let id = &*workload.id;
        let Some(known) = self.of_staged(workload) else {
            return Vec::new();
        };
        let before = known.look.replace((look, now)).map(|(before, _)| before);
        let going_since = known.going_since.take();
        match look {
            Look::Due => known.was_healthy = known.staging.health == Health::Healthy,
            Look::Right => {
                known.right_at = Some(now);
                known.tries_since = None;
                let lacked = known.lacks.take();
                known.trials.retain(|it| it.unfinished_until.is_none());
                if before == Some(Look::Due) || going_since.is_some() {
                    known.begin(Trial {
                        got_at: going_since.unwrap_or(now),
                        was_healthy: known.was_healthy,
                        objects: lacked,
                        has_passed: false,
                        unfinished_until: None,
                    });
                }
            }
            Look::Out => {}
        }
        let mut is_news = before != Some(look);
        if let Some(undone) = undone {
            is_news |= known.undone != undone;
            if !undone.is_empty() {
                known.trials.clear();
            }
            known.undone = undone;
        }
        if is_news || going_since.is_some() {
            self.fronts.bump(&id.namespace);
        }
        let mut affected = match is_news {
            true => self.waiting_for(id),
            false => Vec::new(),
        };
        if look != Look::Due {
            affected.extend(self.stops_waiting(id));
        }
        affected
    }

    /// Notes that the pods of a workload begin to reload the changes that it lacks, and that they are done then at the
    /// latest. Others wait for it meanwhile, even if these pods become unhealthy.
    pub fn begins_to_reload(&mut self, id: &WorkloadId, until: Instant, now: Instant) {
        if let Some(known) = self.known.get_mut(id) {
            known.begins_to_reload(until, now);
            self.fronts.bump(&id.namespace);
        }
    }

    /// Notes that a pass over a workload has failed. A workload that has the present content keeps it, and one
    /// that nobody has looked at may still turn out to be on trial. Returns the workloads that wait for it, if
    /// that is news.
    pub fn looked_in_vain(&mut self, workload: &Workload, is_refused: bool) -> Vec<WorkloadId> {
        let id = &*workload.id;
        let Some(known) = self.of_staged(workload) else {
            return Vec::new();
        };
        // Otherwise the write may have arrived, although no answer has.
        if is_refused {
            known.going_since = None;
            known.tries_since = None;
        }
        match &mut known.look {
            Some((look @ Look::Due, _)) => {
                *look = Look::Out;
                self.fronts.bump(&id.namespace);
                self.waiting_for(id)
            }
            _ => Vec::new(),
        }
    }

    /// Returns a workload that lacks these changes, as others see it.
    pub fn peer<'a>(
        &self,
        workload: &'a Workload,
        staging: &Staging,
        changed: &[Changed],
        now: Instant,
    ) -> Peer<'a> {
        let known = self.known.get(&*workload.id);
        let standing = match staging.health {
            _ if known.is_some_and(|it| it.is_reloading(changed, now)) => Standing::Tried,
            Health::Healthy => Standing::DueHealthy,
            Health::Rolling | Health::Unavailable | Health::Unknown => Standing::DueUnhealthy,
        };
        Peer {
            id: &workload.id,
            stage: staging.stage,
            standing,
        }
    }

    /// Returns the objects of which the front has to be [computed](Self::compute) before anybody can tell whether `own`
    /// may go.
    pub fn to_compute<'a>(
        &self,
        changed: &'a [Changed],
        own: &Peer<'_>,
        now: Instant,
    ) -> Vec<&'a Changed> {
        let unreliable = changed.iter();
        let unreliable = unreliable.filter(|it| !self.fronts.are_reliable(it, own, now));
        unreliable.collect()
    }

    /// Computes the front of those that track an object. `consumers` are all of them.
    pub fn compute(&mut self, changed: &Changed, consumers: &[Arc<Workload>], now: Instant) {
        let ids: HashSet<_> = consumers.iter().map(|consumer| &*consumer.id).collect();
        let mut until = now + FRESH;
        let mut peers = Vec::with_capacity(consumers.len());
        for Workload { id, stall, .. } in consumers.iter().map(Arc::as_ref) {
            let Some(known) = self.known.get_mut(&**id) else {
                continue;
            };
            // It waits because of another object, for as long as that takes.
            let blocker = known.blocker.as_deref();
            let waits_elsewhere = blocker.is_some_and(|(blocker, _)| !ids.contains(blocker));
            let standing = match stall.is_some() || waits_elsewhere {
                true => Standing::Silent,
                false => known.standing(changed, now),
            };
            if let (Standing::Tried, Some(at)) = (standing, known.verdict_at(now)) {
                until = until.min(at);
            }
            peers.push(Peer {
                id,
                stage: known.staging.stage,
                standing,
            });
        }
        let front = Front::of(peers);
        self.fronts.insert(changed, front, until);
    }

    /// Returns whether `own`, which lacks these changes, waits for another one.
    pub fn turn(&mut self, own: &Peer<'_>, changed: &[Changed], now: Instant) -> Turn {
        self.fronts.tidy(now);
        if let Some(known) = self.known.get_mut(own.id) {
            known.lacks_changes(changed, now);
        }
        let blocker = self.fronts.blocker(changed, own).filter(|it| {
            // One that goes first may itself wait for a trial of this one, with an object that is not changed.
            let is_other = |object: &Reference| changed.iter().all(|it| it.object != *object);
            it.why != Why::GoesFirst || !self.leads(&it.id, own.id, is_other)
        });
        match blocker {
            Some(blocker) => self.waits_for(own.id, blocker, now),
            None => Turn {
                wait: None,
                before: self.stops_waiting(own.id),
            },
        }
    }

    /// Notes that a workload goes because of these changes: the others wait for it from now on.
    pub fn goes(&mut self, id: &WorkloadId, changed: &[Changed], now: Instant) {
        if let Some(known) = self.known.get_mut(id) {
            known.goes(changed, now);
            self.fronts.bump(&id.namespace);
        }
    }

    /// Notes that a workload waits for another one.
    fn waits_for(&mut self, waiting: &WorkloadId, blocker: Blocker, now: Instant) -> Turn {
        let Blocker {
            id,
            why,
            object,
            is_outdated,
        } = blocker;
        let until = match (why, is_outdated) {
            (Why::IsUnseen, _) | (_, true) => now + UNSEEN,
            (Why::GoesFirst | Why::Failed, false) => now + LOOK_AGAIN,
            (Why::IsTried, false) => {
                let verdict_at = self.known.get(&id).and_then(|it| it.verdict_at(now));
                (now + LOOK_AGAIN).min(verdict_at.unwrap_or(now + LOOK_AGAIN))
            }
        };
        let before = self.stops_waiting(waiting);
        // A workload that is gone by now must leave nothing behind. If the other one is gone, the wait is short: what was
        // computed with it is outdated.
        if let Some(own) = self.known.get_mut(waiting) {
            own.blocker = Some(Box::new((id.clone(), object)));
            if let Some(blocker) = self.known.get_mut(&id) {
                blocker.waiting.insert(waiting.clone());
            }
        }
        Turn {
            before: before.filter(|before| *before != id),
            wait: Some(Wait {
                workload: id,
                why,
                until,
            }),
        }
    }

    /// Returns the workloads that wait for a workload.
    fn waiting_for(&self, id: &WorkloadId) -> Vec<WorkloadId> {
        let waiting = self.known.get(id).into_iter().flat_map(|it| &it.waiting);
        waiting.cloned().collect()
    }

    /// Returns true if a workload waits for another one, directly or over others, because of an object for
    /// which `is_meant` holds.
    fn leads(
        &self,
        from: &WorkloadId,
        to: &WorkloadId,
        is_meant: impl Fn(&Reference) -> bool,
    ) -> bool {
        let mut at = from;
        for _ in 0..MAX_STEPS {
            let known = self.known.get(at);
            match known.and_then(|known| known.blocker.as_deref()) {
                Some((next, object)) if next == to => return is_meant(object),
                Some((next, _)) => at = next,
                None => return false,
            }
        }
        false
    }

    /// Returns what is known of a workload, if its restarts are staged as the caller sees it.
    fn of_staged(&mut self, workload: &Workload) -> Option<&mut Known> {
        workload.staged()?;
        self.known.get_mut(&*workload.id)
    }
}
