//! `plan`: what would restart if manifests were applied, and what would keep running.

mod edits;
mod manifests;
mod ownership;
mod prediction;
mod row;

use std::collections::BTreeSet;
use std::process::ExitCode;

use futures::stream::{self, StreamExt};
use pod_reloader_core::name::Name;
use pod_reloader_core::plan::{Difference, changes_template};
use pod_reloader_core::reference::Reference;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use self::edits::{Edits, WorkloadEdit};
pub(crate) use self::manifests::{Manifests, Unreadable};
use self::prediction::{Case, change_in_words, predict};
use self::row::{Because, Restarts, Row};
use crate::args::Sources;
use crate::cluster::Cluster;
use crate::operators::{NONE_FOUND, Operators};
use crate::print::{Answer, Text, count};
use crate::ready::{self, Own};
use crate::steps::{self, Steps};
use crate::syncs::Sync;
use crate::workloads::{self, Namespaces, Seen};

/// Number of workloads that are looked at at once.
const WORKLOADS_AT_ONCE: usize = 8;

/// What would become of workloads if manifests were applied.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plan {
    /// The workloads that are in the manifests, or use what is in them.
    workloads: Vec<Row>,
    /// The ConfigMaps and Secrets that change.
    objects: Vec<Because>,
    #[serde(skip)]
    objects_in_words: Vec<String>,
    /// The order of the restarts, for each object whose consumers are restarted in stages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    staged: Vec<Staged>,
    /// Number of objects of other kinds, which restart nothing.
    others: usize,
    /// The objects that the apiserver would refuse.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<String>,
    /// Remarks on the manifests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// Everything that the user may not see.
    unseen: Vec<String>,
}

/// The order in which the consumers of one object are restarted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Staged {
    object: String,
    #[serde(flatten)]
    steps: Steps,
}

/// The outcome of a plan, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing restarts.
    Nothing,
    /// The apiserver would refuse some of the manifests.
    Refused,
    /// Nobody can tell.
    Unknown,
    /// Some pods are restarted.
    Restarts,
    /// Nothing restarts now, but something waits for what has to happen before.
    Waits,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(match outcome {
            Outcome::Nothing => 0,
            Outcome::Refused => 1,
            Outcome::Unknown => 3,
            Outcome::Restarts => 10,
            Outcome::Waits => 11,
        })
    }
}

/// Finds out what would restart if the manifests were applied.
///
/// # Errors
/// When the manifests cannot be read.
pub(crate) async fn plan(
    cluster: &Cluster,
    operators: &Operators,
    sources: &Sources,
    manager: Option<&str>,
) -> Result<(Plan, Outcome), Unreadable> {
    let manifests = Manifests::read(sources, &cluster.namespace)?;
    // Rather the failure of what is piped into this than an application without objects.
    if manifests.all.is_empty() && manifests.notes.is_empty() {
        return Err(Unreadable::Empty);
    }
    Ok(planned(cluster, operators, manifests, manager).await)
}

async fn planned(
    cluster: &Cluster,
    operators: &Operators,
    manifests: Manifests,
    manager: Option<&str>,
) -> (Plan, Outcome) {
    let mut edits = Edits::of(cluster, operators, &manifests, manager).await;
    let mut unseen = operators.unseen.clone();
    unseen.append(&mut edits.unseen);
    let refused = std::mem::take(&mut edits.refused);
    let (cases, unread) = cases(cluster, operators, &edits).await;
    unseen.extend(unread);
    let rows = cases.iter().map(|case| predict(cluster, case, &edits));
    let mut rows = stream::iter(rows).buffered(WORKLOADS_AT_ONCE);
    let mut workloads = Vec::new();
    while let Some((row, unseen_of_it)) = rows.next().await {
        workloads.push(row);
        unseen.extend(unseen_of_it);
    }
    workloads.sort_by(|one, other| one.place().cmp(&other.place()));
    let mut notes = manifests.notes;
    notes.extend(copied(cluster, operators, &edits).await);
    if operators.are_none() {
        notes.push(NONE_FOUND.to_owned());
    }
    let changed = edits.config.iter().filter_map(|(reference, edit)| {
        Some(Difference {
            reference: reference.clone(),
            change: edit.change()?,
        })
    });
    let changed: Vec<_> = changed.collect();
    let objects_in_words = changed
        .iter()
        .map(|it| format!("{}: {}", it.reference, change_in_words(&it.change)))
        .collect();
    let objects: Vec<_> = changed.into_iter().map(Because::from).collect();
    let plan = Plan {
        staged: staged(&objects, &workloads),
        workloads,
        objects,
        objects_in_words,
        others: edits.others,
        refused,
        notes,
        unseen,
    };
    let outcome = plan.outcome();
    (plan, outcome)
}

