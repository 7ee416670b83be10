//! Decides what to do about a copy.

use std::sync::Arc;

use pod_reloader_core::config_sync::outcome::{Outcome, Reason};
use pod_reloader_core::config_sync::pace::Pace;
use pod_reloader_core::config_sync::{ConfigSync, Seals, Target, Whose};
use pod_reloader_core::hash::Keyring;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;

use super::{Exact, Known, Place, Reading, State, key};

/// The next thing to do about a copy.
pub(in crate::sync) enum Task {
    /// Nothing, for now.
    None,
    /// To delete it, as it was seen.
    Delete(Reference, Target),
    /// To make it exact.
    Write(Box<Copying>),
}

/// A copy that may not be exact.
pub(in crate::sync) struct Copying {
    pub(in crate::sync) sync: Arc<ConfigSync>,
    /// The copy.
    pub(in crate::sync) copy: Reference,
    /// The resourceVersion of the object with its name, if there is one.
    pub(in crate::sync) seen: Option<Box<str>>,
    /// The resourceVersion of the source, as it was last seen.
    pub(in crate::sync) source_version: Box<str>,
    pub(in crate::sync) source: Arc<tokio::sync::Mutex<Reading>>,
    pub(in crate::sync) exact: Option<Exact>,
    /// True if it was exact and the source has not changed since: somebody else has changed it. Also true of an object
    /// that somebody else has given the mark of the copy. Both are looked at ever more slowly.
    pub(in crate::sync) is_repair: bool,
    /// The seals of the copies.
    pub(in crate::sync) seals: Seals,
    /// True if it has no seal under the current key, be it exact otherwise.
    pub(in crate::sync) needs_seal: bool,
    pub(in crate::sync) pace: Pace,
}

impl State {
    /// Returns the next thing to do about the copy of a ClusterConfigSync in a namespace.
    pub(in crate::sync) fn task(&mut self, (name, namespace): &Place, keys: &Arc<Keyring>) -> Task {
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
