//! Remembers what is known of ClusterConfigSyncs, of namespaces, and of the objects that have the names of copies.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use pod_reloader_api::{ClusterConfigSync, ClusterConfigSyncStatus};
use pod_reloader_core::config_sync::content::Content;
use pod_reloader_core::config_sync::outcome::{self, Obstacle, Outcome, Reason};
use pod_reloader_core::config_sync::pace::Pace;
use pod_reloader_core::config_sync::{ConfigSync, InvalidSync, NamespaceLabels, Target};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};

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
    namespaces: Option<HashMap<Name, NamespaceLabels>>,
    targets: HashMap<Key, HashMap<Name, Target>>,
}

/// What is known of a ClusterConfigSync.
struct Known {
    /// Its UID and generation.
    version: (Box<str>, i64),
    sync: Result<Arc<ConfigSync>, InvalidSync>,
    status: Option<ClusterConfigSyncStatus>,
    obstacle: Option<Obstacle>,
    /// The digest of the content of copies, and the resourceVersion of the source that it was read from.
    current: Option<(Box<str>, [u8; 16])>,
    source: Arc<tokio::sync::Mutex<Reading>>,
    copies: BTreeMap<Name, Copy>,
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
    pace: Pace,
    failures: u32,
}

impl Default for Copy {
    fn default() -> Self {
        Self {
            outcome: Outcome::Pending,
            exact: None,
            pace: Pace::default(),
            failures: 0,
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

    /// Takes in a ClusterConfigSync. Returns the copies to look at.
    pub(super) fn sync_seen(&mut self, name: Name, object: ClusterConfigSync) -> Vec<Place> {
        if object.metadata.deletion_timestamp.is_some() {
            return self.sync_gone(&name);
        }
        let uid = object.metadata.uid.as_deref().unwrap_or_default().into();
        let version = (uid, object.metadata.generation.unwrap_or_default());
        let sync = ConfigSync::try_from(&object).map(Arc::new);
        if let Some(known) = self.syncs.get_mut(&name) {
            known.status = object.status;
            if known.version == version {
                return Vec::new();
            }
        }
        let before = self.syncs.remove(&name);
        let same_object = before.filter(|before| before.version.0 == version.0);
        let (status, copies) =
            same_object.map_or_else(Default::default, |it| (it.status, it.copies));
        let known = Known {
            version,
            sync,
            status,
            obstacle: None,
            current: None,
            source: Arc::default(),
            copies,
        };
        self.syncs.insert(name.clone(), known);
        let mut places = self.all_of(&name);
        for rival in self.rivals(&name) {
            places.extend(self.all_of(&rival));
        }
        places
    }

    /// Forgets a ClusterConfigSync. Returns the copies to look at: others may have its place.
    pub(super) fn sync_gone(&mut self, name: &Name) -> Vec<Place> {
        let rivals = self.rivals(name);
        self.syncs.remove(name);
        let places = rivals.iter().flat_map(|rival| self.all_of(rival));
        places.collect()
    }

    /// Returns the ClusterConfigSyncs whose names are not among these.
    pub(super) fn syncs_without(&self, listed: &BTreeSet<Name>) -> Vec<Name> {
        let gone = self.syncs.keys().filter(|name| !listed.contains(*name));
        gone.cloned().collect()
    }

    /// Returns the kinds and names of all sources.
    pub(super) fn keys(&self) -> BTreeSet<Key> {
        let syncs = self.syncs.values().filter_map(|it| it.sync.as_ref().ok());
        syncs.map(|sync| key(sync)).collect()
    }

    /// Takes in all namespaces. Returns the copies to look at.
    pub(super) fn namespaces_listed(
        &mut self,
        namespaces: HashMap<Name, NamespaceLabels>,
    ) -> Vec<Place> {
        let before = self.namespaces.replace(namespaces);
        let Some(before) = before else {
            return self.all();
        };
        let after = self.namespaces.iter().flatten();
        let changed = after.filter(|(name, labels)| before.get(*name) != Some(labels));
        let gone = before.keys().filter(|name| !self.has_namespace(name));
        let news: Vec<_> = changed.map(|(name, _)| name).chain(gone).cloned().collect();
        news.iter().flat_map(|name| self.all_in(name)).collect()
    }

    /// Takes in a namespace, or that it is gone. Returns the copies to look at.
    pub(super) fn namespace_seen(
        &mut self,
        name: &Name,
        labels: Option<NamespaceLabels>,
    ) -> Vec<Place> {
        let Some(namespaces) = &mut self.namespaces else {
            return Vec::new();
        };
        let before = match labels.clone() {
            Some(labels) => namespaces.insert(name.clone(), labels),
            None => namespaces.remove(name),
        };
        match before == labels {
            true => Vec::new(),
            false => self.all_in(name),
        }
    }

    /// Takes in all objects of this kind with this name, by namespace. Returns the copies to look at.
    pub(super) fn targets_listed(
        &mut self,
        key: &Key,
        targets: HashMap<Name, Target>,
    ) -> Vec<Place> {
        let Some(before) = self.targets.insert(key.clone(), targets) else {
            let syncs = self.of_key(key);
            return syncs.iter().flat_map(|name| self.all_of(name)).collect();
        };
        let after = &self.targets[key];
        let all = before.keys().chain(after.keys());
        let news = all.filter(|namespace| before.get(*namespace) != after.get(*namespace));
        let news: BTreeSet<_> = news.cloned().collect();
        news.iter()
            .flat_map(|it| self.changed_in(key, it))
            .collect()
    }

    /// Takes in an object of this kind with this name, or that it is gone. Returns the copies to look at.
    pub(super) fn target_seen(
        &mut self,
        key: &Key,
        namespace: &Name,
        target: Option<Target>,
    ) -> Vec<Place> {
        let Some(targets) = self.targets.get_mut(key) else {
            return Vec::new();
        };
        let before = match target.clone() {
            Some(target) => targets.insert(namespace.clone(), target),
            None => targets.remove(namespace),
        };
        match before == target {
            true => Vec::new(),
            false => self.changed_in(key, namespace),
        }
    }

    /// Forgets the objects of this kind with this name.
    pub(super) fn targets_gone(&mut self, key: &Key) {
        self.targets.remove(key);
    }

    /// Returns the next thing to do about the copy of a ClusterConfigSync in a namespace.
    pub(super) fn task(&mut self, (name, namespace): &Place) -> Task {
        let older = self.older(name, namespace);
        let Some(known) = self.syncs.get_mut(name) else {
            return Task::None;
        };
        let Ok(sync) = known.sync.clone() else {
            known.copies.clear();
            return Task::None;
        };
        let (Some(namespaces), Some(targets)) = (&self.namespaces, self.targets.get(&key(&sync)))
        else {
            return Task::None;
        };
        let target = targets.get(namespace);
        let copy = Reference {
            namespace: namespace.clone(),
            ..sync.source.clone()
        };
        let removed = |successor: Option<&ConfigSync>| match target {
            Some(target) if sync.removes(namespace, target, successor) => {
                Task::Delete(copy.clone(), target.clone())
            }
            _ => Task::None,
        };
        let Some(labels) = namespaces.get(namespace) else {
            known.copies.remove(namespace);
            return Task::None;
        };
        if !sync.selects(namespace, labels, &self.own) {
            known.copies.remove(namespace);
            return match labels.is_terminating || *namespace == sync.source.namespace {
                true => Task::None,
                false => removed(None),
            };
        }
        let seen = known.copies.entry(namespace.clone()).or_default();
        if let Some(older) = older {
            seen.outcome = Outcome::Failed(Reason::OtherSync(older.name.clone()));
            return removed(Some(&older));
        }
        if target.is_some_and(|target| !sync.owns(namespace, target)) {
            seen.outcome = Outcome::Failed(Reason::ExistsNotOurs);
            return Task::None;
        }
        let Some(source) = targets.get(&sync.source.namespace) else {
            known.obstacle = Some(Obstacle::SourceNotFound);
            return Task::None;
        };
        let is_exact = seen.exact.as_ref().is_some_and(|exact| {
            target.is_some_and(|target| target.resource_version == exact.version)
                && known.current.as_ref().is_some_and(|(version, digest)| {
                    *version == source.resource_version && *digest == exact.digest
                })
        });
        if is_exact {
            seen.outcome = Outcome::Synced;
            return Task::None;
        }
        Task::Write(Box::new(Copying {
            copy,
            seen: target.map(|target| target.resource_version.clone()),
            source_version: source.resource_version.clone(),
            source: known.source.clone(),
            exact: seen.exact.clone(),
            pace: seen.pace,
            sync,
        }))
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
            copy.failures = 0;
        }
    }

    /// Notes that a copy that had been exact is repaired at this pace.
    pub(super) fn repaired(&mut self, sync: &ConfigSync, namespace: &Name, pace: Pace) {
        if let Some(copy) = self.copy(sync, namespace) {
            copy.pace = pace;
        }
    }

    /// Notes that a copy cannot be written. Returns how often that has happened in a row.
    pub(super) fn failed(&mut self, sync: &ConfigSync, namespace: &Name, reason: Reason) -> u32 {
        self.copy(sync, namespace).map_or(0, |copy| {
            copy.outcome = Outcome::Failed(reason);
            copy.failures += 1;
            copy.failures
        })
    }

    /// Returns the status that a ClusterConfigSync should have, if it has another one, and the one that it has.
    pub(super) fn status(&mut self, name: &Name, now: Timestamp) -> Option<StatusChange> {
        let source_is_missing = match &self.syncs.get(name)?.sync {
            Ok(sync) => {
                self.namespaces.as_ref()?;
                !self
                    .targets
                    .get(&key(sync))?
                    .contains_key(&sync.source.namespace)
            }
            Err(_) => false,
        };
        let known = self.syncs.get_mut(name)?;
        if source_is_missing {
            known.obstacle = Some(Obstacle::SourceNotFound);
        } else if known.obstacle == Some(Obstacle::SourceNotFound) {
            known.obstacle = None;
        }
        let invalid = known.sync.as_ref().err().cloned().map(Obstacle::Invalid);
        let status = outcome::status(
            known.status.as_ref(),
            known.version.1,
            invalid.as_ref().or(known.obstacle.as_ref()),
            known
                .copies
                .iter()
                .map(|(name, copy)| (name, &copy.outcome)),
            now,
        );
        (known.status.as_ref() != Some(&status)).then(|| StatusChange {
            uid: known.version.0.clone(),
            before: known.status.clone(),
            after: status,
        })
    }

    /// Notes the status that a ClusterConfigSync has got.
    pub(super) fn status_written(&mut self, name: &Name, status: ClusterConfigSyncStatus) {
        if let Some(known) = self.syncs.get_mut(name) {
            known.status = Some(status);
        }
    }

    /// Returns the numbers of exact copies, of namespaces that cannot have one, and of ClusterConfigSyncs that are
    /// not ready.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let copies = || self.syncs.values().flat_map(|known| known.copies.values());
        let exact = copies().filter(|copy| copy.outcome == Outcome::Synced);
        let failed = copies().filter(|copy| matches!(copy.outcome, Outcome::Failed(_)));
        let not_ready = self.syncs.values().filter(|known| {
            let ready = known.status.as_ref().and_then(outcome::ready);
            ready.is_none_or(|ready| ready.status != "True")
        });
        (exact.count(), failed.count(), not_ready.count())
    }