/// Returns the workloads that are in the manifests, and those that use objects that change. Also returns everything
/// that could not be seen.
async fn cases<'a>(
    cluster: &Cluster,
    operators: &'a Operators,
    edits: &Edits,
) -> (Vec<Case<'a>>, Vec<String>) {
    let mut namespaces = Namespaces::default();
    let mut cases = Vec::new();
    let mut unseen = Vec::new();
    for edit in &edits.workloads {
        match case(cluster, operators, edit, &mut namespaces).await {
            Some(case) => cases.push(case),
            None => unseen.push(format!("{}: it is not as expected", edit.kind)),
        }
    }
    unseen.extend(namespaces.unseen(operators));
    let known: BTreeSet<_> = cases
        .iter()
        .map(|it| it.after().workload.id.clone())
        .collect();
    let changed = edits.config.iter().filter(|(_, edit)| edit.matters());
    let changed: Vec<&Reference> = changed.map(|(reference, _)| reference).collect();
    let touched: BTreeSet<&Name> = changed.iter().map(|it| &it.namespace).collect();
    for namespace in touched {
        let take = |seen: Seen<'a>| {
            let id = &seen.workload.id;
            let uses = seen.uses();
            let references = &seen.workload.references;
            let concerns = |it: &&Reference| references.mention(it) || uses.contains_key(*it);
            let is_concerned = changed
                .iter()
                .filter(|it| it.namespace == id.namespace)
                .any(concerns);
            (is_concerned && !known.contains(id)).then_some(seen)
        };
        let (after, unlisted) =
            workloads::list(cluster, operators, Some(namespace), None, take).await;
        cases.extend(after.into_iter().map(|seen| Case {
            now: Some(seen),
            after: None,
            changes_template: false,
        }));
        let errors = unlisted.words.iter();
        unseen.extend(errors.map(|it| format!("some workloads: {it}")));
    }
    (cases, unseen)
}

/// Returns a workload that is in the manifests. `None` if it cannot be read.
async fn case<'a>(
    cluster: &Cluster,
    operators: &'a Operators,
    WorkloadEdit {
        kind,
        api_version,
        edit,
    }: &WorkloadEdit,
    namespaces: &mut Namespaces,
) -> Option<Case<'a>> {
    let name = edit.after["metadata"]["namespace"].as_str()?;
    let namespace = namespaces.of(cluster, operators, name).await;
    let raw = |object: &Value| to_raw_value(object).ok();
    let read = |raw: &RawValue| workloads::seen(operators, *kind, api_version, raw, namespace);
    let after = raw(&edit.after)?;
    let now = match &edit.now {
        None => None,
        Some(now) => Some(raw(now)?),
    };
    let changes_template = now
        .as_deref()
        .is_some_and(|now| changes_template(*kind, now, &after));
    Some(Case {
        now: match now {
            None => None,
            Some(now) => Some(read(&now)?),
        },
        after: Some(read(&after)?),
        changes_template,
    })
}

