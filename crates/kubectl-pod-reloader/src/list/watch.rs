//! `list --watch`: tells what has changed from one list to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{Item, Round};
use crate::print::{Columns, Text};

/// Least pause between two lists.
const INTERVAL: Duration = Duration::from_secs(2);
/// Longest pause between two lists.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// The pause is as many times as long as a list takes. A large cluster then spends a tenth of the time on it.
const PAUSE_PER_LIST: u32 = 9;
/// Time between the write of a restart and its Event, at most.
const SAME_RESTART: SignedDuration = SignedDuration::from_secs(5);

impl Round {
    /// Returns the pause after a list that took so long. A list that lacks something for now is soon read again, but
    /// never takes more than half of the time: the apiserver may be overloaded.
    pub(crate) fn pause(&self, took: Duration) -> Duration {
        let factor = if self.is_whole { PAUSE_PER_LIST } else { 1 };
        (took * factor).clamp(INTERVAL, MAX_PAUSE)
    }
}

/// Namespace, type and name of a workload.
type Key = [String; 3];

/// The list as it was shown last.
#[derive(Debug)]
pub(crate) struct Watch {
    is_wide: bool,
    columns: Columns,
    shown: BTreeMap<Key, Shown>,
    notes: Vec<String>,
}

/// A workload as it was shown last.
#[derive(Debug)]
struct Shown {
    /// Its cells without the last restart.
    cells: Vec<String>,
    /// The latest time that was seen of a restart.
    last_restart: Option<Timestamp>,
    content: Option<String>,
    /// True if the list could not say what Events do.
    lacks_events: bool,
}

impl Watch {
    pub(crate) fn new(is_wide: bool) -> Self {
        Self {
            is_wide,
            columns: Columns::default(),
            shown: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// Returns the notes that the list before did not have.
    pub(crate) fn notes(&mut self, round: &Round) -> Vec<String> {
        let before = std::mem::replace(&mut self.notes, round.notes.clone());
        let new = round.notes.iter().filter(|note| !before.contains(note));
        new.cloned().collect()
    }

    /// Returns the workloads that have changed since the list before. The first ones have headings.
    pub(crate) fn lines(&mut self, round: &Round) -> Text {
        let listed = &round.listed;
        let mut text = Text::default();
        let mut rows = self.changed(round);
        rows.extend(self.gone(round));
        if rows.is_empty() {
            return text;
        }
        let is_first = self.columns.are_none();
        let headings = listed.headings(self.is_wide);
        self.columns.fit(&headings);
        for row in &rows {
            self.columns.fit(row);
        }
        if is_first {
            text.heading(self.columns.line(&headings));
        }
        text.rows(&self.columns, &rows);
        text
    }

    /// Returns the rows of workloads that are new, or of which something else is to be said.
    fn changed(&mut self, round: &Round) -> Vec<Vec<String>> {
        let listed = &round.listed;
        let mut rows = Vec::new();
        for item in &listed.items {
            let mut now = Shown {
                cells: item.cells_with(None, listed, self.is_wide),
                last_restart: item.last_restart,
                content: item.content.clone(),
                lacks_events: round.lacks_events,
            };
            let key = key(item);
            if let Some(before) = self.shown.get(&key) {
                // Without Events, a workload seems to wait for nothing.
                if now.lacks_events && !before.lacks_events {
                    continue;
                }
                // When its Event is over, a restart seems to be an earlier one, or none.
                now.last_restart = now.last_restart.max(before.last_restart);
                if now.cells == before.cells && !before.is_restarted(&now, item) {
                    self.shown.insert(key, now);
                    continue;
                }
            }
            rows.push(item.cells(listed, self.is_wide));
            self.shown.insert(key, now);
        }
        rows
    }

    /// Returns the rows of workloads that are no longer there, or no longer managed. Workloads of a type that could not
    /// be listed, for example while the apiserver does not answer, may still be there.
    fn gone(&mut self, round: &Round) -> Vec<Vec<String>> {
        let listed = &round.listed;
        let there: BTreeSet<_> = listed.items.iter().map(key).collect();
        let is_gone = |key: &&Key| !there.contains(*key) && !round.unlisted.contains(&key[1]);
        let gone: Vec<_> = self.shown.keys().filter(is_gone).cloned().collect();
        let width = listed.headings(self.is_wide).len();
        let mut rows = Vec::new();
        for key in gone {
            self.shown.remove(&key);
            let [namespace, resource, name] = key;
            let mut row = Vec::new();
            row.extend(listed.is_of_all.then_some(namespace));
            row.extend([format!("{resource}/{name}"), "gone".to_owned()]);
            row.resize(width, "-".to_owned());
            rows.push(row);
        }
        rows
    }
}

impl Shown {
    /// Returns true if the workload has been restarted since then. The time of a write tells that only together with
    /// another content, because the operator also writes for other reasons.
    fn is_restarted(&self, now: &Self, item: &Item) -> bool {
        let is_later = match (self.last_restart, now.last_restart) {
            (Some(before), Some(now)) => now.duration_since(before) > SAME_RESTART,
            (before, now) => before != now,
        };
        is_later && (item.is_restart_reported || self.content != now.content)
    }
}

fn key(item: &Item) -> Key {
    let name = item.name.clone();
    [item.namespace.clone(), item.resource.clone(), name]
}
