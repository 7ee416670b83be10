//! Groups the news of a moment by topic, to make one message of it however many workloads it is about.

use std::time::Duration;

use jiff::Timestamp;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;

use super::news::{News, Topic};

/// The time without news after which a message goes out.
const QUIET: Duration = Duration::from_secs(3);
/// The maximum time that a message waits for such a silence.
const LONGEST: Duration = Duration::from_secs(30);
/// The maximum number of changes that one message lists separately.
const MAX_CHANGES: usize = 32;
/// The maximum number of workloads that are named for each change.
pub(super) const MAX_WORKLOADS: usize = 20;

/// The content of one message. It stays small, whatever happens.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) changes: Vec<Change>,
    /// The number of workloads of further changes.
    pub(super) more: usize,
    first: Instant,
    last: Instant,
}

/// One thing that happened to one or more workloads.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) topic: Topic,
    pub(super) objects: Vec<Reference>,
    /// The time when it first happened.
    pub(super) since: Timestamp,
    /// The first of the workloads, each with its API version.
    pub(super) workloads: Vec<(String, WorkloadId)>,
    /// The number of the other workloads.
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

    /// Adds news that arrived at `now`. The wall clock shows that moment as `time`.
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

    /// Returns when the message is to be sent, if no more news arrives.
    pub(super) fn due(&self) -> Instant {
        (self.last + QUIET).min(self.first + LONGEST)
    }

    /// Returns the number of workloads that the message is about. A workload is counted once for each piece
    /// of news.
    pub(super) fn workloads(&self) -> usize {
        let of_changes = self.changes.iter().map(Change::workloads);
        of_changes.sum::<usize>() + self.more
    }
}

impl Change {
    /// Returns the number of workloads that the change is about.
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
    fn changes_of_different_objects_are_listed_apart_until_there_are_too_many() {
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
    fn a_message_waits_for_an_idle_moment_but_not_for_ever() {
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
