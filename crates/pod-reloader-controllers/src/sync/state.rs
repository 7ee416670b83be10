//! Remembers what is known of ClusterConfigSyncs, of namespaces, and of the objects that have the names of copies.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use pod_reloader_api::ClusterConfigSyncStatus;
use pod_reloader_core::config_sync::content::Content;
use pod_reloader_core::config_sync::outcome::{self, Noted, Obstacle, Outcome, Reason};
use pod_reloader_core::config_sync::pace::Pace;
use pod_reloader_core::config_sync::{ConfigSync, InvalidSync, NamespaceLabels, Target};
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::name::Name;
use pod_reloader_core::ready::{SeenStatus, ready};
use pod_reloader_core::reference::ConfigKind;

use self::noted::is_absence;
pub(super) use self::task::{Copying, Task};
use super::by_namespace::ByNamespace;

mod news;
mod noted;
mod places;
mod task;

#[cfg(test)]
pub(super) mod tests;

/// The kind and the name that a source and its copies have.
pub(super) type Key = (ConfigKind, Name);
/// A ClusterConfigSync and a namespace, by their names.
pub(super) type Place = (Name, Name);

/// What is known.
pub(super) struct State {
    /// The namespace of the operator.
    own: Name,
    syncs: BTreeMap<Name, Known>,
    /// The namespaces, once they have been listed.
    namespaces: Option<ByNamespace<NamespaceLabels>>,
    targets: HashMap<Key, ByNamespace<Target>>,
}

/// What is known of a ClusterConfigSync.
struct Known {
    /// Its UID and generation.
    version: (Box<str>, i64),
    sync: Result<Arc<ConfigSync>, InvalidSync>,
    status: Option<ClusterConfigSyncStatus>,
    /// True once it is known that all of its copies have a seal. It never becomes false again.
    is_sealed: bool,
    /// The UID of the source's Namespace for this spec, once that has been seen.
    source_namespace: Option<Box<str>>,
    obstacle: Option<Obstacle>,
    /// The digest of the content of copies, and the resourceVersion of the source that it was read from.
    current: Option<(Box<str>, [u8; 16])>,
    source: Arc<tokio::sync::Mutex<Reading>>,
    copies: ByNamespace<Copy>,
    /// How often in a row a copy that is not wanted any more could not be deleted, by namespace.
    undeleted: BTreeMap<Name, u32>,
    /// The number of copies that cannot be exact, when the status was last computed.
    conflicts: usize,
    /// True if copies were being written when the status was last computed.
    was_syncing: bool,
}

impl Known {
    /// Returns true if the status says that all copies of this spec are exact, and some have not been looked at: those of
    /// a new leader, and new ones. To say anything else would be premature.
    fn is_still_ready(&self) -> bool {
        let status = self.status.as_ref();
        let status = status.filter(|it| it.observed_generation == self.version.1);
        let ready = status.and_then(|it| ready(&it.conditions));
        let mut copies = self.copies.values();
        self.obstacle.is_none()
            && ready.is_some_and(|ready| ready.status == "True")
            && copies.any(|copy| copy.outcome == Outcome::Pending && copy.exact.is_none())
    }
}

/// The source as it was last read. Its content stays in memory only while copies are written.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) version: Box<str>,
    pub(super) content: Weak<Content>,
}

/// What is known of a copy.
#[derive(Clone, Debug)]
struct Copy {
    outcome: Outcome,
    exact: Option<Exact>,
    /// Most copies have no history.
    history: Option<Box<History>>,
}

/// What has happened to a copy and decides when it is written again.
#[derive(Clone, Debug, Default)]
struct History {
    pace: Pace,
    /// How often in a row it could not be written.
    failures: u32,
}

impl Default for Copy {
    fn default() -> Self {
        Self {
            outcome: Outcome::Pending,
            exact: None,
            history: None,
        }
    }
}

/// A copy that was exact when it was last looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exact {
    /// Its resourceVersion.
    pub(super) version: Box<str>,
    /// The digest of the content that it has.
    pub(super) digest: [u8; 16],
}

impl State {
    /// Returns a state in which nothing is known. `own` is the namespace of the operator.
    pub(super) fn new(own: Name) -> Self {
        Self {
            own,
            syncs: BTreeMap::new(),
            namespaces: None,
            targets: HashMap::new(),
        }
    }

    /// Notes the content of the copies of a ClusterConfigSync, or why there is none.
    pub(super) fn read(
        &mut self,
        sync: &ConfigSync,
        content: Result<(Box<str>, [u8; 16]), Obstacle>,
    ) {
        if let Some(known) = self.known(sync) {
            match content {
                Ok(current) => {
                    known.current = Some(current);
                    known.obstacle = None;
                }
                Err(obstacle) => known.obstacle = Some(obstacle),
            }
        }
    }

    /// Notes that a copy is exact.
    pub(super) fn exact(&mut self, sync: &ConfigSync, namespace: &Name, exact: Exact) {
        if let Some(copy) = self.copy(sync, namespace) {
            copy.exact = Some(exact);
            copy.outcome = Outcome::Synced;
            if let Some(history) = &mut copy.history {
                history.failures = 0;
            }
        }
    }

