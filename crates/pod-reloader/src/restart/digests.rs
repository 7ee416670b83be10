//! Remembers what was read of config objects, and how fresh that is.
//!
//! The memory alone can only ever say "nothing to do". Before a write, the loop asks for reads that began after a given
//! moment, or knows that the config hash is of what is remembered. So a late watch cannot move it back.

mod entry;

use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use pod_reloader_core::digest::{Objects, Presence};
use pod_reloader_core::index::Affected;
use pod_reloader_core::name::Name;
use pod_reloader_core::pins::Pins;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::references::Rejected;
use pod_reloader_core::secret_provider_class::Rotated;
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;
use tracing::warn;

use self::entry::{Entry, Known, Listed, Listing, Read, Sight};
use crate::live::error::ReadError;
use crate::live::source::Source;
use crate::restart::workloads::Workloads;
use pod_reloader_core::error::chain;

/// The number of objects of one workload that are read at once.
const READS_AT_ONCE: usize = 12;
/// The maximum number of reads of an object that changes while it is read.
const ATTEMPTS: usize = 3;

/// The digests of referenced objects, by reference.
pub(crate) struct Digests {
    source: Source,
    workloads: Arc<Workloads>,
    /// What was read. The keys are those of the index, unless a regular expression has matched first. Locked before the
    /// workloads, never while they are.
    entries: Mutex<HashMap<Arc<Reference>, Arc<Entry>>>,
    /// The objects of a kind in a namespace, for workloads that have regular expressions.
    listings: Mutex<HashMap<(ConfigKind, Name), Arc<Listing>>>,
}

/// The known state of the objects of one workload.
pub(crate) struct Snapshot {
    /// Each object as it was read.
    pub(crate) objects: Objects,
    /// The first of the objects for which there was no room.
    pub(crate) left_out: Option<Rejected>,
    /// The time when the read began that saw the latest change. The first read of an object is included.
    pub(crate) changed: Instant,
    /// The pins of what was undone, and still is there. Its objects have the content that the pods have.
    pub(crate) undone: Pins,
    /// The objects that were seen to change, with the time of the change. First reads are not included.
    pub(crate) changes: Vec<(Reference, Instant)>,
    /// The objects that a watch has shown to change before they were first read, and that have had the content of
    /// that read since, with the time when it did. The change may be one of labels.
    pub(crate) heard_of: Vec<(Reference, Instant)>,
    /// The time of the first event about one of the objects since the config hash was last right.
    pub(crate) first_news: Option<Instant>,
    /// The versions to which all pods have been rotated, if that calls for a restart.
    pub(crate) rotated: Rotated,
    /// The time when to find out about that, if it is not known yet.
    pub(crate) rotation_due: Option<Instant>,
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

