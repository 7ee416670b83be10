//! Remembers what the loop knows of each workload: one entry, with a part for each feature.
//!
//! A workload that goes is one removal, so a feature that has its part here has nothing to clean up. What outlives a
//! workload or a term is elsewhere, and so is what ties workloads to each other.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pod_reloader_core::certificates::Loaded;
use pod_reloader_core::cron_job::DueRun;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::room::give_back_room;
use pod_reloader_core::stuck::LastLook;
use pod_reloader_core::together::Round;
use pod_reloader_core::trials::Trials;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use crate::restart::digests::Snapshot;
use crate::restart::passes::Passes;
use crate::restart::reload_rounds::Reload;

/// What is remembered of the workloads during one term of leadership. A workload of which nothing is remembered takes
/// no room. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Memories(Arc<ByWorkload>);

type ByWorkload = Mutex<HashMap<WorkloadId, WorkloadMemory>>;

/// The memories of a term, as long as it lasts.
#[derive(Default)]
pub(crate) struct WeakMemories(Weak<ByWorkload>);

impl WeakMemories {
    /// Returns the memories. `None` once the term is over.
    pub(crate) fn upgrade(&self) -> Option<Memories> {
        self.0.upgrade().map(Memories)
    }
}

/// What is remembered of one workload. Few workloads have many parts, so the content of a part is kept apart from it, and
/// `None` stands for a part of which nothing is remembered.
#[derive(Default)]
pub(crate) struct WorkloadMemory {
    /// What passes over the workload have found and reported.
    pub(crate) passes: Option<Box<Passes>>,
    /// The entries that are tracked by key, as they were when the config hash was right.
    fingerprints: Fingerprints,
    /// True if the config hash cannot be verified.
    pub(crate) is_foreign: bool,
    /// True if some of the content was undone.
    pub(crate) is_undone: bool,
    /// The configuration that is put back if the workload does not become healthy with it.
    pub(crate) trials: Option<Box<Trials>>,
    /// How far the objects are that change together.
    pub(crate) round: Option<Box<Round>>,
    /// The last look at the pods of a StatefulSet, one of which may be in the way.
    pub(crate) stuck: Option<Box<LastLook>>,
    /// The run of a CronJob that has not begun.
    pub(crate) run: Option<Box<DueRun>>,
    /// The certificates that the pods have loaded.
    pub(crate) certificates: Option<Box<Loaded>>,
    /// How far its pods are that reload changed config.
    pub(crate) reload: Option<Box<Reload>>,
}

impl Memories {
    /// Returns a reference that does not keep them.
    pub(crate) fn downgrade(&self) -> WeakMemories {
        WeakMemories(Arc::downgrade(&self.0))
    }

    /// Returns what `act` makes of the memory of a workload.
    ///
    /// # Caveats
    ///
    /// All memories are locked meanwhile, so `act` must not ask for one again.
    pub(crate) fn with<T>(&self, id: &WorkloadId, act: impl FnOnce(&mut WorkloadMemory) -> T) -> T {
        let mut all = self.0.lock();
        if let Some(memory) = all.get_mut(id) {
            let made = act(memory);
            if memory.is_empty() {
                all.remove(id);
                give_back_room(&mut all);
            }
            return made;
        }
        let mut memory = WorkloadMemory::default();
        let made = act(&mut memory);
        if !memory.is_empty() {
            all.insert(id.clone(), memory);
        }
        made
    }