/// Notes the ClusterConfigSyncs that copy what changes, because the workloads that use the copies are not looked at.
async fn copied(cluster: &Cluster, operators: &Operators, edits: &Edits) -> Vec<String> {
    let changed = edits.config.iter().filter(|(_, it)| it.change().is_some());
    let changed: Vec<_> = changed.map(|(reference, _)| reference).collect();
    let are_served = operators.any(|it| it.args.switches_on(Sync::CONTROLLER));
    if changed.is_empty() || are_served == Some(false) {
        return Vec::new();
    }
    // Most users may not list them, and most clusters have none.
    let syncs: Vec<Sync> = ready::list(cluster, None).await.unwrap_or_default();
    let copies = changed.iter().flat_map(|object| {
        let copying = syncs.iter().filter(|sync| sync.copies(object));
        copying.map(move |sync| {
            format!("{object}: ClusterConfigSync {} copies it to other namespaces, whose workloads are not looked at", sync.name)
        })
    });
    copies.collect()
}

/// Returns the order of the restarts for each object whose consumers are restarted in stages.
fn staged(objects: &[Because], rows: &[Row]) -> Vec<Staged> {
    let staged = objects.iter().filter_map(|object| {
        let restarted = rows.iter().filter(|row| row.is_because_of(object));
        let restarted = restarted.filter_map(|row| row.restarted.as_ref());
        Some(Staged {
            object: format!("{} {}/{}", object.kind, object.namespace, object.name),
            steps: Steps::of(restarted)?,
        })
    });
    staged.collect()
}

impl Plan {
    fn outcome(&self) -> Outcome {
        let has = |restarts| self.workloads.iter().any(|row| row.restarts == restarts);
        if !self.refused.is_empty() {
            Outcome::Refused
        } else if has(Restarts::Yes) || has(Restarts::ByItself) || has(Restarts::Reloads) {
            Outcome::Restarts
        } else if has(Restarts::Unknown) || !self.unseen.is_empty() {
            Outcome::Unknown
        } else if has(Restarts::Waits) {
            Outcome::Waits
        } else {
            Outcome::Nothing
        }
    }

    /// Sums up how many workloads restart.
    fn summary(&self) -> String {
        let rows = |restarts| {
            self.workloads
                .iter()
                .filter(move |row| row.restarts == restarts)
        };
        let (yes, by_itself) = (rows(Restarts::Yes), rows(Restarts::ByItself));
        let pods: i64 = yes.chain(by_itself).filter_map(|row| row.pods).sum();
        let number = |restarts| rows(restarts).count();
        let restarts = number(Restarts::Yes) + number(Restarts::ByItself);
        let mut summary = match restarts {
            0 => "Nothing restarts".to_owned(),
            some => format!(
                "{} with {} would restart",
                count(some, "workload"),
                count(pods, "pod")
            ),
        };
        for (restarts, words) in [
            (Restarts::Reloads, "would reload"),
            (Restarts::Waits, "would wait"),
            (Restarts::New, "would be new"),
            (Restarts::No, "would keep running"),
            (Restarts::Unknown, "cannot be told"),
        ] {
            if number(restarts) > 0 {
                summary += &format!(", {} {words}", number(restarts));
            }
        }
        summary + "."
    }
}

impl Answer for Plan {
    fn text(&self) -> Text {
        let mut text = Text::default();
        text.heading(self.summary());
        if !self.workloads.is_empty() {
            let rows: Vec<_> = self.workloads.iter().map(Row::cells).collect();
            text.gap();
            text.table(["WORKLOAD", "PODS", "RESTARTS", "REASON"], &rows);
        }
        for Staged { object, steps } in &self.staged {
            let heading = format!("{object}: {}", steps::HEADING.to_lowercase());
            text.section(&heading, &steps.lines());
        }
        text.section("Changes", &self.objects_in_words);
        text.section("Refused", &self.refused);
        let others = (self.others > 0).then(|| {
            let others = count(self.others, "object");
            format!("{others} of other kinds: they restart nothing")
        });
        let notes: Vec<_> = others
            .into_iter()
            .chain(self.notes.iter().cloned())
            .collect();
        text.section("Notes", &notes);
        text.section("Not seen", &self.unseen);
        text
    }
}

impl Row {
    fn place(&self) -> (Restarts, &str, &str, &str) {
        (self.restarts, &self.namespace, &self.kind, &self.name)
    }
}

#[cfg(test)]
mod tests;