    /// Notes that a copy that had been exact is repaired at this pace.
    pub(super) fn repaired(&mut self, sync: &ConfigSync, namespace: &Name, pace: Pace) {
        if let Some(copy) = self.copy(sync, namespace) {
            copy.history.get_or_insert_default().pace = pace;
        }
    }

    /// Notes that a copy cannot be written. Returns how often that has happened in a row.
    pub(super) fn failed(&mut self, sync: &ConfigSync, namespace: &Name, reason: Reason) -> u32 {
        self.copy(sync, namespace).map_or(0, |copy| {
            copy.outcome = Outcome::Failed(reason);
            let history = copy.history.get_or_insert_default();
            history.failures += 1;
            history.failures
        })
    }

    /// Notes that a copy that is not wanted any more cannot be deleted. Returns how often that has happened in a row.
    pub(super) fn not_deleted(&mut self, (sync, namespace): &Place) -> u32 {
        self.syncs.get_mut(sync).map_or(0, |known| {
            let failures = known.undeleted.entry(namespace.clone()).or_default();
            *failures += 1;
            *failures
        })
    }

    /// Notes that a copy that is not wanted any more is deleted.
    pub(super) fn deleted(&mut self, (sync, namespace): &Place) {
        if let Some(known) = self.syncs.get_mut(sync) {
            known.undeleted.remove(namespace);
        }
    }

    /// Returns the status that a ClusterConfigSync should have. `None` as long as that is not known.
    pub(super) fn status(
        &mut self,
        name: &Name,
        now: Timestamp,
        keys: &Arc<Keyring>,
    ) -> Option<StatusChange> {
        if let Ok(sync) = &self.syncs.get(name)?.sync {
            self.namespaces.as_ref()?;
            self.targets.get(&key(sync))?;
        }
        let absence = self.absence(name);
        let sealed = self.are_sealed(name, keys);
        let known = self.syncs.get_mut(name)?;
        let was_absent = known.obstacle.as_ref().is_some_and(is_absence);
        if absence.is_some() || was_absent {
            known.obstacle = absence;
        }
        if known.is_still_ready() {
            return None;
        }
        let invalid = known.sync.as_ref().err().cloned().map(Obstacle::Invalid);
        let outcomes = || {
            known
                .copies
                .iter()
                .map(|(name, copy)| (name, &copy.outcome))
        };
        let after = outcome::status(
            known.status.as_ref(),
            known.version.1,
            invalid.as_ref().or(known.obstacle.as_ref()),
            outcomes(),
            Noted {
                sealed,
                source_namespace_uid: known.source_namespace.as_deref().unwrap_or_default(),
            },
            now,
        );
        let failed = outcomes().filter(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
        known.conflicts = failed.count();
        let is_syncing = ready(&after.conditions).is_some_and(|it| it.reason == "Syncing");
        let was_syncing = std::mem::replace(&mut known.was_syncing, is_syncing);
        let before = known.status.as_ref();
        let was_ready = before.and_then(|it| ready(&it.conditions));
        let was_ready = was_ready.is_some_and(|it| it.status == "True");
        Some(StatusChange {
            uid: known.version.0.clone(),
            is_premature: is_syncing && was_ready && !was_syncing,
            before: before.map(|it| SeenStatus::of(it, &it.conditions)),
            after,
        })
    }

    /// Notes the status that a ClusterConfigSync has got.
    pub(super) fn status_written(&mut self, name: &Name, status: ClusterConfigSyncStatus) {
        if let Some(known) = self.syncs.get_mut(name) {
            known.is_sealed |= status.sealed;
            known.status = Some(status);
        }
    }

    /// Returns the numbers of exact copies, of namespaces that cannot have one, and of ClusterConfigSyncs that are
    /// not ready.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let (mut exact, mut conflicts, mut not_ready) = (0, 0, 0);
        for known in self.syncs.values() {
            let status = known.status.as_ref();
            exact += status.map_or(0, |status| status.synced as usize);
            conflicts += known.conflicts;
            let ready = status.and_then(|it| ready(&it.conditions));
            not_ready += usize::from(ready.is_none_or(|ready| ready.status != "True"));
        }
        (exact, conflicts, not_ready)
    }

    /// Returns what is known of a ClusterConfigSync, if it is still this one.
    fn known(&mut self, sync: &ConfigSync) -> Option<&mut Known> {
        let known = self.syncs.get_mut(&sync.name)?;
        (known.version.0 == sync.uid && known.version.1 == sync.generation).then_some(known)
    }

    fn copy(&mut self, sync: &ConfigSync, namespace: &Name) -> Option<&mut Copy> {
        self.known(sync)?.copies.get_mut(namespace)
    }
}

/// The status that a ClusterConfigSync has, and the one that it should have.
#[derive(Debug)]
pub(super) struct StatusChange {
    pub(super) uid: Box<str>,
    /// True if copies are being written, which may be over in a moment.
    pub(super) is_premature: bool,
    pub(super) before: Option<SeenStatus>,
    pub(super) after: ClusterConfigSyncStatus,
}

fn key(sync: &ConfigSync) -> Key {
    (sync.source.kind, sync.source.name.clone())
}
