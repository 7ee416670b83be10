//! What the reconcile loop remembers of config objects, and how fresh that is.
//!
//! The memory may only ever say "nothing to do": before a write, the loop asks for reads that began
//! after a given moment, so that a late watch cannot move a config hash back.

mod memory;

use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use pod_reloader_core::digest::{Objects, Presence};
use pod_reloader_core::index::Turned;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::references::Rejected;
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;
use tracing::warn;

use self::memory::{Entry, Listed, Listing, Read};
use crate::config::error::ReadError;
use crate::config::source::Source;
use crate::restart::workloads::Workloads;
use pod_reloader_core::error::chain;

/// How many objects of one workload are asked for at once.
const READS_AT_ONCE: usize = 8;
/// How often an object is read again that changes while it is read.
const ATTEMPTS: usize = 3;

/// The digests of referenced objects, by reference.
pub(crate) struct Digests {
    source: Source,
    workloads: Arc<Workloads>,
    entries: Mutex<HashMap<Reference, Arc<Entry>>>,
    /// What is there of a kind in a namespace, for workloads that have regular expressions.
    listings: Mutex<HashMap<(ConfigKind, Name), Arc<Listing>>>,
}

/// What is known of the objects of one workload.
pub(crate) struct Known {
    /// Each object as it was read.
    pub(crate) objects: Objects,
    /// The first of those for which there was no room.
    pub(crate) left_out: Option<Rejected>,
    /// When the read began that saw the latest change, first sight included.
    pub(crate) changed: Instant,
    /// The objects that were seen to change, not counting first sight, with the time of it.
    pub(crate) changes: Vec<(Reference, Instant)>,
}

impl Digests {
    pub(crate) fn new(source: Source, workloads: Arc<Workloads>) -> Self {
        Self {
            source,
            workloads,
            entries: Mutex::default(),
            listings: Mutex::default(),
        }
    }

    /// What is known of all that may count for `workload`, from reads that began at `since` or later where
    /// that is given.
    pub(crate) async fn known(
        &self,
        workload: &Workload,
        since: Option<Instant>,
    ) -> Result<Known, ReadError> {
        let (references, namespace) = (&workload.references, &workload.id.namespace);
        let mut there = Vec::new();
        let mut changed = None;
        let mut changes = Vec::new();
        for kind in references.pattern_kinds() {
            let listed = self.listed(kind, namespace, since).await?;
            there.extend(listed.names.iter().cloned());
            changed = changed.max(Some(listed.first));
            let turned = listed.turned.iter();
            let turned = turned.filter(|(reference, _)| references.matches(reference));
            changes.extend(turned.map(|(reference, at)| (reference.clone(), *at)));
        }
        let (all, left_out) = references.with_matches(there);
        let reads: Vec<(Reference, Read)> = stream::iter(all)
            .map(|reference| async move {
                let read = self.read(&reference, workload, since).await?;
                Ok::<_, ReadError>((reference, read))
            })
            .buffer_unordered(READS_AT_ONCE)
            .try_collect()
            .await?;
        let times = reads.iter().map(|(_, read)| read.changed);
        let times = times.chain(changes.iter().map(|(_, at)| *at));
        let changed = times.max().max(changed).unwrap_or_else(Instant::now);
        for (reference, read) in reads.iter().filter(|(_, read)| !read.first_sight) {
            if !changes.iter().any(|(known, _)| known == reference) {
                changes.push((reference.clone(), read.changed));
            }
        }
        Ok(Known {
            changed,
            changes,
            left_out,
            objects: reads
                .into_iter()
                .map(|(reference, read)| (reference, read.presence))
                .collect(),
        })
    }

    /// Takes in a watch event: the object is there with this resourceVersion, or is gone. What is known
    /// of it is forgotten, unless it is that already. Says whether it was news.
    pub(crate) fn observe(
        &self,
        reference: &Reference,
        resource_version: Option<&str>,
        now: Instant,
    ) -> bool {
        self.observe_name(reference, resource_version.is_some());
        let entry = self.entry(reference);
        let mut state = entry.state.lock();
        let known = match (state.fresh(None), resource_version) {
            (
                Some(Read {
                    presence: Presence::Present(object),
                    ..
                }),
                Some(version),
            ) => *object.resource_version == *version,
            (
                Some(Read {
                    presence: Presence::Absent,
                    ..
                }),
                None,
            ) => true,
            _ => false,
        };
        if !known {
            state.forgotten = Some(now);
        }
        !known
    }

