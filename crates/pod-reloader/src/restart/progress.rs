//! What the reconcile loop remembers of a workload between two looks at it, and has told its user.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use pod_reloader_core::brake::{INTERVAL, WINDOW};
use pod_reloader_core::hash::KeyId;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::references::Rejected;
use pod_reloader_core::workload::{Workload, WorkloadId};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::report::notice::{Notice, about};
use crate::report::notify::Notifications;
use crate::restart::brakes::Brakes;
use crate::runtime::events::Events;

/// Restarts wait for at most this many settle periods.
pub(crate) const MAX_SETTLE_PERIODS: u32 = 5;

/// How far the loop is with each workload. What is at rest takes no room.
pub(crate) struct Progress {
    events: Events,
    notifications: Option<Notifications>,
    metrics: Metrics,
    entries: Mutex<HashMap<WorkloadId, Entry>>,
    pub(crate) brakes: Brakes,
    /// Fingerprints of the entries of objects that workloads track by key, as of when their hash was right.
    entries_at_rest: Mutex<HashMap<WorkloadId, HashMap<Reference, u64>>>,
    /// The workloads whose KEY cannot be verified.
    foreign: Mutex<HashSet<WorkloadId>>,
    /// Keys that the log has said to be missing.
    unknown_keys: Mutex<BTreeSet<KeyId>>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The restart that is due.
    pending: Option<Pending>,
    /// Since when its pods could not start.
    missing_since: Option<Instant>,
    /// How often in a row looking at it has failed in the same way: it was refused, or it was not.
    failures: u32,
    /// Whether it was refused the last time.
    refused: bool,
    /// The last thing its user was told, and when, so as not to repeat it.
    told: Option<(Notice, Instant)>,
    /// Of which bad items its user was told last.
    told_rejected: Vec<Rejected>,
}

/// A restart that is due.
#[derive(Debug)]
struct Pending {
    since: Instant,
    /// The config hash that it would write, which stands for all that is tracked and nothing else.
    config_hash: Box<str>,
    /// When that last changed.
    changed: Instant,
}