    fn has_namespace(&self, name: &Name) -> bool {
        self.namespaces
            .as_ref()
            .is_some_and(|all| all.contains_key(name))
    }

    /// Returns what is known of a ClusterConfigSync, if it is still this one.
    fn known(&mut self, sync: &ConfigSync) -> Option<&mut Known> {
        let known = self.syncs.get_mut(&sync.name)?;
        (known.version.0 == sync.uid && known.version.1 == sync.generation).then_some(known)
    }

    fn copy(&mut self, sync: &ConfigSync, namespace: &Name) -> Option<&mut Copy> {
        self.known(sync)?.copies.get_mut(namespace)
    }

    fn sync(&self, name: &Name) -> Option<&Arc<ConfigSync>> {
        self.syncs.get(name)?.sync.as_ref().ok()
    }

    fn others(&self, sync: &ConfigSync) -> impl Iterator<Item = &Arc<ConfigSync>> {
        let all = self.syncs.values().filter_map(|it| it.sync.as_ref().ok());
        all.filter(|other| other.competes_with(sync))
    }

    fn rivals(&self, name: &Name) -> Vec<Name> {
        let others = self.sync(name).map(|sync| self.others(sync));
        others
            .into_iter()
            .flatten()
            .map(|it| it.name.clone())
            .collect()
    }

