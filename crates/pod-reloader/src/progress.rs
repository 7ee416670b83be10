//! What the reconcile loop remembers of a workload between two looks at it, and has told its user.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pod_reloader_core::brake::Brake;
use pod_reloader_core::hash::KeyId;
use pod_reloader_core::references::Rejected;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::events::{Events, Notice};
use crate::metrics::Metrics;
use crate::notify::Notifications;

/// Restarts wait for at most this many settle periods.
pub(crate) const MAX_SETTLE_PERIODS: u32 = 5;

/// So many baselines of one workload in [`pod_reloader_core::brake::WINDOW`] before the next one waits.
const MAX_BASELINES: usize = 5;

/// So many times in a row the same config hash is written before the next one waits.
const MAX_TURNS: usize = 3;

/// What was restarted lately, by this process: the end of a term is no reason to forget it.
pub(crate) type Brakes = Arc<Mutex<HashMap<WorkloadId, Brake>>>;

/// How far the loop is with each workload. What is at rest takes no room.
pub(crate) struct Progress {
    events: Events,
    notifications: Option<Notifications>,
    metrics: Metrics,
    entries: Mutex<HashMap<WorkloadId, Entry>>,
    brakes: Brakes,
    /// The workloads that baselines were written for of late.
    baselines: Mutex<HashMap<WorkloadId, Brake>>,
    /// What was last written to workloads, as long as somebody may take it back.
    written: Mutex<HashMap<WorkloadId, Written>>,
    /// The workloads whose KEY cannot be verified.
    foreign: Mutex<HashSet<WorkloadId>>,
    /// Keys that the log has said to be missing.
    unknown_keys: Mutex<BTreeSet<KeyId>>,
}

/// A config hash, and how often it was written in a row.
#[derive(Debug, Default)]
struct Written {
    config_hash: String,
    times: Brake,
}

#[derive(Debug, Default)]
struct Entry {
    /// Since when it has been about to be restarted.
    pending_since: Option<Instant>,
    /// How often in a row looking at it has failed in the same way: it was refused, or it was not.
    failures: u32,
    /// Whether it was refused the last time.
    refused: bool,
    /// How often in a row it has moved while it was patched.
    moves: u32,
    /// What its user was told last, so as not to repeat it.
    told: Option<Notice>,
    /// Of which bad items its user was told last.
    told_rejected: Vec<Rejected>,
}

impl Progress {
    pub(crate) fn new(
        events: Events,
        notifications: Option<Notifications>,
        metrics: Metrics,
        brakes: Brakes,
    ) -> Self {
        Self {
            events,
            notifications,
            metrics,
            entries: Mutex::default(),
            brakes,
            baselines: Mutex::default(),
            written: Mutex::default(),
            foreign: Mutex::default(),
            unknown_keys: Mutex::default(),
        }
    }

    /// Says that a workload is about to be restarted whose objects last changed at `changed`, and when
    /// they will have settled.
    pub(crate) fn settled(&self, id: &WorkloadId, changed: Instant, period: Duration) -> Instant {
        self.with(id, |entry| {
            let pending_since = *entry.pending_since.get_or_insert(changed);
            (changed + period).min(pending_since + period * MAX_SETTLE_PERIODS)
        })
    }

    /// Notes that a workload was restarted.
    pub(crate) fn restarted(&self, id: &WorkloadId, limit: usize) {
        let mut brakes = self.brakes.lock();
        let brake = brakes.entry(id.clone()).or_default();
        brake.restarted(Instant::now().into_std(), limit);
    }

    /// Where a workload was restarted `limit` times of late: when it may be again, and how long that is
    /// after the last time.
    pub(crate) fn braked(&self, id: &WorkloadId, limit: usize) -> Option<(Instant, Duration)> {
        let brakes = self.brakes.lock();
        let brake = brakes.get(id)?;
        let at = brake.not_before(Instant::now().into_std(), limit)?;
        Some((at.into(), brake.pause()))
    }