impl Entry {
    fn told(&self) -> Option<&Notice> {
        self.told.as_ref().map(|(notice, _)| notice)
    }
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
            entries_at_rest: Mutex::default(),
            foreign: Mutex::default(),
            unknown_keys: Mutex::default(),
        }
    }

    /// Says that a workload is about to get `config_hash`, and when its objects, which last changed at
    /// `changed`, will have settled. A change that leaves the config hash as it is, such as one of keys
    /// that are not tracked, makes no difference.
    pub(crate) fn settled(
        &self,
        id: &WorkloadId,
        config_hash: &str,
        changed: Instant,
        period: Duration,
    ) -> Instant {
        self.with(id, |entry| {
            entry.missing_since = None;
            let since = entry.pending.as_ref().map_or(changed, |it| it.since);
            let unchanged = entry.pending.take();
            let unchanged = unchanged.filter(|it| *it.config_hash == *config_hash);
            let pending = entry.pending.insert(unchanged.unwrap_or_else(|| Pending {
                since,
                config_hash: config_hash.into(),
                changed,
            }));
            (pending.changed + period).min(since + period * MAX_SETTLE_PERIODS)
        })
    }

    /// Says that the pods of a workload could not start, and since when that has been so.
    pub(crate) fn missing_since(&self, id: &WorkloadId) -> Instant {
        self.with(id, |entry| {
            entry.pending = None;
            *entry.missing_since.get_or_insert_with(Instant::now)
        })
    }

    /// Whether the user was told last that somebody takes writes back.
    pub(crate) fn is_told_reverted(&self, id: &WorkloadId) -> bool {
        let entries = self.lock();
        let told = entries.get(id).and_then(Entry::told);
        matches!(told, Some(Notice::Reverted))
    }

    /// Where the user was told that somebody takes writes back, and the last one stands by now: when it
    /// will have stood for long enough.
    pub(crate) fn disputed_until(&self, id: &WorkloadId) -> Option<Instant> {
        let until = self.brakes.last_write(id)? + INTERVAL;
        (self.is_told_reverted(id) && Instant::now() < until).then_some(until)
    }

    /// Takes in the fingerprints of the entries that a workload tracks by key: for good where its hash is
    /// right, and otherwise those of objects that were not known. Says which are the same as when it was.
    pub(crate) fn entries(
        &self,
        id: &WorkloadId,
        fingerprints: impl Iterator<Item = (Reference, u64)>,
        is_right: bool,
    ) -> HashSet<Reference> {
        let fingerprints: HashMap<_, _> = fingerprints.collect();
        let mut all = self.entries_at_rest.lock();
        if fingerprints.is_empty() {
            all.remove(id);
            return HashSet::new();
        }
        let known = all.entry(id.clone()).or_default();
        known.retain(|reference, _| fingerprints.contains_key(reference));
        let mut unchanged = HashSet::new();
        for (reference, fingerprint) in fingerprints {
            let known = known.entry(reference.clone()).or_insert(fingerprint);
            if *known == fingerprint {
                unchanged.insert(reference);
            } else if is_right {
                *known = fingerprint;
            }
        }
        unchanged
    }

    /// Since when a workload has been about to be restarted.
    pub(crate) fn pending_since(&self, id: &WorkloadId) -> Option<Instant> {
        Some(self.lock().get(id)?.pending.as_ref()?.since)
    }

    /// Says that a workload is not about to be restarted: what changes from here on settles anew.
    pub(crate) fn not_pending(&self, id: &WorkloadId) {
        if let Some(entry) = self.lock().get_mut(id) {
            entry.pending = None;
        }
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
            entry.pending = None;
            entry.failures
        })
    }

    /// Says that looking at a workload went well.
    pub(crate) fn went_well(&self, id: &WorkloadId) {
        if let Some(entry) = self.lock().get_mut(id) {
            entry.failures = 0;
        }
    }

    /// Says that a workload carries what it should: all but its bad items is forgotten.
    pub(crate) fn at_rest(&self, id: &WorkloadId) {
        let mut entries = self.lock();
        if let Some(entry) = entries.remove(id) {
            self.count_kept_from(entry.told(), None);
            let told_rejected = entry.told_rejected;
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
        if let Some(entry) = self.lock().remove(id) {
            self.count_kept_from(entry.told(), None);
        }
        self.entries_at_rest.lock().remove(id);
        self.foreign(id, false);
    }

    /// Publishes `notice`, unless it is what the user was told last. Says whether it is news. A problem
    /// that lasts is told again in an Event, as Events are gone after an hour.
    pub(crate) fn tell(&self, workload: &Workload, notice: Notice) -> bool {
        let now = Instant::now();
        self.with(&workload.id, |entry| {
            let told_at = match &entry.told {
                Some((told, at)) if *told == notice => Some(*at),
                _ => None,
            };
            match told_at {
                None => {
                    self.count_kept_from(entry.told(), Some(&notice));
                    self.publish(workload, notice.clone());
                }
                Some(at) if notice.is_problem() && now.duration_since(at) >= WINDOW => {
                    self.events.publish(about(workload), notice.event());
                }
                Some(_) => return false,
            }
            entry.told = Some((notice, now));
            told_at.is_none()
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
        let mut entries = self.lock();
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
        self.send(workload, notice);
    }

    /// Tells users, and not the log.
    pub(crate) fn send(&self, workload: &Workload, notice: Notice) {
        if let Some(notifications) = &self.notifications {
            notifications.publish(workload, &notice);
        }
        self.events.publish(about(workload), notice.event());
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

    /// Counts the workloads whose users were told of each notice.
    fn count_kept_from(&self, before: Option<&Notice>, after: Option<&Notice>) {
        if let Some(gauge) = before.and_then(|notice| self.gauge(notice)) {
            gauge.dec();
        }
        if let Some(gauge) = after.and_then(|notice| self.gauge(notice)) {
            gauge.inc();
        }
    }

    /// The gauge of the workloads whose restart waits for this reason.
    fn gauge(&self, notice: &Notice) -> Option<&Gauge> {
        match notice {
            Notice::Waiting(_) => Some(&self.metrics.waiting),
            Notice::Braked(_) => Some(&self.metrics.braked),
            Notice::Reverted => Some(&self.metrics.reverted),
            Notice::Refused(_) => Some(&self.metrics.refused),
            Notice::Unreadable(..) => Some(&self.metrics.unreadable),
            // Restarts are counted as such, and the rest is either an event or has a gauge of its own.
            Notice::Restarted(..)
            | Notice::Stalled(..)
            | Notice::WouldRestart(..)
            | Notice::Rejected(_)
            | Notice::NotRun(_)
            | Notice::NamespaceTooLarge(_) => None,
        }
    }

    fn with<T>(&self, id: &WorkloadId, act: impl FnOnce(&mut Entry) -> T) -> T {
        act(self.lock().entry(id.clone()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkloadId, Entry>> {
        self.entries.lock()
    }
}
