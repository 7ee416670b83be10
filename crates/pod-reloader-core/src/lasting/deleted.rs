//! Remembers for a while what people had set on workloads that were deleted, in case they come back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Lasting;
use crate::name::Name;
use crate::workload::WorkloadId;

/// The time for which a deleted workload is remembered.
pub const MEMORY: Duration = Duration::from_secs(5 * 60);
/// The maximum number of workloads that are remembered.
const MOST: usize = 1_000;
/// The maximum number of times in a row that settings are put back on a workload which is deleted again before it is
/// forgotten. A controller may delete it because it has them, and would do so for ever.
const MOST_IN_A_ROW: u32 = 10;
/// The pause after the first failure to put settings back. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(32);

/// The workloads that were deleted a moment ago, and on which people had set something. Some have come back.
#[derive(Default)]
pub struct Deleted(HashMap<WorkloadId, Known>);

struct Known {
    /// The UID of the workload that was deleted.
    uid: Box<str>,
    /// `None` once they have been put back.
    settings: Option<Arc<Lasting>>,
    /// The time when it was deleted, or when its settings were put back.
    at: Instant,
    /// The number of times in a row that settings were put back before.
    in_a_row: u32,
    /// True if another workload with this ID has been seen since.
    is_back: bool,
    /// The number of times that its settings could not be put back.
    failures: u32,
}

impl Known {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.at) >= MEMORY
    }

    fn has(&self, settings: &Arc<Lasting>) -> bool {
        let own = self.settings.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, settings))
    }
}

impl Deleted {
    /// Notes that a workload was deleted on which people had set this. Returns false if that is not remembered, because
    /// it was deleted too often soon after its settings had been put back.
    ///
    /// If there is no room, the oldest one of the namespace goes that has the most, so nobody can displace what others
    /// have set.
    pub fn note(&mut self, id: &WorkloadId, uid: &str, settings: Lasting, now: Instant) -> bool {
        let known = &mut self.0;
        known.retain(|_, it| !it.is_over(now));
        let before = known.remove(id);
        let in_a_row = before.map_or(0, |it| it.in_a_row + u32::from(it.settings.is_none()));
        if in_a_row >= MOST_IN_A_ROW {
            return false;
        }
        if known.len() >= MOST
            && let Some(displaced) = displaced(known)
        {
            known.remove(&displaced);
        }
        let noted = Known {
            uid: uid.into(),
            settings: Some(Arc::new(settings)),
            at: now,
            in_a_row,
            is_back: false,
            failures: 0,
        };
        known.insert(id.clone(), noted);
        true
    }

    /// Takes in that a workload with this UID is there. Returns true if one that was deleted has come back as it.
    pub fn is_back(&mut self, id: &WorkloadId, uid: &str) -> bool {
        let Some(it) = self.0.get_mut(id) else {
            return false;
        };
        it.is_back |= *it.uid != *uid;
        it.is_back && it.settings.is_some()
    }

    /// Returns what to put back on a workload, if it has come back in time.
    pub fn due(&self, id: &WorkloadId, now: Instant) -> Option<Arc<Lasting>> {
        let due = self.0.get(id)?;
        let is_due = due.is_back && !due.is_over(now);
        due.settings.clone().filter(|_| is_due)
    }

    /// Notes that these settings could not be put back. Returns when to try again.
    pub fn failed(&mut self, id: &WorkloadId, settings: &Arc<Lasting>, now: Instant) -> Instant {
        let known = self.0.get_mut(id).filter(|it| it.has(settings));
        let failures = known.map_or(1, |it| {
            it.failures += 1;
            it.failures
        });
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures - 1));
        now + pause.min(LONGEST_PAUSE)
    }

    /// Notes that these settings have been put back, and forgets them. Those of a workload that was deleted since then
    /// stay.
    pub fn put_back(&mut self, id: &WorkloadId, settings: &Arc<Lasting>, now: Instant) {
        if let Some(it) = self.0.get_mut(id).filter(|it| it.has(settings)) {
            it.settings = None;
            it.at = now;
        }
    }

    /// Forgets these settings. Those of a workload that was deleted since then stay.
    pub fn forget(&mut self, id: &WorkloadId, settings: &Arc<Lasting>) {
        if self.0.get(id).is_some_and(|it| it.has(settings)) {
            self.0.remove(id);
        }
    }

    /// Forgets the workloads of a namespace. What has these names later need not be of the same people.
    pub fn forget_all_in(&mut self, namespace: &Name) {
        self.0.retain(|id, _| id.namespace != *namespace);
    }

    /// Forgets the workloads that have not come back in time.
    pub fn tidy(&mut self, now: Instant) {
        self.0.retain(|_, it| !it.is_over(now));
        self.0.shrink_to_fit();
    }
}

/// Returns the oldest workload of the namespace that has the most.
fn displaced(known: &HashMap<WorkloadId, Known>) -> Option<WorkloadId> {
    let mut counts: HashMap<&Name, usize> = HashMap::new();
    for id in known.keys() {
        *counts.entry(&id.namespace).or_default() += 1;
    }
    let (fullest, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let of_it = known.iter().filter(|(id, _)| id.namespace == *fullest);
    let (oldest, _) = of_it.min_by_key(|(_, it)| it.at)?;
    Some(oldest.clone())
}

#[cfg(test)]
mod tests;