    /// Returns the oldest of the ClusterConfigSyncs that have a namespace before this one.
    fn older(&self, name: &Name, namespace: &Name) -> Option<Arc<ConfigSync>> {
        let sync = self.sync(name)?;
        let labels = self.namespaces.as_ref()?.get(namespace)?;
        let older = self
            .others(sync)
            .filter(|other| other.precedes(sync) && other.selects(namespace, labels, &self.own));
        older
            .reduce(|a, b| if a.precedes(b) { a } else { b })
            .cloned()
    }

    fn of_key(&self, wanted: &Key) -> Vec<Name> {
        let all = self.syncs.values().filter_map(|it| it.sync.as_ref().ok());
        let matching = all.filter(|sync| key(sync) == *wanted);
        matching.map(|sync| sync.name.clone()).collect()
    }

    fn all(&mut self) -> Vec<Place> {
        let names: Vec<_> = self.syncs.keys().cloned().collect();
        names.iter().flat_map(|name| self.all_of(name)).collect()
    }

    /// Returns the copies of a ClusterConfigSync, wanted or not. None of them counts as exact until it has been
    /// looked at.
    fn all_of(&mut self, name: &Name) -> Vec<Place> {
        let Some(sync) = self.sync(name).cloned() else {
            return Vec::new();
        };
        let targets = self.targets.get(&key(&sync));
        let of_targets = targets.into_iter().flat_map(HashMap::keys);
        let namespaces = self.namespaces.iter().flat_map(HashMap::keys);
        let all: BTreeSet<_> = namespaces.chain(of_targets).cloned().collect();
        all.into_iter()
            .filter_map(|namespace| self.await_look(&sync, namespace))
            .collect()
    }

