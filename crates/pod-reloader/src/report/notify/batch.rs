//! What happens within a moment, put together by what it is about: one message, however many workloads.

use std::time::Duration;

use jiff::Timestamp;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;

use super::news::{News, Topic};

/// A message goes out when nothing has happened for so long.
const QUIET: Duration = Duration::from_secs(3);
/// It waits no longer than that for quiet.
const LONGEST: Duration = Duration::from_secs(30);
/// So many changes are told apart in one message.
const MAX_CHANGES: usize = 32;
/// So many workloads are named for each of them.
pub(super) const MAX_WORKLOADS: usize = 20;

/// What is to be sent in one message. It stays small, whatever happens.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) changes: Vec<Change>,
    /// The workloads of further changes, which are only counted.
    pub(super) more: usize,
    first: Instant,
    last: Instant,
}

/// The same thing, happening to one workload or many.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) topic: Topic,
    pub(super) objects: Vec<Reference>,
    /// When it first happened.
    pub(super) since: Timestamp,
    /// The first of the workloads, each with its API version.
    pub(super) workloads: Vec<(String, WorkloadId)>,
    /// The others, which are only counted.
    pub(super) more: usize,
}

impl Batch {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            changes: Vec::new(),
            more: 0,
            first: now,
            last: now,
        }
    }

    /// Takes in what has happened at `now`, which the clock on the wall shows as `time`.
    pub(super) fn add(&mut self, news: News, now: Instant, time: Timestamp) {
        self.last = now;
        let known = self
            .changes
            .iter()
            .position(|change| change.topic == news.topic && change.objects == news.objects);
        let index = known.unwrap_or(self.changes.len());
        if index == MAX_CHANGES {
            self.more += 1;
            return;
        }
        if known.is_none() {
            self.changes.push(Change {
                topic: news.topic,
                objects: news.objects,
                since: time,
                workloads: Vec::new(),
                more: 0,
            });
        }
        let change = &mut self.changes[index];
        if change.workloads.len() == MAX_WORKLOADS {
            change.more += 1;
        } else {
            change.workloads.push((news.api_version, news.workload));
        }
    }

    /// When it is to be sent, if nothing more happens.
    pub(super) fn due(&self) -> Instant {
        (self.last + QUIET).min(self.first + LONGEST)
    }

    /// How many workloads it is about; one counts again each time that something happens to it.
    pub(super) fn workloads(&self) -> usize {
        let of_changes = self.changes.iter().map(Change::workloads);
        of_changes.sum::<usize>() + self.more
    }
}

impl Change {
    /// How many workloads it is about.
    pub(super) fn workloads(&self) -> usize {
        self.workloads.len() + self.more
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{restarted, time};
    use super::*;

    #[test]
    fn a_fan_out_is_one_change_with_a_bounded_list() {
        let now = Instant::now();
        let mut batch = Batch::new(now);
        for number in 0..1000 {
            batch.add(restarted(&format!("web-{number}"), &["a"]), now, time());
        }
        assert_eq!(batch.changes.len(), 1);
        assert_eq!(batch.changes[0].workloads.len(), MAX_WORKLOADS);
        assert_eq!(batch.changes[0].more, 1000 - MAX_WORKLOADS);
        assert_eq!(batch.workloads(), 1000);
    }

    #[test]
    fn changes_of_other_objects_are_told_apart_until_there_are_too_many() {
        let now = Instant::now();
        let mut batch = Batch::new(now);
        for number in 0..MAX_CHANGES + 5 {
            batch.add(
                restarted("web", &[&format!("config-{number}")]),
                now,
                time(),
            );
        }
        batch.add(restarted("api", &["config-0"]), now, time());
        assert_eq!(batch.changes.len(), MAX_CHANGES);
        assert_eq!(batch.more, 5);
        assert_eq!(batch.changes[0].workloads(), 2);
        assert_eq!(batch.workloads(), MAX_CHANGES + 6);
    }

    #[test]
    fn a_message_waits_for_quiet_but_not_for_ever() {
        let start = Instant::now();
        let mut batch = Batch::new(start);
        batch.add(restarted("web", &["a"]), start, time());
        assert_eq!(batch.due(), start + QUIET);
        let later = start + Duration::from_secs(2);
        batch.add(restarted("api", &["a"]), later, time());
        assert_eq!(batch.due(), later + QUIET);
        let much_later = start + LONGEST;
        batch.add(restarted("db", &["a"]), much_later, time());
        assert_eq!(batch.due(), start + LONGEST);
    }
}
