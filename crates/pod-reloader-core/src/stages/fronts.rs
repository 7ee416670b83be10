//! Remembers the fronts of objects for a moment, so that not each of a thousand workloads looks at all others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{Changed, Front, Peer, Why};
use crate::name::Name;
use crate::reference::Reference;
use crate::workload::WorkloadId;

/// The time for which a front is used again.
pub(super) const FRESH: Duration = Duration::from_secs(1);

/// The fronts of those that track the same changed object.
#[derive(Default)]
pub(super) struct Fronts {
    computed: HashMap<Reference, Computed>,
    /// For each namespace, a number that grows whenever the standing of one of its workloads may have changed.
    versions: HashMap<Name, u64>,
}

/// The front of those that track an object, as it was a moment ago.
struct Computed {
    front: Front,
    version: u64,
    /// The time of the change that it was computed for.
    changed: Instant,
    is_known: bool,
    /// The time from which on it says nothing.
    until: Instant,
}

/// A workload for which another one waits.
pub(super) struct Blocker {
    pub(super) id: WorkloadId,
    pub(super) why: Why,
    /// The object because of which it waits.
    pub(super) object: Reference,
    /// True if that may have changed in the meantime.
    pub(super) is_outdated: bool,
}

impl Fronts {
    /// Notes that the standing of a workload of the namespace may have changed.
    pub(super) fn bump(&mut self, namespace: &Name) {
        *self.versions.entry(namespace.clone()).or_default() += 1;
    }

    fn version(&self, namespace: &Name) -> u64 {
        self.versions.get(namespace).copied().unwrap_or_default()
    }

    /// Returns true if the front of an object is known and may be relied on: a workload is the first to go only if that
    /// is so at this moment.
    pub(super) fn are_reliable(&self, object: &Changed, own: &Peer<'_>, now: Instant) -> bool {
        let computed = self.computed.get(&object.object);
        computed.is_some_and(|it| {
            it.is_for(object, now) && (it.front.has_passed || it.front.blocker(own).is_some())
        })
    }

    /// Remembers the front of an object until this time.
    pub(super) fn insert(&mut self, changed: &Changed, front: Front, until: Instant) {
        let computed = Computed {
            front,
            version: self.version(&changed.object.namespace),
            changed: changed.at,
            is_known: changed.is_known,
            until,
        };
        self.computed.insert(changed.object.clone(), computed);
    }

    /// Forgets the fronts that say nothing any more.
    pub(super) fn tidy(&mut self, now: Instant) {
        self.computed.retain(|_, it| now < it.until);
    }

    /// Returns the workload that `own` waits for because of one of these changes.
    pub(super) fn blocker(&self, changed: &[Changed], own: &Peer<'_>) -> Option<Blocker> {
        let version = self.version(&own.id.namespace);
        let blockers = changed.iter().filter_map(|Changed { object, .. }| {
            let computed = self.computed.get(object)?;
            let (id, why) = computed.front.blocker(own)?;
            Some(Blocker {
                id: id.clone(),
                why,
                object: object.clone(),
                is_outdated: computed.version != version,
            })
        });
        blockers.min_by_key(|it| it.why)
    }
}

impl Computed {
    /// Returns true if this is the front of an object's change. Workloads that have not seen it themselves
    /// agree on its time only roughly.
    fn is_for(&self, changed: &Changed, now: Instant) -> bool {
        let apart = match changed.at > self.changed {
            true => changed.at - self.changed,
            false => self.changed - changed.at,
        };
        let tolerance = match changed.is_known {
            true => Duration::ZERO,
            false => FRESH,
        };
        now < self.until && changed.is_known == self.is_known && apart <= tolerance
    }
}