    /// Returns the copies of all ClusterConfigSyncs in a namespace.
    fn all_in(&mut self, namespace: &Name) -> Vec<Place> {
        let all = self.syncs.values().filter_map(|it| it.sync.as_ref().ok());
        let all: Vec<_> = all.cloned().collect();
        all.iter()
            .filter_map(|sync| self.await_look(sync, namespace.clone()))
            .collect()
    }

    /// Returns the copies that are concerned by a change of an object: itself, and if it is a source, all others.
    fn changed_in(&mut self, key: &Key, namespace: &Name) -> Vec<Place> {
        let mut places = Vec::new();
        for name in self.of_key(key) {
            let Some(sync) = self.sync(&name).cloned() else {
                continue;
            };
            if sync.source.namespace == *namespace {
                places.extend(self.all_of(&name));
            } else {
                places.extend(self.await_look(&sync, namespace.clone()));
            }
        }
        places
    }

    /// Counts a copy as one that is still to be looked at. `None` if there is none, and none is wanted.
    fn await_look(&mut self, sync: &ConfigSync, namespace: Name) -> Option<Place> {
        let labels = self.namespaces.as_ref().and_then(|all| all.get(&namespace));
        let is_wanted = labels.is_some_and(|labels| sync.selects(&namespace, labels, &self.own));
        let targets = self.targets.get(&key(sync));
        let is_there = targets.is_some_and(|targets| targets.contains_key(&namespace));
        let copies = &mut self.syncs.get_mut(&sync.name)?.copies;
        let is_known = copies.contains_key(&namespace);
        if is_wanted {
            let copy = copies.entry(namespace.clone()).or_default();
            if copy.outcome == Outcome::Synced {
                copy.outcome = Outcome::Pending;
            }
        }
        (is_wanted || is_there || is_known).then(|| (sync.name.clone(), namespace))
    }
}

/// A status that differs from the one that a ClusterConfigSync has.
#[derive(Debug)]
pub(super) struct StatusChange {
    pub(super) uid: Box<str>,
    pub(super) before: Option<ClusterConfigSyncStatus>,
    pub(super) after: ClusterConfigSyncStatus,
}

fn key(sync: &ConfigSync) -> Key {
    (sync.source.kind, sync.source.name.clone())
}
