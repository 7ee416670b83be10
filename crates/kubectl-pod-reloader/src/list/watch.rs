//! `list --watch`: tells what has changed from one list to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Listed, Round};
use crate::print::{Columns, Text};

/// Least pause between two lists.
const INTERVAL: Duration = Duration::from_secs(2);
/// The pause is as many times as long as a list takes. A large cluster then spends a tenth of the time on it.
const PAUSE_PER_LIST: u32 = 9;

/// Returns the pause after a list that took so long.
pub(crate) fn pause(took: Duration) -> Duration {
    INTERVAL.max(took * PAUSE_PER_LIST)
}

/// The list as it was shown last.
#[derive(Debug)]
pub(crate) struct Watch {
    is_wide: bool,
    columns: Columns,
    /// The cells of each workload by its namespace and its typed name. A time is in them in place of an age.
    shown: BTreeMap<[String; 2], Vec<String>>,
    notes: Vec<String>,
    /// Everything that the user may not see in any list. `None` before the first one.
    unseen: Option<Vec<String>>,
}

impl Watch {
    pub(crate) fn new(is_wide: bool) -> Self {
        Self {
            is_wide,
            columns: Columns::default(),
            shown: BTreeMap::new(),
            notes: Vec::new(),
            unseen: None,
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
        let mut rows = self.changed(listed);
        rows.extend(self.gone(listed));
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
    fn changed(&mut self, listed: &Listed) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for item in &listed.items {
            let restarted = item.last_restart.map(|at| at.to_string());
            let cells = item.cells_with(restarted.as_deref(), listed, self.is_wide);
            let key = [item.namespace.clone(), item.typed()];
            if self.shown.get(&key) != Some(&cells) {
                rows.push(item.cells(listed, self.is_wide));
                self.shown.insert(key, cells);
            }
        }
        rows
    }

    /// Returns the rows of workloads that are no longer there, or no longer managed.
    fn gone(&mut self, listed: &Listed) -> Vec<Vec<String>> {
        if !self.is_as_whole(&listed.unseen) {
            return Vec::new();
        }
        let items = listed.items.iter();
        let there: BTreeSet<_> = items
            .map(|item| [item.namespace.clone(), item.typed()])
            .collect();
        let known = self.shown.keys();
        let gone: Vec<_> = known.filter(|key| !there.contains(*key)).cloned().collect();
        let width = listed.headings(self.is_wide).len();
        let mut rows = Vec::new();
        for key in gone {
            self.shown.remove(&key);
            let [namespace, typed] = key;
            let mut row = Vec::new();
            row.extend(listed.is_of_all.then_some(namespace));
            row.extend([typed, "gone".to_owned()]);
            row.resize(width, "-".to_owned());
            rows.push(row);
        }
        rows
    }

    /// Returns true if a list lacks only what all lists have lacked. Otherwise, for example while the apiserver does
    /// not answer, workloads that are missing from it may still be there.
    fn is_as_whole(&mut self, unseen: &[String]) -> bool {
        let usual = self.unseen.get_or_insert_with(|| unseen.to_vec());
        let is_as_whole = unseen.iter().all(|error| usual.contains(error));
        if is_as_whole {
            usual.retain(|error| unseen.contains(error));
        }
        is_as_whole
    }
}