    /// Notes that a baseline was written for a workload.
    pub(crate) fn baseline_written(&self, id: &WorkloadId) {
        let mut baselines = self.baselines.lock();
        let brake = baselines.entry(id.clone()).or_default();
        brake.restarted(Instant::now().into_std(), MAX_BASELINES);
    }

    /// Where baselines were written for a workload again and again: when the next one may be. Somebody
    /// else writes other ones, such as a second release that keeps it.
    pub(crate) fn next_baseline(&self, id: &WorkloadId) -> Option<Instant> {
        let baselines = self.baselines.lock();
        let now = Instant::now().into_std();
        let at = baselines.get(id)?.not_before(now, MAX_BASELINES)?;
        Some(at.into())
    }

    /// Notes that a config hash was written.
    pub(crate) fn written(&self, id: &WorkloadId, config_hash: &str) {
        let mut all = self.written.lock();
        let written = all.entry(id.clone()).or_default();
        if written.config_hash != config_hash {
            *written = Written {
                config_hash: config_hash.to_owned(),
                times: Brake::default(),
            };
        }
        let now = Instant::now().into_std();
        written.times.restarted(now, MAX_TURNS);
    }

    /// Where the same config hash was written again and again: when it may be written next, and how long
    /// that is after the last time. Somebody else takes it back.
    pub(crate) fn reverted(
        &self,
        id: &WorkloadId,
        config_hash: &str,
    ) -> Option<(Instant, Duration)> {
        let all = self.written.lock();
        let written = all.get(id).filter(|it| it.config_hash == config_hash)?;
        let at = written
            .times
            .not_before(Instant::now().into_std(), MAX_TURNS)?;
        Some((at.into(), written.times.pause()))
    }

    /// Forgets restarts and baselines that matter no more.
    pub(crate) fn tidy(&self) {
        let now = Instant::now().into_std();
        for brakes in [&*self.brakes, &self.baselines] {
            brakes.lock().retain(|_, brake| !brake.is_released(now));
        }
        let mut written = self.written.lock();
        written.retain(|_, written| !written.times.is_released(now));
    }

    /// Since when a workload has been about to be restarted.
    pub(crate) fn pending_since(&self, id: &WorkloadId) -> Option<Instant> {
        self.entries().get(id)?.pending_since
    }

    /// Says that a workload is not about to be restarted: what changes from here on settles anew.
    pub(crate) fn not_pending(&self, id: &WorkloadId) {
        if let Some(entry) = self.entries().get_mut(id) {
            entry.pending_since = None;
        }
    }

    /// Says that a workload moved while it was patched, and how often in a row it has.
    pub(crate) fn moved(&self, id: &WorkloadId) -> u32 {
        self.with(id, |entry| {
            entry.moves += 1;
            entry.moves
        })
    }

    /// Says that looking at a workload failed, and how often in a row it has in the same way. An outage
    /// may end in a refusal, which is the first one then: an apiserver that starts knows no RBAC rules yet.
    pub(crate) fn failed(&self, id: &WorkloadId, refused: bool) -> u32 {
        self.with(id, |entry| {
            let before = if entry.refused == refused {
                entry.failures
            } else {
                0
            };
            (entry.failures, entry.refused) = (before + 1, refused);
            entry.pending_since = None;
            entry.failures
        })
    }

    /// Says that looking at a workload went well.
    pub(crate) fn went_well(&self, id: &WorkloadId) {
        if let Some(entry) = self.entries().get_mut(id) {
            (entry.failures, entry.moves) = (0, 0);
        }
    }

    /// Says that a workload carries what it should: all but its bad items is forgotten.
    pub(crate) fn at_rest(&self, id: &WorkloadId) {
        let mut entries = self.entries();
        if let Some(Entry {
            told,
            told_rejected,
            ..
        }) = entries.remove(id)
        {
            self.count_kept_from(told.as_ref(), None);
            if !told_rejected.is_empty() {
                entries.insert(
                    id.clone(),
                    Entry {
                        told_rejected,
                        ..Entry::default()
                    },
                );
            }
        }
    }

