//! Remembers what is known of workloads whose restarts are staged, and who waits for whom.
//!
//! A workload is on trial from the moment when it is seen to get changed content until it has been healthy for
//! its soak. A new leader has seen nobody get anything: it begins with another trial, unless somebody's
//! rollout is stuck.

mod known;
mod waits;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_core::decision::is_reloading;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::stages::{Front, Peer, Standing, Why};
use pod_reloader_core::staging::{Health, Staging};
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

pub(crate) use self::known::Look;
use self::known::{Known, Trial};
use self::waits::Waits;
use crate::restart::phase::Phase;

/// The time after which a workload that waits looks again, if nothing happens earlier.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The time after which a workload looks again that waits for one which is about to be looked at.
const UNSEEN: Duration = Duration::from_secs(1);
/// The time for which a front is used again.
const FRESH: Duration = Duration::from_secs(1);
/// What is known of workloads whose restarts are staged.
#[derive(Default)]
pub(crate) struct Stages(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    known: HashMap<WorkloadId, Known>,
    waits: Waits,
    /// The fronts of objects, so that not each of a thousand workloads looks at all others.
    fronts: HashMap<Reference, Computed>,
    /// For each namespace, a number that grows whenever the standing of one of its workloads may have changed.
    versions: HashMap<Name, u64>,
    /// The number of times that the standing of a workload has been asked for.
    #[cfg(test)]
    looks: usize,
}

/// A workload for which another one waits.
struct Blocker {
    id: WorkloadId,
    why: Why,
    /// The object because of which it waits.
    object: Reference,
    /// True if that may have changed in the meantime.
    is_outdated: bool,
}

/// The front of those that track an object, as it was a moment ago.
struct Computed {
    front: Front,
    version: u64,
    /// The time of the change that it was computed for.
    changed: Instant,
    is_known: bool,
    /// The time from which on it says nothing.
    until: Instant,
}

/// An object that has changed.
pub(crate) struct Changed {
    pub(crate) object: Reference,
    /// The time of the change, or since when the workload that asks has been due if that is unknown.
    pub(crate) at: Instant,
    /// True if the object was seen to change.
    pub(crate) is_known: bool,
}

/// A workload for which another one waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) workload: WorkloadId,
    pub(crate) why: Why,
    /// The time to look again, if nothing happens earlier.
    pub(crate) until: Instant,
}

/// Whether a workload may go.
pub(crate) struct Turn {
    /// The workload that it waits for. `None` if it may go.
    pub(crate) wait: Option<Wait>,
    /// The workload that it has waited for so far, if that is another one.
    pub(crate) before: Option<WorkloadId>,
}

impl Stages {
    /// Takes in a workload as it is now. Returns the workloads that wait for it, if that may matter to them.
    pub(crate) fn saw(&self, workload: &Workload) -> Vec<WorkloadId> {
        let Some(staging) = workload.staged() else {
            return self.forget(&workload.id);
        };
        let mut inner = self.0.lock();
        let now = Instant::now();
        let Some(known) = inner.known.get_mut(&workload.id) else {
            let mut known = Known {
                staging: staging.clone(),
                health_since: now,
                seen_at: now,
                look: None,
                news_at: None,
                right_at: None,
                was_healthy: false,
                lacks: None,
                going_since: None,
                tries_since: None,
                undone: Vec::new(),
                trials: Vec::new(),
            };
            if is_reloading(workload) {
                known.is_found_reloading(now);
            }
            inner.known.insert(workload.id.clone(), known);
            inner.bump(&workload.id.namespace);
            return Vec::new();
        };
        known.judge(now);
        if is_reloading(workload) {
            known.is_found_reloading(now);
        }
        if known.staging == *staging {
            return inner.waits.waiting_for(&workload.id);
        }
        if known.staging.health != staging.health {
            known.health_since = now;
        }
        known.staging = staging.clone();
        inner.bump(&workload.id.namespace);
        inner.waits.waiting_for(&workload.id)
    }

    /// Forgets a workload. Returns the workloads that wait for it, and the one that it waits for.
    pub(crate) fn forget(&self, id: &WorkloadId) -> Vec<WorkloadId> {
        let mut inner = self.0.lock();
        if inner.known.remove(id).is_none() {
            inner.waits.remove(id);
            return Vec::new();
        }
        inner.bump(&id.namespace);
        let mut affected = inner.waits.waiting_for(id);
        affected.extend(inner.waits.remove(id));
        affected
    }

    /// Notes that a workload waits for something other than a workload. Returns the one that it has waited for.
    pub(crate) fn stops_waiting(&self, id: &WorkloadId) -> Option<WorkloadId> {
        self.0.lock().waits.remove(id)
    }