    /// Drops what is known of objects whose events did not count, or will not: of those of a turned
    /// namespace that do not `stay` tracked. What is there in a namespace is listed anew, by those who
    /// still ask: no event has told of what only a new regular expression matches.
    pub(crate) fn forget(
        &self,
        turned: &Turned,
        stays: impl Fn(&Reference) -> bool,
        is_asked_for: impl Fn(&(ConfigKind, Name)) -> bool,
    ) {
        let mut entries = self.entries.lock();
        for reference in &turned.references {
            entries.remove(reference);
        }
        let mut listings = self.listings.lock();
        for place in &turned.namespaces {
            let (kind, namespace) = place;
            let is_there = |it: &Reference| it.kind == *kind && it.namespace == *namespace;
            entries.retain(|reference, _| !is_there(reference) || stays(reference));
            if !is_asked_for(place) {
                listings.remove(place);
            } else if let Some(listing) = listings.get(place) {
                listing.state.lock().forgotten = Some(Instant::now());
            }
        }
    }

    /// Drops what is known of all objects but those that `is_of_use` holds for.
    pub(crate) fn retain(&self, is_of_use: impl Fn(&Reference) -> bool) {
        self.entries
            .lock()
            .retain(|reference, _| is_of_use(reference));
    }

    /// How many objects are remembered as they were read.
    pub(crate) fn len(&self) -> usize {
        let entries = self.entries.lock();
        let is_read = |entry: &&Arc<Entry>| entry.state.lock().read.is_some();
        entries.values().filter(is_read).count()
    }

    /// Takes in that an object is there, or is not: where that is news, the list is forgotten.
    fn observe_name(&self, reference: &Reference, is_there: bool) {
        let listings = self.listings.lock();
        if listings.is_empty() {
            return;
        }
        let place = (reference.kind, reference.namespace.clone());
        if let Some(listing) = listings.get(&place) {
            let mut state = listing.state.lock();
            // What is being listed now may have begun before this.
            let names = state.listed.as_ref().map(|listed| &listed.names);
            if names.is_none_or(|names| names.contains(reference) != is_there) {
                state.forgotten = Some(Instant::now());
            }
        }
    }

    async fn listed(
        &self,
        kind: ConfigKind,
        namespace: &Name,
        since: Option<Instant>,
    ) -> Result<Arc<Listed>, ReadError> {
        let place = (kind, namespace.clone());
        let listing = self.listings.lock().entry(place).or_default().clone();
        let fresh = || {
            let state = listing.state.lock();
            let listed = state.listed.as_ref()?;
            let is_late_enough = since.is_none_or(|since| listed.began >= since);
            let is_latest = state.forgotten.is_none_or(|at| listed.began > at);
            (is_late_enough && is_latest).then(|| listed.clone())
        };
        if let Some(listed) = fresh() {
            return Ok(listed);
        }
        let _listing = listing.listing.lock().await;
        if let Some(listed) = fresh() {
            return Ok(listed);
        }
        let began = Instant::now();
        let names = self.source.names(kind, namespace).await?;
        let names = names.into_iter().collect();
        let mut state = listing.state.lock();
        let listed = Arc::new(Listed::after(state.listed.as_deref(), names, began));
        state.listed = Some(listed.clone());
        Ok(listed)
    }

    /// The objects that are remembered as present.
    pub(crate) fn present(&self) -> Vec<Reference> {
        let entries = self.entries.lock();
        let is_present = |entry: &Entry| {
            matches!(
                entry.state.lock().read,
                Some(Read {
                    presence: Presence::Present(_),
                    ..
                })
            )
        };
        entries
            .iter()
            .filter(|(_, entry)| is_present(entry))
            .map(|(reference, _)| reference.clone())
            .collect()
    }

    async fn read(
        &self,
        reference: &Reference,
        workload: &Workload,
        since: Option<Instant>,
    ) -> Result<Read, ReadError> {
        let entry = self.entry(reference);
        let fresh = || {
            let state = entry.state.lock();
            let covers = |read: &&Read| read.covers(workload.data_keys(reference));
            state.fresh(since).filter(covers).cloned()
        };
        if let Some(read) = fresh() {
            return Ok(read);
        }
        let _reading = entry.reading.lock().await;
        let mut attempt = 1;
        loop {
            if let Some(read) = fresh() {
                return Ok(read);
            }
            let began = Instant::now();
            // What others ask about, too, or each of them would read it again.
            let mut keys = self.workloads.data_keys(reference);
            keys.extend(workload.data_keys(reference).map(Into::into));
            let presence = self.source.read(reference, keys).await;
            let mut state = entry.state.lock();
            let was_failing = std::mem::replace(&mut state.is_failing, presence.is_err());
            let presence = presence.inspect_err(|error| {
                // Once, and not for each workload that lists it.
                if !was_failing {
                    let error = chain(error);
                    warn!(error, "cannot read what workloads list, trying again");
                }
            })?;
            let read = Read::after(state.read.as_ref(), presence, began);
            state.read = Some(read.clone());
            if attempt == ATTEMPTS {
                // It changes as fast as it is read: this is one of its contents, and the next event
                // of the watch brings the loop back here.
                return Ok(read);
            }
            attempt += 1;
        }
    }

    fn entry(&self, reference: &Reference) -> Arc<Entry> {
        self.entries
            .lock()
            .entry(reference.clone())
            .or_default()
            .clone()
    }
}