    /// Drops what is remembered of a workload that is no longer kept.
    pub(crate) fn forget(&self, id: &WorkloadId) {
        if let Some(entry) = self.entries().remove(id) {
            self.count_kept_from(entry.told.as_ref(), None);
        }
        self.foreign(id, false);
    }

    /// Publishes `notice`, unless it is what the user was told last. Says whether it is news.
    pub(crate) fn tell(&self, workload: &Workload, notice: Notice) -> bool {
        self.with(&workload.id, |entry| {
            let is_news = entry.told.as_ref() != Some(&notice);
            if is_news {
                self.count_kept_from(entry.told.as_ref(), Some(&notice));
                entry.told = Some(notice.clone());
                self.publish(workload, notice);
            }
            is_news
        })
    }

    /// Says whether any workload is being looked at: until none is, what is to be told may wait.
    pub(crate) fn is_busy(&self, is_busy: bool) {
        self.events.hold_back(is_busy);
    }

    /// Publishes which items of its lists are no references, and what else was `left_out`, where that is
    /// news.
    pub(crate) fn tell_rejected(&self, workload: &Workload, left_out: Option<&Rejected>) {
        let rejected = workload.references.rejected.iter().chain(left_out);
        let rejected: Vec<_> = rejected.cloned().collect();
        let mut entries = self.entries();
        let told = entries
            .get(&workload.id)
            .map_or(&[][..], |entry| &entry.told_rejected);
        if told != rejected {
            entries
                .entry(workload.id.clone())
                .or_default()
                .told_rejected
                .clone_from(&rejected);
            if !rejected.is_empty() {
                self.publish(workload, Notice::Rejected(rejected));
            }
        }
    }

    /// Problems are logged, too: Events are gone after an hour.
    fn publish(&self, workload: &Workload, notice: Notice) {
        if notice.is_problem() {
            let (reason, note) = (notice.reason(), notice.note());
            info!(workload = %workload.id, reason, note, "a workload is not as it should be");
        }
        if let Some(notifications) = &self.notifications {
            notifications.publish(workload, &notice);
        }
        self.events.publish(workload, notice);
    }

    /// Says whether KEY of a workload can be verified.
    pub(crate) fn foreign(&self, id: &WorkloadId, is_foreign: bool) {
        let mut foreign = self.foreign.lock();
        if is_foreign {
            foreign.insert(id.clone())
        } else {
            foreign.remove(id)
        };
        self.metrics.foreign.set(foreign.len() as i64);
    }

    /// Says once in the log that config hashes were made under a key that is not there.
    pub(crate) fn tell_unknown_key(&self, key_id: KeyId, workloads: usize) {
        if self.unknown_keys.lock().insert(key_id) {
            warn!(%key_id, workloads, "config hashes were made under a key that is not in the Secret of the hash keys: they are kept, and changes from before now are not seen; restore the key if you can");
        }
    }

    /// Counts the workloads that something keeps from their restart, of which their users were told.
    fn count_kept_from(&self, before: Option<&Notice>, after: Option<&Notice>) {
        let change = |is: fn(&Notice) -> bool| {
            i64::from(after.is_some_and(is)) - i64::from(before.is_some_and(is))
        };
        let waits = change(|notice| matches!(notice, Notice::Waiting(_)));
        let braked = change(|notice| matches!(notice, Notice::Braked(_)));
        let reverted = change(|notice| matches!(notice, Notice::Reverted(_)));
        let refused = change(|notice| matches!(notice, Notice::Refused(_)));
        let unreadable = change(|notice| matches!(notice, Notice::Unreadable(..)));
        self.metrics.reverted.inc_by(reverted);
        self.metrics.refused.inc_by(refused);
        self.metrics.unreadable.inc_by(unreadable);
        self.metrics.waiting.inc_by(waits);
        self.metrics.braked.inc_by(braked);
    }

    fn with<T>(&self, id: &WorkloadId, act: impl FnOnce(&mut Entry) -> T) -> T {
        act(self.entries().entry(id.clone()).or_default())
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<WorkloadId, Entry>> {
        self.entries.lock()
    }
}
