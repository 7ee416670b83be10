//! Remembers between two passes what the loop knows of a workload, and what it has reported to the user.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use pod_reloader_core::brake::{INTERVAL, WINDOW};
use pod_reloader_core::hash::KeyId;
use pod_reloader_core::references::Rejected;
use pod_reloader_core::workload::{Workload, WorkloadId};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::report::notice::{Notice, about};
use crate::report::notify::Notifications;
use crate::restart::memory::Memories;
use crate::restart::passes::{Look, Passes, Pending};
use crate::restart::recent_writes::RecentWrites;
use crate::runtime::events::Events;

/// The maximum time that a restart waits for its objects to settle, in settle periods.
pub(crate) const MAX_SETTLE_PERIODS: u32 = 5;

/// The progress of the loop with each workload. A workload at rest takes no room, except for its bad items.
pub(crate) struct Progress {
    events: Events,
    notifications: Option<Notifications>,
    metrics: Metrics,
    /// What is remembered of each workload.
    pub(crate) memories: Memories,
    pub(crate) recent_writes: RecentWrites,
    /// The keys that the log has already reported as missing.
    unknown_keys: Mutex<BTreeSet<KeyId>>,
}

impl Progress {
    pub(crate) fn new(
        events: Events,
        notifications: Option<Notifications>,
        metrics: Metrics,
        recent_writes: RecentWrites,
    ) -> Self {
        Self {
            events,
            notifications,
            metrics,
            memories: Memories::default(),
            recent_writes,
            unknown_keys: Mutex::default(),
        }
    }

    /// Notes that a workload is about to get `config_hash`, and returns when its objects, which last
    /// changed at `changed`, will have settled. A change that leaves the config hash as it is, such as one
    /// of keys that are not tracked, makes no difference.
    pub(crate) fn settled(
        &self,
        id: &WorkloadId,
        config_hash: &str,
        changed: Instant,
        period: Duration,
    ) -> Instant {
        self.with(id, |entry| {
            entry.missing_since = None;
            let pending = match entry.pending.take() {
                Some(pending) if *pending.config_hash == *config_hash => pending,
                Some(pending) => Pending {
                    config_hash: config_hash.into(),
                    changed,
                    ..pending
                },
                None => Pending {
                    since: changed,
                    settling_since: changed,
                    config_hash: config_hash.into(),
                    changed,
                    awaits: None,
                    waiting_since: None,
                    release_ended: None,
                },
            };
            let pending = entry.pending.insert(pending);
            let since = pending.settling_since;
            (pending.changed + period).min(since + period * MAX_SETTLE_PERIODS)
        })
    }

    /// Notes that a workload has waited for an object, which has changed. Others may change along with it.
    pub(crate) fn settles_anew(&self, id: &WorkloadId) {
        self.known(id, |passes| {
            passes.pending.as_mut()?.settling_since = Instant::now();
            Some(())
        });
    }

    /// Notes that the pods of a workload could not start, and returns since when.
    pub(crate) fn missing_since(&self, id: &WorkloadId) -> Instant {
        self.with(id, |entry| {
            entry.pending = None;
            *entry.missing_since.get_or_insert_with(Instant::now)
        })
    }

    /// Returns true if the pods of a workload could not start without an object that is not tracked, when such objects
    /// were last read.
    pub(crate) fn lacks_untracked(&self, id: &WorkloadId) -> bool {
        self.known(id, |passes| passes.look).is_some()
    }

    /// Notes whether the pods of a workload could not start without an object that is not tracked, as has just been read.
    /// As long as they cannot, the pauses between such reads grow.
    pub(crate) fn note_untracked(&self, id: &WorkloadId, lacks_some: bool) {
        self.with(id, |entry| {
            let look = entry.look.take();
            entry.look = lacks_some.then(|| look.map_or_else(Look::first, Look::then));
        });
    }

    /// Returns when objects are to be read again that a workload lacks and does not track, if that is not now.
    pub(crate) fn next_look(&self, id: &WorkloadId) -> Option<Instant> {
        let next = self.known(id, |passes| passes.look)?.next;
        (Instant::now() < next).then_some(next)
    }

