//! Remembers what is known of ClusterConfigSyncs, of namespaces, and of the objects that have the names of copies.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use pod_reloader_api::ClusterConfigSyncStatus;
use pod_reloader_core::config_sync::content::Content;
use pod_reloader_core::config_sync::outcome::{self, Noted, Obstacle, Outcome, Reason};
use pod_reloader_core::config_sync::pace::Pace;
use pod_reloader_core::config_sync::{
    ConfigSync, InvalidSync, NamespaceLabels, Seals, Target, Whose,
};
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};

use self::noted::is_absence;
use super::by_namespace::ByNamespace;

mod news;
mod noted;
mod places;

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
        let ready = status.and_then(outcome::ready);
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

/// The next thing to do about a copy.
pub(super) enum Task {
    /// Nothing, for now.
    None,
    /// To delete it, as it was seen.
    Delete(Reference, Target),
    /// To make it exact.
    Write(Box<Copying>),
}

/// A copy that may not be exact.
pub(super) struct Copying {
    pub(super) sync: Arc<ConfigSync>,
    /// The copy.
    pub(super) copy: Reference,
    /// The resourceVersion of the object with its name, if there is one.
    pub(super) seen: Option<Box<str>>,
    /// The resourceVersion of the source, as it was last seen.
    pub(super) source_version: Box<str>,
    pub(super) source: Arc<tokio::sync::Mutex<Reading>>,
    pub(super) exact: Option<Exact>,
    /// True if it was exact and the source has not changed since: somebody else has changed it. Also true of an object
    /// that somebody else has given the mark of the copy. Both are looked at ever more slowly.
    pub(super) is_repair: bool,
    /// The seals of the copies.
    pub(super) seals: Seals,
    /// True if it has no seal under the current key, be it exact otherwise.
    pub(super) needs_seal: bool,
    pub(super) pace: Pace,
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

    /// Returns the next thing to do about the copy of a ClusterConfigSync in a namespace.
    pub(super) fn task(&mut self, (name, namespace): &Place, keys: &Arc<Keyring>) -> Task {
        let holder = self.holder(name, namespace);
        let absence = self.absence(name);
        let Some(known) = self.syncs.get_mut(name) else {
            return Task::None;
        };
        let Ok(sync) = known.sync.clone() else {
            return Task::None;
        };
        let (Some(namespaces), Some(targets)) = (&self.namespaces, self.targets.get(&key(&sync)))
        else {
            return Task::None;
        };
        let candidate = Candidate {
            sync: &sync,
            namespace,
            target: targets.get(namespace),
            seals: known.seals(keys),
        };
        let Some(labels) = namespaces.get(namespace) else {
            known.copies.remove(namespace);
            return Task::None;
        };
        if !sync.selects(namespace, labels, &self.own) {
            known.copies.remove(namespace);
            return match labels.is_terminating || sync.spares(namespace, &self.own) {
                true => Task::None,
                false => candidate.removal(holder.as_deref()),
            };
        }
        let seen = known.copies.or_default(namespace);
        if let Some(older) = holder.filter(|it| it.precedes(&sync)) {
            seen.outcome = Outcome::Failed(Reason::OtherSync(older.name.clone()));
            return candidate.removal(Some(&older));
        }
        let whose = candidate.whose();
        if whose == Some(Whose::Foreign) {
            seen.outcome = Outcome::Failed(Reason::ExistsNotOurs);
            return Task::None;
        }
        if absence.is_some() {
            known.obstacle = absence;
            return Task::None;
        }
        match targets.get(&sync.source.namespace) {
            Some(source) => candidate.write(known, source, whose),
            None => Task::None,
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
        let ready = |status| outcome::ready(status).map(|it| (&*it.status, &*it.reason));
        let is_syncing = ready(&after).is_some_and(|(_, reason)| reason == "Syncing");
        let was_syncing = std::mem::replace(&mut known.was_syncing, is_syncing);
        let before = known.status.clone();
        let was_ready = before
            .as_ref()
            .and_then(ready)
            .is_some_and(|it| it.0 == "True");
        Some(StatusChange {
            uid: known.version.0.clone(),
            is_premature: is_syncing && was_ready && !was_syncing,
            before,
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
            let ready = status.and_then(outcome::ready);
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

/// The object with the name of a copy, in a namespace that may have one.
struct Candidate<'a> {
    sync: &'a Arc<ConfigSync>,
    namespace: &'a Name,
    /// The object, if there is one.
    target: Option<&'a Target>,
    seals: Seals,
}

impl Candidate<'_> {
    fn whose(&self) -> Option<Whose> {
        let target = self.target?;
        Some(self.sync.whose(self.namespace, target, &self.seals))
    }

    /// Returns what to do about a copy that is not wanted, given the ClusterConfigSync that has the name from now on.
    fn removal(&self, successor: Option<&ConfigSync>) -> Task {
        let (sync, namespace) = (self.sync, self.namespace);
        match self.target {
            Some(target) if sync.removes(namespace, target, successor, &self.seals) => {
                Task::Delete(sync.copy_in(namespace), target.clone())
            }
            _ => Task::None,
        }
    }

    /// Returns what to do about a copy that is wanted, and that may be made of this source. `whose` is the object.
    fn write(self, known: &mut Known, source: &Target, whose: Option<Whose>) -> Task {
        let seen = known.copies.or_default(self.namespace);
        let current = known.current.as_ref();
        let current = current.filter(|(version, _)| **version == *source.resource_version());
        let exact = seen.exact.as_ref();
        let exact = exact.filter(|it| current.is_some_and(|(_, digest)| *digest == it.digest));
        let is_exact = exact.is_some_and(|exact| {
            let target = self.target;
            target.is_some_and(|target| *target.resource_version() == *exact.version)
        });
        let needs_seal = whose.is_some_and(|whose| whose != Whose::Ours);
        if is_exact && !needs_seal {
            seen.outcome = Outcome::Synced;
            return Task::None;
        }
        let history = seen.history.as_ref();
        Task::Write(Box::new(Copying {
            copy: self.sync.copy_in(self.namespace),
            seen: self.target.map(|target| target.resource_version().into()),
            source_version: source.resource_version().into(),
            source: known.source.clone(),
            exact: seen.exact.clone(),
            is_repair: exact.is_some() || whose == Some(Whose::Claimed),
            seals: self.seals,
            needs_seal,
            pace: history.map_or_else(Pace::default, |history| history.pace),
            sync: self.sync.clone(),
        }))
    }
}

/// The status that a ClusterConfigSync has, and the one that it should have.
#[derive(Debug)]
pub(super) struct StatusChange {
    pub(super) uid: Box<str>,
    /// True if copies are being written, which may be over in a moment.
    pub(super) is_premature: bool,
    pub(super) before: Option<ClusterConfigSyncStatus>,
    pub(super) after: ClusterConfigSyncStatus,
}

fn key(sync: &ConfigSync) -> Key {
    (sync.source.kind, sync.source.name.clone())
}
