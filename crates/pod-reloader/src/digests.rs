//! What the reconcile loop remembers of config objects, and how fresh that is.
//!
//! The memory may only ever say "nothing to do": before a write, the loop asks for reads that began
//! after a given moment, so that a late watch cannot move a config hash back.

use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use pod_reloader_core::digest::{Contents, Presence};
use pod_reloader_core::reference::Reference;
use tokio::time::Instant;
use tracing::warn;

use crate::error::{Error, chain};
use crate::source::Source;

/// How many objects of one workload are asked for at once.
const READS_AT_ONCE: usize = 8;
/// How often an object is read again that changes while it is read.
const ATTEMPTS: usize = 3;

/// The digests of referenced objects, by reference.
pub(crate) struct Digests {
    source: Source,
    entries: Mutex<HashMap<Reference, Arc<Entry>>>,
}

/// What is known of the objects of one workload.
pub(crate) struct Known {
    /// Each object as it was read.
    pub(crate) contents: Contents,
    /// When the read began that saw the latest change, first sight included.
    pub(crate) changed: Instant,
    /// The objects that were seen to change, not counting first sight, with the time of it.
    pub(crate) changes: Vec<(Reference, Instant)>,
}

#[derive(Default)]
struct Entry {
    state: Mutex<State>,
    /// Held while the object is read, so that a fan-out shares one GET.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    read: Option<Read>,
    /// When an event last said that there is something new.
    forgotten: Option<Instant>,
    /// Whether the last attempt to read it failed.
    is_failing: bool,
}

/// The result of a read.
#[derive(Clone)]
struct Read {
    presence: Presence,
    began: Instant,
    changed: Instant,
    first_sight: bool,
}

impl Digests {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            source,
            entries: Mutex::default(),
        }
    }

    /// What is known of `references`, from reads that began at `since` or later where that is given.
    pub(crate) async fn known(
        &self,
        references: impl Iterator<Item = &Reference>,
        since: Option<Instant>,
    ) -> Result<Known, Error> {
        let reads: Vec<(Reference, Read)> = stream::iter(references.cloned())
            .map(|reference| async move {
                let read = self.read(&reference, since).await?;
                Ok::<_, Error>((reference, read))
            })
            .buffer_unordered(READS_AT_ONCE)
            .try_collect()
            .await?;
        let changed = reads
            .iter()
            .map(|(_, read)| read.changed)
            .max()
            .unwrap_or_else(Instant::now);
        let changes = reads.iter().filter(|(_, read)| !read.first_sight);
        Ok(Known {
            changed,
            changes: changes
                .map(|(reference, read)| (reference.clone(), read.changed))
                .collect(),
            contents: reads
                .into_iter()
                .map(|(reference, read)| (reference, read.presence))
                .collect(),
        })
    }

    /// Takes in a watch event: the object is there with this resourceVersion, or is gone. What is known
    /// of it is forgotten, unless it is that already.
    pub(crate) fn observe(
        &self,
        reference: &Reference,
        resource_version: Option<&str>,
        now: Instant,
    ) {
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
    }

    /// Drops what is known of objects whose events did not count, or will not.
    pub(crate) fn forget(&self, references: &[Reference]) {
        let mut entries = self.entries.lock();
        for reference in references {
            entries.remove(reference);
        }
    }

    /// Drops what is known of all objects but those that `is_of_use` holds for.
    pub(crate) fn retain(&self, is_of_use: impl Fn(&Reference) -> bool) {
        self.entries
            .lock()
            .retain(|reference, _| is_of_use(reference));
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

    async fn read(&self, reference: &Reference, since: Option<Instant>) -> Result<Read, Error> {
        let entry = self.entry(reference);
        if let Some(read) = entry.state.lock().fresh(since) {
            return Ok(read.clone());
        }
        let _reading = entry.reading.lock().await;
        let mut attempt = 1;
        loop {
            if let Some(read) = entry.state.lock().fresh(since) {
                return Ok(read.clone());
            }
            let began = Instant::now();
            let presence = self.source.read(reference).await;
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

impl State {
    /// The last read, if it began at `since` or later and nothing was heard since it began.
    fn fresh(&self, since: Option<Instant>) -> Option<&Read> {
        let read = self.read.as_ref()?;
        let is_late_enough = since.is_none_or(|since| read.began >= since);
        let is_latest = self
            .forgotten
            .is_none_or(|forgotten| read.began > forgotten);
        (is_late_enough && is_latest).then_some(read)
    }
}

impl Read {
    fn after(last: Option<&Self>, presence: Presence, began: Instant) -> Self {
        match last {
            Some(last) if last.presence.same_content(&presence) => Self {
                presence,
                began,
                changed: last.changed,
                first_sight: last.first_sight,
            },
            last => Self {
                presence,
                began,
                changed: began,
                first_sight: last.is_none(),
            },
        }
    }
}
