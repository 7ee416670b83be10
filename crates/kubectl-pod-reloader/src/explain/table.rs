//! Lists the config objects of a workload in a table.

use std::collections::{BTreeMap, BTreeSet};

use pod_reloader_core::discovery::Consumption;
use pod_reloader_core::extent::Extent;
use pod_reloader_core::reference::Reference;
use serde::Serialize;

use crate::objects::{Found, Tags};
use crate::operators::Operators;
use crate::print::Text;
use crate::protection::protection;
use crate::workloads::{Seen, consumption};

/// A config object, and what it means to the workload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectRow {
    kind: String,
    name: String,
    /// `None` if the user may not see that.
    exists: Option<bool>,
    /// True if a change of the object restarts the workload.
    pub(super) tracked: bool,
    /// The tracked keys, unless all are tracked.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<BTreeSet<String>>,
    /// Ways in which the pods use the object.
    uses: Vec<&'static str>,
    /// Keys without which the pods do not start, or the object itself.
    needs: Vec<String>,
    /// The value of the label that protects the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    protect: Option<String>,
    /// The object that it is a copy of.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy_of: Option<String>,
    /// Remark on these two.
    #[serde(skip)]
    remark: String,
}

/// Returns a row for each object that is tracked or used.
pub(super) fn rows(
    seen: &Seen<'_>,
    operators: &Operators,
    found: &Found,
    uses: &BTreeMap<Reference, Vec<Consumption>>,
) -> Vec<ObjectRow> {
    let references = &seen.workload.references;
    let needed = seen.needs();
    let all: BTreeSet<_> = found.objects.keys().chain(found.unseen.keys()).collect();
    let row = |reference: &Reference| {
        let keys = references.extent(reference);
        let presence = found.objects.get(reference);
        let needs = needed.iter();
        let needs = needs.filter(|(needed, _)| needed == reference);
        let Tags { protect, copy_of } = found.tags.get(reference).cloned().unwrap_or_default();
        ObjectRow {
            kind: reference.kind.to_string(),
            name: reference.name.to_string(),
            exists: found.exists(reference),
            tracked: seen.obstacle.is_none()
                && presence.map_or(keys.is_some(), |presence| {
                    references.tracks(reference, presence)
                }),
            keys: match keys {
                Some(Extent::Named(keys)) => Some(keys.iter().map(|key| key.to_string()).collect()),
                Some(Extent::All) | None => None,
            },
            uses: uses
                .get(reference)
                .into_iter()
                .flatten()
                .map(|way| consumption(*way))
                .collect(),
            needs: needs
                .map(|(_, key)| key.as_deref().unwrap_or("the object").to_owned())
                .collect(),
            remark: remark(reference, protect.as_deref(), copy_of.as_ref(), operators),
            protect,
            copy_of: copy_of.map(|source| source.to_string()),
        }
    };
    all.into_iter().map(row).collect()
}

fn remark(
    object: &Reference,
    protect: Option<&str>,
    copy_of: Option<&Reference>,
    operators: &Operators,
) -> String {
    let protection = protect.map(|value| match protection(value, object, operators) {
        Ok(protection) => format!("protected: {}", protection.as_str()),
        Err(nothing) => nothing,
    });
    let copy = copy_of.map(|source| format!("copy of {source}"));
    Vec::from_iter(protection.into_iter().chain(copy)).join("; ")
}

/// Adds a table of the rows. It has remarks if any row has one.
pub(super) fn add_to(text: &mut Text, rows: &[ObjectRow]) {
    let headings = ["OBJECT", "THERE", "TRACKED", "USED AS", "PODS NEED"];
    let cells: Vec<_> = rows.iter().map(ObjectRow::cells).collect();
    if rows.iter().all(|row| row.remark.is_empty()) {
        return text.table(headings, &cells);
    }
    let [a, b, c, d, e] = headings;
    let cells = cells.into_iter().zip(rows);
    let cells = cells.map(|([a, b, c, d, e], row)| [a, b, c, d, e, row.remark.clone()]);
    text.table([a, b, c, d, e, "REMARK"], &Vec::from_iter(cells));
}

impl ObjectRow {
    /// Returns the columns of the table, apart from the remark.
    fn cells(&self) -> [String; 5] {
        let exists = match self.exists {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        let tracked = match (&self.keys, self.tracked) {
            (_, false) => "no".to_owned(),
            (None, true) => "all of it".to_owned(),
            (Some(keys), true) => Vec::from_iter(keys.iter().map(String::as_str)).join(", "),
        };
        [
            format!("{} {}", self.kind, self.name),
            exists.to_owned(),
            tracked,
            match self.uses.is_empty() {
                true => "-".to_owned(),
                false => self.uses.join(", "),
            },
            match self.needs.is_empty() {
                true => "-".to_owned(),
                false => self.needs.join(", "),
            },
        ]
    }
}