    /// Takes in that an event of an object has arrived that these workloads track. Those that could not get
    /// the content before may be able to now.
    pub(crate) fn news(&self, consumers: &[WorkloadId]) {
        let mut inner = self.0.lock();
        let now = Instant::now();
        for id in consumers {
            if let Some(known) = inner.known.get_mut(id) {
                known.news_at = Some(now);
                inner.bump(&id.namespace);
            }
        }
    }

    /// Returns the number of times that the standing of a workload has been asked for.
    #[cfg(test)]
    pub(crate) fn looks(&self) -> usize {
        self.0.lock().looks
    }

    /// Returns true if others wait for a workload.
    pub(crate) fn is_waited_for(&self, id: &WorkloadId) -> bool {
        self.0.lock().waits.is_waited_for(id)
    }

    /// Returns when a pass last found that a workload has the present content.
    pub(crate) fn right_at(&self, id: &WorkloadId) -> Option<Instant> {
        self.0.lock().known.get(id)?.right_at
    }

    /// Notes that a workload cannot go for a while, so nobody waits for it. Returns the workloads that have waited for it,
    /// and the one that it no longer waits for.
    pub(crate) fn is_held_up(&self, workload: &Workload) -> Vec<WorkloadId> {
        self.looked(workload, Look::Out, None)
    }

    /// Notes what a pass over a workload has found, and the objects whose present content was undone, if the pass
    /// has got as far as that. Returns the workloads that wait for it, if that is news,
    /// and the one that it no longer waits for.
    pub(crate) fn looked(
        &self,
        workload: &Workload,
        look: Look,
        undone: Option<Vec<Reference>>,
    ) -> Vec<WorkloadId> {
        let id = &workload.id;
        let mut inner = self.0.lock();
        let Some(known) = inner.of_staged(workload) else {
            return Vec::new();
        };
        let now = Instant::now();
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
            inner.bump(&id.namespace);
        }
        let mut affected = match is_news {
            true => inner.waits.waiting_for(id),
            false => Vec::new(),
        };
        if look != Look::Due {
            affected.extend(inner.waits.remove(id));
        }
        affected
    }

    /// Notes that the pods of a workload begin to reload the changes that it lacks, and that they are done then at the
    /// latest. Others wait for it meanwhile, even if these pods become unhealthy.
    pub(crate) fn begins_to_reload(&self, id: &WorkloadId, until: Instant) {
        let mut inner = self.0.lock();
        if let Some(known) = inner.known.get_mut(id) {
            known.begins_to_reload(until, Instant::now());
            inner.bump(&id.namespace);
        }
    }

    /// Notes that a pass over a workload has failed. A workload that has the present content keeps it, and one
    /// that nobody has looked at may still turn out to be on trial. Returns the workloads that wait for it, if
    /// that is news.
    pub(crate) fn looked_in_vain(&self, workload: &Workload, is_refused: bool) -> Vec<WorkloadId> {
        let id = &workload.id;
        let mut inner = self.0.lock();
        let Some(known) = inner.of_staged(workload) else {
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
                inner.bump(&id.namespace);
                inner.waits.waiting_for(id)
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether `workload`, which lacks these changes, waits for another one. `consumers` returns all workloads that
    /// track an object. In the commit phase, others wait for it from now on if it waits for nobody.
    pub(crate) fn wait(
        &self,
        workload: &Workload,
        staging: &Staging,
        changed: &[Changed],
        consumers: impl Fn(&Reference) -> Vec<Arc<Workload>>,
        phase: Phase,
    ) -> Turn {
        let now = Instant::now();
        let own = Peer {
            id: &workload.id,
            stage: staging.stage,
            standing: match staging.health {
                _ if self.is_reloading(&workload.id, changed, now) => Standing::Tried,
                Health::Healthy => Standing::DueHealthy,
                Health::Rolling | Health::Unavailable | Health::Unknown => Standing::DueUnhealthy,
            },
        };
        let to_compute = self.to_compute(changed, &own, now);
        let to_compute = to_compute.into_iter().map(|it| (it, consumers(&it.object)));
        let to_compute: Vec<_> = to_compute.collect();
        let mut inner = self.0.lock();
        inner.fronts.retain(|_, it| now < it.until);
        for (object, consumers) in &to_compute {
            inner.compute(object, consumers, now);
        }
        if let Some(known) = inner.known.get_mut(&workload.id) {
            known.lacks_changes(changed, now);
        }
        let blocker = inner.blocker(changed, &own).filter(|it| {
            // One that goes first may itself wait for a trial of this one, with an object that is not changed.
            let is_other = |object: &Reference| changed.iter().all(|it| it.object != *object);
            it.why != Why::GoesFirst || !inner.waits.lead(&it.id, &workload.id, is_other)
        });
        match blocker {
            Some(blocker) => inner.waits_for(&workload.id, blocker, now),
            None => inner.may_go(&workload.id, changed, phase, now),
        }
    }

    /// Returns true if pods of a workload reload one of these changes, or have begun to.
    fn is_reloading(&self, id: &WorkloadId, changed: &[Changed], now: Instant) -> bool {
        let inner = self.0.lock();
        let known = inner.known.get(id);
        known.is_some_and(|it| it.is_reloading(changed, now))
    }

    /// Returns the objects whose front is unknown, or may not be relied on: a workload is the first to go only
    /// if that is so at this moment.
    fn to_compute<'a>(
        &self,
        changed: &'a [Changed],
        own: &Peer<'_>,
        now: Instant,
    ) -> Vec<&'a Changed> {
        let inner = self.0.lock();
        let is_reliable = |object: &Changed| {
            let computed = inner.fronts.get(&object.object);
            computed.is_some_and(|it| {
                it.is_for(object, now) && (it.front.has_passed() || it.front.blocker(own).is_some())
            })
        };
        let unreliable = changed.iter().filter(|object| !is_reliable(object));
        unreliable.collect()
    }
}

