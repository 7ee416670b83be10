//! Lists the config objects of a workload in a table.

use std::collections::{BTreeMap, BTreeSet};

use pod_reloader_core::discovery::Consumption;
use pod_reloader_core::extent::Extent;
use pod_reloader_core::reference::Reference;
use serde::Serialize;

use crate::objects::Found;
use crate::workloads::{Seen, consumption};

/// A config object, and what it means to the workload.
#[derive(Debug, Serialize)]
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
}

/// Returns a row for each object that is tracked or used.
pub(super) fn rows(
    seen: &Seen<'_>,
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
        let needs = needs.filter(|it| it.reference == *reference);
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
                .map(|it| it.key.as_deref().unwrap_or("the object").to_owned())
                .collect(),
        }
    };
    all.into_iter().map(row).collect()
}

impl ObjectRow {
    /// Returns the columns of the table.
    pub(super) fn cells(&self) -> [String; 5] {
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