    /// Returns the workloads whose memory `is_meant`.
    pub(crate) fn ids(&self, is_meant: impl Fn(&WorkloadMemory) -> bool) -> Vec<WorkloadId> {
        let all = self.0.lock();
        let meant = all.iter().filter(|(_, memory)| is_meant(memory));
        meant.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the tracked objects that were seen to change, and when.
    pub(crate) fn tracked_changes(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
    ) -> Vec<(Reference, Instant)> {
        let unchanged = self.tracked_by_key(workload, snapshot, false);
        let changes = snapshot.changes.iter().cloned();
        let is_tracked = |(reference, _): &(Reference, Instant)| !unchanged.contains(reference);
        changes.filter(is_tracked).collect()
    }

    /// Returns the objects that were seen to change since the first event about one of them. The pending restart alone does
    /// not tell that time: it begins with the object that was read last.
    pub(crate) fn due_changes(&self, workload: &Workload, snapshot: &Snapshot) -> Vec<Reference> {
        let pending = self.with(&workload.id, |memory| {
            Some(memory.passes.as_ref()?.pending.as_ref()?.since)
        });
        let since = pending.into_iter().chain(snapshot.first_news).min();
        let changes = self.tracked_changes(workload, snapshot).into_iter();
        let changed = changes.filter(|(_, at)| Some(*at) >= since);
        changed.map(|(reference, _)| reference).collect()
    }

    /// Notes that the config hash of a workload is right for these objects.
    pub(crate) fn hash_is_right(&self, workload: &Workload, snapshot: &Snapshot) {
        self.tracked_by_key(workload, snapshot, true);
    }

    /// Returns the objects of which only single keys are tracked, if these keys are unchanged since the
    /// config hash was last right. `is_right` says that the hash is right now.
    fn tracked_by_key(
        &self,
        workload: &Workload,
        snapshot: &Snapshot,
        is_right: bool,
    ) -> HashSet<Reference> {
        let fingerprints = workload.references.fingerprints(&snapshot.objects);
        // Not while the memories are locked: it hashes content.
        let fingerprints: Vec<_> = fingerprints
            .map(|(reference, print)| (reference.clone(), print))
            .collect();
        self.with(&workload.id, |memory| {
            memory.fingerprints.unchanged(fingerprints, is_right)
        })
    }

    /// Forgets a workload, and returns what was remembered of it.
    pub(crate) fn forget(&self, id: &WorkloadId) -> Option<WorkloadMemory> {
        let mut all = self.0.lock();
        let memory = all.remove(id);
        give_back_room(&mut all);
        memory
    }
}

impl WorkloadMemory {
    fn is_empty(&self) -> bool {
        // Without `..`, so that a part that is added is not left out here.
        let Self {
            passes,
            fingerprints,
            is_foreign,
            is_undone,
            trials,
            round,
            stuck,
            run,
            certificates,
            reload,
        } = self;
        passes.is_none()
            && fingerprints.is_empty()
            && !is_foreign
            && !is_undone
            && trials.is_none()
            && round.is_none()
            && stuck.is_none()
            && run.is_none()
            && certificates.is_none()
            && reload.is_none()
    }
}

/// The entries that a workload tracks by key, as they were when its config hash was right: their fingerprints, sorted by the
/// objects of which single keys are tracked.
#[derive(Default)]
struct Fingerprints(Box<[(Reference, u64)]>);

impl Fingerprints {
    /// Takes in the fingerprints as they are now. If the hash is right, they replace the stored ones; otherwise only
    /// those of unknown objects are added. Returns the objects whose fingerprints are the same as when the hash was
    /// right.
    fn unchanged(&mut self, mut now: Vec<(Reference, u64)>, is_right: bool) -> HashSet<Reference> {
        let mut unchanged = HashSet::new();
        for (reference, fingerprint) in &mut now {
            let known = self.of(reference).unwrap_or(*fingerprint);
            if known == *fingerprint {
                unchanged.insert(reference.clone());
            } else if !is_right {
                *fingerprint = known;
            }
        }
        now.sort_unstable();
        self.0 = now.into();
        unchanged
    }

    /// Returns true if no keys are tracked individually.
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, reference: &Reference) -> Option<u64> {
        let at = self.0.binary_search_by(|(known, _)| known.cmp(reference));
        at.ok().map(|at| self.0[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{id, reference};

    #[test]
    fn only_workloads_of_which_something_is_remembered_take_room() {
        let memories = Memories::default();
        let id = id("web");
        let known = || memories.0.lock().len();
        assert!(memories.with(&id, |memory| memory.trials.is_none()));
        assert_eq!(known(), 0);
        memories.with(&id, |memory| memory.trials = Some(Box::default()));
        assert_eq!(known(), 1);
        assert!(memories.with(&id, |memory| memory.trials.is_some()));
        memories.with(&id, |memory| memory.trials = None);
        assert_eq!(known(), 0);
        memories.with(&id, |memory| memory.trials = Some(Box::default()));
        assert!(memories.forget(&id).is_some());
        assert_eq!(known(), 0);
    }

    #[test]
    fn the_table_becomes_smaller_as_workloads_come_to_rest() {
        let memories = Memories::default();
        let id = |number: usize| id(&number.to_string());
        for number in 0..1_000 {
            memories.with(&id(number), |memory| memory.is_foreign = true);
        }
        let room = || memories.0.lock().capacity();
        for number in 0..900 {
            memories.with(&id(number), |memory| memory.is_foreign = false);
        }
        assert!(room() <= 500, "{}", room());
        for number in 900..990 {
            memories.forget(&id(number));
        }
        assert!(room() <= 64, "{}", room());
    }

    #[test]
    fn entries_are_unchanged_until_they_differ_from_when_the_hash_was_right() {
        let mut fingerprints = Fingerprints::default();
        let mut unchanged = |now: &[(&str, u64)], is_right| {
            let now = now.iter().map(|&(name, print)| (reference(name), print));
            fingerprints.unchanged(now.collect(), is_right)
        };
        let [a, b] = ["a", "b"].map(reference);
        let both = HashSet::from([a.clone(), b.clone()]);
        assert_eq!(unchanged(&[("b", 1), ("a", 1)], true), both);
        let only_a = HashSet::from([a]);
        assert_eq!(unchanged(&[("a", 1), ("b", 2)], false), only_a);
        assert_eq!(unchanged(&[("a", 1), ("b", 2)], false), only_a);
        assert_eq!(unchanged(&[("a", 1), ("b", 2)], true), only_a);
        assert_eq!(unchanged(&[("a", 1), ("b", 2)], false), both);
        assert_eq!(unchanged(&[("b", 2)], false), HashSet::from([b]));
        assert_eq!(unchanged(&[], false), HashSet::new());
        assert!(fingerprints.is_empty());
    }
}