impl Computed {
    /// Returns true if this is the front of an object's change. Workloads that have not seen it themselves
    /// agree on its time only roughly.
    fn is_for(&self, changed: &Changed, now: Instant) -> bool {
        let apart = match changed.at > self.changed {
            true => changed.at - self.changed,
            false => self.changed - changed.at,
        };
        let tolerance = match changed.is_known {
            true => Duration::ZERO,
            false => FRESH,
        };
        now < self.until && changed.is_known == self.is_known && apart <= tolerance
    }
}

impl Inner {
    /// Returns what is known of a workload, if its restarts are staged as the caller sees it.
    fn of_staged(&mut self, workload: &Workload) -> Option<&mut Known> {
        workload.staged()?;
        self.known.get_mut(&workload.id)
    }

    fn bump(&mut self, namespace: &Name) {
        *self.versions.entry(namespace.clone()).or_default() += 1;
    }

    fn version(&self, namespace: &Name) -> u64 {
        self.versions.get(namespace).copied().unwrap_or_default()
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
        let before = self.waits.insert(waiting, &id, &object);
        Turn {
            before: before.filter(|before| *before != id),
            wait: Some(Wait {
                workload: id,
                why,
                until,
            }),
        }
    }

    /// Notes that a workload waits for nobody. In the commit phase, it goes, because of these changes.
    fn may_go(&mut self, id: &WorkloadId, changed: &[Changed], phase: Phase, now: Instant) -> Turn {
        if phase == Phase::Commit
            && let Some(known) = self.known.get_mut(id)
        {
            known.goes(changed, now);
            self.bump(&id.namespace);
        }
        Turn {
            wait: None,
            before: self.waits.remove(id),
        }
    }

    /// Computes the front of those that track an object.
    fn compute(&mut self, changed: &Changed, consumers: &[Arc<Workload>], now: Instant) {
        let ids: HashSet<_> = consumers.iter().map(|consumer| &consumer.id).collect();
        let mut until = now + FRESH;
        #[cfg(test)]
        {
            self.looks += consumers.len();
        }
        let Self { known, waits, .. } = self;
        let mut peers = Vec::with_capacity(consumers.len());
        for Workload { id, stall, .. } in consumers.iter().map(Arc::as_ref) {
            let Some(known) = known.get_mut(id) else {
                continue;
            };
            // It waits because of another object, for as long as that takes.
            let waits_elsewhere = waits.blocker(id).is_some_and(|it| !ids.contains(it));
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
        let computed = Computed {
            front,
            version: self.version(&changed.object.namespace),
            changed: changed.at,
            is_known: changed.is_known,
            until,
        };
        self.fronts.insert(changed.object.clone(), computed);
    }

    /// Returns the workload that `own` waits for because of one of these changes.
    fn blocker(&self, changed: &[Changed], own: &Peer<'_>) -> Option<Blocker> {
        let version = self.version(&own.id.namespace);
        let blockers = changed.iter().filter_map(|Changed { object, .. }| {
            let computed = self.fronts.get(object)?;
            let (id, why) = computed.front.blocker(own)?;
            Some(Blocker {
                id: id.clone(),
                why,
                object: object.clone(),
                is_outdated: computed.version != version,
            })
        });
        blockers.min_by_key(|it| it.why)
    }
}
