//! `history`: the revisions of a workload, and what changed in its ConfigMaps from one to the next.

mod contents;
mod differences;
mod lines;

use std::collections::BTreeMap;

use jiff::Timestamp;
use pod_reloader_core::gate;
use pod_reloader_core::pins::Pins;
use serde::Serialize;

use self::differences::Step;
use crate::args::Target;
use crate::cluster::{Cluster, Unseen};
use crate::operators::Operators;
use crate::print::{Answer, Text, Verdict, some};
use crate::revisions::{Revision, Stamps, revisions};
use crate::times::when;
use crate::workloads::{self, Seen};

/// What to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Nothing,
    /// Which keys were added, removed or changed.
    Keys,
    /// Their values too.
    Values,
}

impl Compare {
    pub(crate) fn of(keys: bool, values: bool) -> Self {
        match (keys, values) {
            (false, _) => Self::Nothing,
            (true, false) => Self::Keys,
            (true, true) => Self::Values,
        }
    }
}

/// The revisions of a workload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct History {
    kind: String,
    namespace: String,
    name: String,
    /// The newest first.
    revisions: Vec<Row>,
    /// What changed from each revision to the next, the newest first. `None` if nobody has asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<Step>>,
    #[serde(skip)]
    asked_at: Timestamp,
}

/// A revision.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    revision: i64,
    /// True if it has the config hash and the pins that the workload has now.
    is_present: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config_hash: Option<String>,
    pins: Copies,
}

/// The copies that the pods of a revision use.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "state", content = "copies")]
enum Copies {
    /// By the name of the ConfigMap.
    Named(BTreeMap<String, String>),
    /// The copies could not be made.
    Failed,
    /// Nothing was pinned.
    Nothing,
    /// The annotation cannot be read.
    Unreadable,
}

/// Lists the revisions of a workload.
///
/// # Errors
/// When the workload or its revisions cannot be read.
pub(crate) async fn history(
    cluster: &Cluster,
    operators: &Operators,
    target: &Target,
    compare: Compare,
) -> Result<(History, Verdict), Unseen> {
    let seen = workloads::get(cluster, operators, target).await?;
    let id = &seen.workload.id;
    let Some(revisions) = revisions(cluster, &seen).await? else {
        return Err(Unseen::Absent(format!(
            "nobody keeps revisions of a {}",
            id.kind
        )));
    };
    let changes = match compare {
        Compare::Nothing => None,
        Compare::Keys | Compare::Values => {
            let shows_values = compare == Compare::Values;
            Some(differences::steps(cluster, &id.namespace, &revisions, shows_values).await)
        }
    };
    let is_whole = changes.iter().flatten().all(Step::is_known);
    let history = History {
        kind: id.kind.to_string(),
        namespace: id.namespace.to_string(),
        name: id.name.to_string(),
        revisions: rows(&seen, &revisions),
        changes,
        asked_at: Timestamp::now(),
    };
    let verdict = match is_whole {
        true => Verdict::Good,
        false => Verdict::Unknown,
    };
    Ok((history, verdict))
}

fn rows(seen: &Seen<'_>, revisions: &[Revision]) -> Vec<Row> {
    let present = Stamps::present(seen);
    let at = revisions.iter().position(|it| it.stamps == present);
    let row = |(own, revision): (usize, &Revision)| Row {
        revision: revision.number,
        is_present: at == Some(own),
        created: revision.created,
        config_hash: revision.stamps.config_hash.clone(),
        pins: Copies::of(revision.stamps.pins.as_deref()),
    };
    revisions.iter().enumerate().map(row).collect()
}

impl Copies {
    fn of(value: Option<&str>) -> Self {
        let pins = match value {
            None => return Self::Nothing,
            Some("") => return Self::Failed,
            Some(value) => Pins::parse(value),
        };
        pins.map_or(Self::Unreadable, |pins| {
            let pins = pins.iter();
            Self::Named(
                pins.map(|(source, copy)| (source.to_string(), copy.to_string()))
                    .collect(),
            )
        })
    }

    fn words(&self) -> String {
        match self {
            Self::Named(pins) => some(pins.values(), NAMED),
            Self::Failed => "none could be made".to_owned(),
            Self::Nothing => "-".to_owned(),
            Self::Unreadable => "?".to_owned(),
        }
    }
}

impl Row {
    /// Returns the columns of the table.
    fn cells(&self, asked_at: Timestamp) -> [String; 4] {
        let now = if self.is_present { ", now" } else { "" };
        let hash = self.config_hash.as_deref().map(gate::digits);
        [
            format!("{}{now}", self.revision),
            self.created
                .map_or_else(|| "?".to_owned(), |at| when(at, asked_at)),
            hash.unwrap_or_else(|| "-".to_owned()),
            self.pins.words(),
        ]
    }
}

/// Number of copies that are named.
const NAMED: usize = 5;

impl Answer for History {
    fn text(&self) -> Text {
        let mut text = Text::about(&self.kind, &self.name, &self.namespace);
        if self.revisions.is_empty() {
            text.line(["There are no revisions.".into()]);
            return text;
        }
        let rows = self.revisions.iter();
        let rows: Vec<_> = rows.map(|row| row.cells(self.asked_at)).collect();
        text.table(["REVISION", "CREATED", "CONTENT", "COPIES"], &rows);
        for step in self.changes.iter().flatten() {
            step.write(&mut text);
        }
        text
    }
}

#[cfg(test)]
mod tests;