    /// Returns the known state of all objects that `workload` may track. If `since` is given, relies only
    /// on reads that began then or later.
    pub(crate) async fn snapshot(
        &self,
        workload: &Workload,
        since: Option<Instant>,
    ) -> Result<Snapshot, ReadError> {
        let (references, namespace) = (&workload.references, &workload.id.namespace);
        let mut there = Vec::new();
        let mut changed = None;
        let mut changes = Vec::new();
        for kind in references.pattern_kinds() {
            let listed = self.listed(kind, namespace, since).await?;
            there.extend(listed.names.iter().cloned());
            changed = changed.max(Some(listed.first));
            let matching = listed.changed.iter();
            let matching = matching.filter(|(reference, _)| references.matches(reference));
            changes.extend(matching.map(|(reference, at)| (reference.clone(), *at)));
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
        let times = reads.iter().map(|(_, read)| Instant::from(read.changed));
        let times = times.chain(changes.iter().map(|(_, at)| *at));
        let changed = times.max().max(changed).unwrap_or_else(Instant::now);
        let mut heard_of = Vec::new();
        for (reference, read) in &reads {
            match read.sight {
                Sight::First { heard_of: at } => {
                    heard_of.extend(at.map(|at| (reference.clone(), at)));
                }
                Sight::Changed if changes.iter().any(|(known, _)| known == reference) => {}
                Sight::Changed => changes.push((reference.clone(), read.changed.into())),
            }
        }
        Ok(Snapshot {
            changed,
            changes,
            heard_of,
            first_news: None,
            left_out,
            undone: Pins::default(),
            rotated: Rotated::new(),
            rotation_due: None,
            objects: reads
                .into_iter()
                .map(|(reference, read)| (reference, read.presence))
                .collect(),
        })
    }

    /// Returns the time of the latest news of an object that `workload` names, if the object has to be read because
    /// of it. An object whose last news brought no other content, such as one that gets a new annotation every
    /// second, is no reason to expect any.
    pub(crate) fn news(&self, workload: &Workload) -> Option<Instant> {
        let entries = self.entries.lock();
        let named = workload.references.named();
        let news = named.filter_map(|reference| entries.get(reference)?.state.lock().news());
        news.max()
    }

    /// Returns what was last read of each object that `workload` names, even if there is news of it. `None` if something
    /// was not read, or if the workload has regular expressions.
    pub(crate) fn last_read(&self, workload: &Workload) -> Option<Objects> {
        let references = &workload.references;
        if references.pattern_kinds().next().is_some() {
            return None;
        }
        let entries = self.entries.lock();
        let last_read = |reference: &Reference| {
            let state = entries.get(reference)?.state.lock();
            let covers = |read: &&Read| read.covers(workload.data_keys(reference));
            let read = state.read().filter(covers)?;
            Some((reference.clone(), read.presence.clone()))
        };
        references.named().map(last_read).collect()
    }

    /// Returns where the objects are read.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Takes in a watch event: the object has this resourceVersion, or is gone. Unless that is the known
    /// state, the known state is forgotten. Returns true if the event is news.
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
            ) => object.resource_version() == version,
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
            state.forgotten = Some(now.into());
        }
        !known
    }

    /// Notes that a watch has shown a change of an object. If it has not been read yet, nobody knows what was there
    /// before.
    pub(crate) fn hear_of(&self, reference: &Reference, now: Instant) {
        let entry = self.entry(reference);
        let mut state = entry.state.lock();
        if let Known::Unread { heard_of } = &mut state.known {
            *heard_of = Some(now);
        }
    }

    /// Forgets objects whose events were ignored so far, or will be from now on: the references of
    /// `affected`, and the objects in its namespaces except those for which `stays` holds. A namespace for
    /// which `is_asked_for` holds is listed anew, because no event has reported the objects that only a new
    /// regular expression matches.
    pub(crate) fn forget(
        &self,
        affected: &Affected,
        stays: impl Fn(&Reference) -> bool,
        is_asked_for: impl Fn(&(ConfigKind, Name)) -> bool,
    ) {
        let mut entries = self.entries.lock();
        for reference in &affected.references {
            entries.remove(reference);
        }
        let mut listings = self.listings.lock();
        for place in &affected.namespaces {
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

    /// Forgets all objects except those for which `is_of_use` holds.
    pub(crate) fn retain(&self, is_of_use: impl Fn(&Reference) -> bool) {
        self.entries
            .lock()
            .retain(|reference, _| is_of_use(reference));
    }

    /// Returns the number of objects for which a read is remembered.
    pub(crate) fn len(&self) -> usize {
        let entries = self.entries.lock();
        let is_read = |entry: &&Arc<Entry>| entry.state.lock().read().is_some();
        entries.values().filter(is_read).count()
    }

    /// Takes in that an object exists, or does not. If that is news, the list of its namespace is
    /// forgotten.
    fn observe_name(&self, reference: &Reference, is_there: bool) {
        let listings = self.listings.lock();
        if listings.is_empty() {
            return;
        }
        let place = (reference.kind, reference.namespace.clone());
        if let Some(listing) = listings.get(&place) {
            let mut state = listing.state.lock();
            // Without a known list: one that is in progress may have begun before this event.
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

    /// Returns the objects that are remembered as present.
    pub(crate) fn present(&self) -> Vec<Reference> {
        let entries = self.entries.lock();
        let is_present = |entry: &Entry| {
            matches!(
                entry.state.lock().known,
                Known::Read(Read {
                    presence: Presence::Present(_),
                    ..
                })
            )
        };
        entries
            .iter()
            .filter(|(_, entry)| is_present(entry))
            .map(|(reference, _)| (**reference).clone())
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
            // Include the keys that other workloads ask about, or each of them would read the object again.
            let mut keys = self.workloads.ask(|it| it.data_keys(reference));
            keys.extend(workload.data_keys(reference).map(Into::into));
            let presence = self.source.read(reference, keys).await;
            let mut state = entry.state.lock();
            let was_failing = std::mem::replace(&mut state.is_failing, presence.is_err());
            let presence = presence.inspect_err(|error| {
                // Logged once, and not for each workload that lists the object.
                if !was_failing {
                    let error = chain(error);
                    warn!(error, "cannot read what workloads list, trying again");
                }
            })?;
            let read = state.after(presence, began);
            if attempt == ATTEMPTS {
                // The object changes as fast as it is read. This is one of its contents, and the next event
                // of the watch brings the loop back here.
                state.known = Known::Read(read.clone());
                return Ok(read);
            }
            state.known = Known::Read(read);
            attempt += 1;
        }
    }

    fn entry(&self, reference: &Reference) -> Arc<Entry> {
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get(reference) {
            return entry.clone();
        }
        let shared = self.workloads.ask(|it| it.shared_reference(reference));
        let shared = shared.unwrap_or_else(|| Arc::new(reference.clone()));
        entries.entry(shared).or_default().clone()
    }
}