    /// Notes that these workloads or their objects have changed. Somebody is at work, so what they lack and do not track
    /// may come soon.
    pub(crate) fn news<'a>(&self, ids: impl IntoIterator<Item = &'a WorkloadId>) {
        for id in ids {
            self.known(id, |passes| {
                passes.look.as_mut().map(|look| *look = Look::first())
            });
        }
    }

    /// Returns true if the last notice to the user was that somebody reverts writes.
    pub(crate) fn is_reported_reverted(&self, id: &WorkloadId) -> bool {
        self.last_notice_is(id, |notice| matches!(notice, Notice::Reverted))
    }

    /// Returns true if the last notice to the user was that the workload does not get the content that is due, because
    /// another one has failed with it.
    pub(crate) fn is_reported_halted(&self, id: &WorkloadId) -> bool {
        let is_halted = |passes: &mut Passes| {
            let is_meant = matches!(passes.last_notice(), Some(Notice::Halted(_)));
            Some(is_meant && passes.is_last_notice_of_content_due())
        };
        self.known(id, is_halted).unwrap_or_default()
    }

    /// Returns true if the last notice to the user was that others wait for the workload, which has failed.
    pub(crate) fn is_reported_failed_first(&self, id: &WorkloadId) -> bool {
        self.last_notice_is(id, |notice| matches!(notice, Notice::FailedFirst))
    }

    fn last_notice_is(&self, id: &WorkloadId, is_meant: impl FnOnce(&Notice) -> bool) -> bool {
        self.known(id, |passes| passes.last_notice().map(is_meant))
            .unwrap_or_default()
    }

    /// Returns when the last write will have stood for long enough. `None` if it already has, or if the
    /// last notice to the user was not [`Notice::Reverted`].
    pub(crate) fn disputed_until(&self, id: &WorkloadId) -> Option<Instant> {
        let until = self.recent_writes.last_write(id)? + INTERVAL;
        (self.is_reported_reverted(id) && Instant::now() < until).then_some(until)
    }

    /// Returns since when a workload has been about to be restarted.
    pub(crate) fn pending_since(&self, id: &WorkloadId) -> Option<Instant> {
        self.known(id, |passes| Some(passes.pending.as_ref()?.since))
    }

    /// Returns since when a workload has been about to be restarted, and when the hash that it would get last
    /// changed.
    pub(crate) fn due_since(&self, id: &WorkloadId) -> (Instant, Instant) {
        let now = Instant::now();
        let times = |pending: &Pending| (pending.since, pending.changed);
        self.known(id, |passes| passes.pending.as_ref().map(times))
            .unwrap_or((now, now))
    }

    /// Notes that a workload is not about to be restarted. Changes from here on settle anew.
    pub(crate) fn not_pending(&self, id: &WorkloadId) {
        self.known(id, |passes| passes.pending.take());
    }

    /// Notes that a pass over a workload failed, and returns how often in a row it has failed in the same
    /// way. A refusal at the end of an outage is the first of its kind: an apiserver that starts knows no
    /// RBAC rules yet.
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

    /// Notes that a pass over a workload succeeded.
    pub(crate) fn went_well(&self, id: &WorkloadId) {
        self.known(id, |passes| {
            passes.failures = 0;
            Some(())
        });
    }

    /// Notes that a workload carries the right hash. Forgets everything about it except its bad items.
    pub(crate) fn at_rest(&self, id: &WorkloadId) {
        self.memories.with(id, |memory| {
            let Some(passes) = memory.passes.take() else {
                return;
            };
            self.update_gauges(id, passes.last_notice(), None);
            let Passes { last_rejected, .. } = *passes;
            if !last_rejected.is_empty() {
                memory.passes.get_or_insert_default().last_rejected = last_rejected;
            }
        });
    }

    /// Forgets a workload that is no longer managed.
    pub(crate) fn forget(&self, id: &WorkloadId) {
        let memory = self.memories.forget(id).unwrap_or_default();
        if let Some(passes) = memory.passes {
            self.update_gauges(id, passes.last_notice(), None);
            if !passes.last_rejected.is_empty() {
                self.metrics.invalid_references.dec();
            }
        }
        if memory.is_foreign {
            self.metrics.foreign.dec();
        }
        if memory.is_undone {
            self.metrics.undone.dec();
        }
    }

    /// Publishes `notice`, unless it is the same as the user's last one. Returns true if it is news. A
    /// lasting problem gets another Event every [`WINDOW`], because Events are gone after an hour.
    pub(crate) fn report(&self, workload: &Workload, notice: Notice) -> bool {
        let now = Instant::now();
        self.with(&workload.id, |entry| {
            entry.finds_last_notice(&workload.uid);
            let published = match &entry.last_notice {
                Some((last, at)) if *last == notice => Some(*at),
                _ => None,
            };
            match published {
                None => {
                    self.update_gauges(&workload.id, entry.last_notice(), Some(&notice));
                    self.publish(workload, notice.clone());
                }
                Some(at) if notice.is_problem() && now.duration_since(at) >= WINDOW => {
                    self.events.publish(about(workload), notice.event());
                }
                Some(_) => return false,
            }
            entry.last_notice = Some((notice, now));
            published.is_none()
        })
    }

    /// Notes what a workload waits for, for status queries alone: its user has had an Event about it, or gets none.
    pub(crate) fn waits_untold(&self, workload: &Workload, notice: Notice) {
        self.with(&workload.id, |entry| {
            entry.finds_untold(&workload.uid, notice);
        });
    }

    /// Notes that a pass over a workload begins.
    pub(crate) fn pass_begins(&self, id: &WorkloadId) {
        self.known(id, |passes| {
            passes.pass_begins();
            Some(())
        });
    }

    /// Notes that a pass over a workload has ended.
    pub(crate) fn pass_ended(&self, id: &WorkloadId) {
        self.known(id, |passes| {
            passes.pass_ended();
            Some(())
        });
    }

    /// Notes whether any workload is being reconciled. Until none is, Events may wait.
    pub(crate) fn is_busy(&self, is_busy: bool) {
        self.events.hold_back(is_busy);
    }

    /// Publishes the items of a workload's lists that are not references, and the object that was
    /// `left_out`, if that is news.
    pub(crate) fn report_rejected(&self, workload: &Workload, left_out: Option<&Rejected>) {
        let rejected = workload.references.rejected.iter().chain(left_out);
        let rejected: Vec<_> = rejected.cloned().collect();
        self.memories.with(&workload.id, |memory| {
            let last = memory.passes.as_deref();
            let last = last.map_or(&[][..], |passes| &passes.last_rejected);
            if last == rejected {
                return;
            }
            let change = i64::from(!rejected.is_empty()) - i64::from(!last.is_empty());
            self.metrics.invalid_references.inc_by(change);
            let passes = memory.passes.get_or_insert_default();
            passes.last_rejected.clone_from(&rejected);
            if !rejected.is_empty() {
                self.publish(workload, Notice::Rejected(rejected));
            }
        });
    }

    /// Publishes a notice. Problems are logged, too, because Events are gone after an hour.
    pub(crate) fn publish(&self, workload: &Workload, notice: Notice) {
        if notice.is_problem() {
            let (reason, note) = (notice.reason(), notice.note());
            info!(workload = %workload.id, reason, note, "a workload has a problem");
        }
        self.send(workload, notice);
    }

    /// Tells users, but not the log.
    pub(crate) fn send(&self, workload: &Workload, notice: Notice) {
        if let Some(notifications) = &self.notifications {
            notifications.publish(workload, &notice);
        }
        self.events.publish(about(workload), notice.event());
    }

    /// Notes whether the config hash of a workload cannot be verified.
    pub(crate) fn foreign(&self, id: &WorkloadId, is_foreign: bool) {
        let was_foreign = self.memories.with(id, |memory| {
            std::mem::replace(&mut memory.is_foreign, is_foreign)
        });
        let change = i64::from(is_foreign) - i64::from(was_foreign);
        self.metrics.foreign.inc_by(change);
    }

    /// Logs once that config hashes were made under a key that does not exist.
    pub(crate) fn log_unknown_key(&self, key_id: KeyId, workloads: usize) {
        if self.unknown_keys.lock().insert(key_id) {
            warn!(%key_id, workloads, "config hashes were made under a key that is not in the Secret of the hash keys: they stay, and changes from before now are missed; restore the key if you can");
        }
    }

    /// Updates the gauges that count workloads by the last notice to their users.
    fn update_gauges(&self, id: &WorkloadId, before: Option<&Notice>, after: Option<&Notice>) {
        let before = before.and_then(|notice| self.gauge(notice));
        let after = after.and_then(|notice| self.gauge(notice));
        if let Some(gauge) = before {
            gauge.dec();
        }
        if let Some(gauge) = after {
            gauge.inc();
        }
        let change = i64::from(after.is_some()) - i64::from(before.is_some());
        self.metrics.waits(id, change);
    }

    /// Returns the gauge of the workloads that are held up for the reason of this notice.
    fn gauge(&self, notice: &Notice) -> Option<&Gauge> {
        let gauge = notice.traits().gauge?;
        Some(gauge(&self.metrics.held_up))
    }

    fn with<T>(&self, id: &WorkloadId, act: impl FnOnce(&mut Passes) -> T) -> T {
        self.memories
            .with(id, |memory| act(memory.passes.get_or_insert_default()))
    }

    /// Returns what `act` makes of what is remembered of a workload, if anything is.
    fn known<T>(&self, id: &WorkloadId, act: impl FnOnce(&mut Passes) -> Option<T>) -> Option<T> {
        self.memories
            .with(id, |memory| act(memory.passes.as_deref_mut()?))
    }
}
