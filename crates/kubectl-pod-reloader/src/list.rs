//! `list`: the managed workloads, and what is known of each without asking the operator.

mod reports;
mod status;
mod watch;

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use pod_reloader_core::gate;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use serde::Serialize;

use self::reports::Reports;
use self::status::{Facts, ListStatus};
pub(crate) use self::watch::Watch;
use crate::cluster::{Cluster, Place, Unseen};
use crate::operators::{NONE_FOUND, Operators};
use crate::print::{self, Answer, Text, Verdict, count};
use crate::times::age;
use crate::workloads::{self, HashWriter, Reply, Seen};

/// The version of the list's form.
const API_VERSION: &str = "plugin.pod-reloader.github.io/v1alpha1";
/// Number of workloads asked about at once.
const QUERIES_AT_ONCE: usize = 4;

/// The workloads to list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a> {
    /// `None` for all namespaces.
    pub(crate) namespace: Option<&'a Name>,
    /// A selector of labels, as kubectl takes it.
    pub(crate) selector: Option<&'a str>,
    /// True to ask the operator about each workload.
    pub(crate) live: bool,
    /// False if nobody sees what Events say, as in a list of names.
    pub(crate) reads_events: bool,
}

/// A list of workloads.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<Item>,
    /// Everything that the user may not see.
    unseen: Vec<String>,
    /// True if the list is of all namespaces.
    #[serde(skip)]
    is_of_all: bool,
    #[serde(skip)]
    listed_at: Timestamp,
}

/// A list, and all that is said beside it.
#[derive(Debug)]
pub(crate) struct Round {
    listed: Listed,
    pub(crate) verdict: Verdict,
    notes: Vec<String>,
    /// The types of which workloads may be missing: `deployment.apps`.
    unlisted: Vec<String>,
    /// True if Events could not be read, but may be readable a moment later.
    lacks_events: bool,
    /// True if everything was read that the user may read.
    is_whole: bool,
}

/// A workload in the list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    api_version: String,
    kind: &'static str,
    namespace: String,
    name: String,
    status: ListStatus,
    /// What it waits for, or the problem, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
    /// Time of the last restart, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_restart: Option<Timestamp>,
    /// True if an Event gives that time. Otherwise it is that of the operator's last write, which may have been for
    /// something else.
    #[serde(skip)]
    is_restart_reported: bool,
    /// The content that its pods have, by the first digits of the config hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    rollout: String,
    /// The Deployment of its operator, as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    /// Its type with the group, as kubectl writes it: `deployment.apps`.
    #[serde(skip)]
    resource: String,
    #[serde(skip)]
    plural: &'static str,
}

/// Lists the managed workloads. Notes what could not be seen on standard error.
///
/// # Errors
/// When the namespace does not exist.
pub(crate) async fn list(
    cluster: &Cluster,
    operators: &Operators,
    query: Query<'_>,
) -> Result<(Listed, Verdict), Unseen> {
    let round = read(cluster, operators, query).await?;
    for note in &round.notes {
        print::note(note);
    }
    Ok((round.listed, round.verdict))
}

/// Lists the managed workloads, as [`list`] does, and prints nothing.
///
/// # Errors
/// When the namespace does not exist.
pub(crate) async fn read(
    cluster: &Cluster,
    operators: &Operators,
    query: Query<'_>,
) -> Result<Round, Unseen> {
    let (reports, lacking_events) = read_reports(cluster, query).await;
    let take = |seen: Seen<'_>| row(seen, reports.as_ref());
    let (mut rows, left_out, unlisted) =
        workloads::managed(cluster, operators, query.namespace, query.selector, take).await;
    let mut unseen = unlisted.words;
    if rows.is_empty() {
        cluster.check_namespace(query.namespace).await?;
    }
    if let Some(error) = &lacking_events {
        unseen.push(format!("what workloads wait for: {error}"));
    }
    if query.live {
        unseen.extend(ask(cluster, &mut rows, reports.as_ref()).await);
    }
    let lacks_events = lacking_events.is_some_and(|error| error.is_temporary());
    let verdict = operators.verdict(unseen.is_empty());
    let of_operators = operators.unseen.iter().cloned();
    let unseen: Vec<_> = of_operators.chain(unseen).collect();
    let not_seen = unseen.iter().map(|error| format!("not seen: {error}"));
    let mut notes: Vec<_> = not_seen.chain(left_out).collect();
    match query.namespace {
        _ if operators.are_none() => notes.push(NONE_FOUND.to_owned()),
        Some(namespace) if rows.is_empty() => {
            notes.push(format!(
                "no managed workload found in namespace {namespace}"
            ));
        }
        None if rows.is_empty() => notes.push("no managed workload found".to_owned()),
        _ => {}
    }
    let listed = Listed {
        api_version: API_VERSION,
        kind: "WorkloadList",
        items: rows.into_iter().map(|(item, _)| item).collect(),
        unseen,
        is_of_all: query.namespace.is_none(),
        listed_at: Timestamp::now(),
    };
    Ok(Round {
        listed,
        verdict,
        notes,
        unlisted: unlisted.kinds.into_iter().map(resource).collect(),
        lacks_events,
        is_whole: !lacks_events && !unlisted.is_temporary,
    })
}

/// Returns what Events say if anybody sees it, or the reason why they cannot be read.
async fn read_reports(cluster: &Cluster, query: Query<'_>) -> (Option<Reports>, Option<Unseen>) {
    if !query.reads_events {
        return (None, None);
    }
    match Reports::read(cluster, query.namespace).await {
        Ok(reports) => (Some(reports), None),
        Err(error) => (None, Some(error)),
    }
}

/// Returns the row of a workload. `reports` is `None` if Events cannot be read. The object itself is dropped: there may
/// be ten thousand workloads.
fn row(seen: Seen<'_>, reports: Option<&Reports>) -> (Item, Facts) {
    let id = &seen.workload.id;
    let about = id.to_string();
    let facts = Facts::of(&seen);
    let latest = reports.map(|reports| reports.latest(&about));
    let (status, waits_for) = facts.status(latest);
    let restarted = reports.and_then(|reports| reports.restarted(&about));
    let written = match &seen.hash_writer {
        HashWriter::Operator(at) => *at,
        _ => None,
    };
    let hash = seen.workload.config_hash();
    let item = Item {
        kind: id.kind.as_str(),
        namespace: id.namespace.to_string(),
        name: id.name.to_string(),
        status,
        waits_for,
        last_restart: restarted.or(written),
        is_restart_reported: restarted.is_some(),
        content: hash.map(gate::digits),
        rollout: facts.rollout.text().to_owned(),
        operator: seen.operator.map(|operator| {
            let installed = &operator.installed;
            format!("{}/{}", installed.namespace, installed.name)
        }),
        resource: resource(id.kind),
        plural: id.kind.shape().plural,
        api_version: seen.api_version,
    };
    (item, facts)
}

/// Returns the type of a kind with its group, as kubectl writes it: `deployment.apps`.
fn resource(kind: WorkloadKind) -> String {
    let shape = kind.shape();
    format!("{}.{}", shape.kind.to_ascii_lowercase(), shape.group)
}

/// Asks the operator about each workload, and describes why it could not be asked about some.
async fn ask(
    cluster: &Cluster,
    rows: &mut [(Item, Facts)],
    reports: Option<&Reports>,
) -> Vec<String> {
    let queries = rows.iter().enumerate().map(|(at, (item, _))| async move {
        let place = Place::new(&item.api_version, item.plural, Some(&item.namespace));
        (at, Reply::about(cluster, place, &item.name).await)
    });
    let replies: Vec<_> = stream::iter(queries)
        .buffer_unordered(QUERIES_AT_ONCE)
        .collect()
        .await;
    let mut unasked: BTreeMap<String, usize> = BTreeMap::new();
    for (at, reply) in replies {
        let (item, facts) = &mut rows[at];
        match reply {
            Reply::Answered(report) => {
                let about = format!("{} {}/{}", item.kind, item.namespace, item.name);
                let latest = reports.and_then(|reports| reports.latest(&about));
                (item.status, item.waits_for) = facts.asked(&report, latest);
            }
            Reply::Unanswered => {
                let error = "the webhook of pod-reloader does not answer".to_owned();
                *unasked.entry(error).or_default() += 1;
            }
            Reply::Impossible(error) => *unasked.entry(error.to_string()).or_default() += 1,
        }
    }
    let unasked = unasked.into_iter();
    unasked
        .map(|(error, number)| format!("{} not asked about: {error}", count(number, "workload")))
        .collect()
}

impl Item {
    /// Returns the type and the name, as kubectl writes them: `deployment.apps/web`.
    fn typed(&self) -> String {
        format!("{}/{}", self.resource, self.name)
    }

    fn cells(&self, listed: &Listed, is_wide: bool) -> Vec<String> {
        let restarted = self.last_restart.map(|at| age(at, listed.listed_at));
        self.cells_with(restarted.as_deref(), listed, is_wide)
    }

    /// Returns the cells, with these words for the last restart.
    fn cells_with(&self, restarted: Option<&str>, listed: &Listed, is_wide: bool) -> Vec<String> {
        let or_dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let mut cells = Vec::new();
        if listed.is_of_all {
            cells.push(self.namespace.clone());
        }
        cells.push(self.typed());
        cells.push(self.status.to_string());
        cells.push(or_dash(restarted));
        if is_wide {
            cells.push(or_dash(self.content.as_deref()));
            cells.push(self.rollout.clone());
            cells.push(or_dash(self.operator.as_deref()));
        }
        cells.push(or_dash(self.waits_for.as_deref()));
        cells
    }
}

impl Listed {
    fn headings(&self, is_wide: bool) -> Vec<&'static str> {
        let mut headings = Vec::new();
        if self.is_of_all {
            headings.push("NAMESPACE");
        }
        headings.extend(["NAME", "STATUS", "LAST RESTART"]);
        if is_wide {
            headings.extend(["CONTENT", "ROLLOUT", "OPERATOR"]);
        }
        headings.push("WAITS FOR");
        headings
    }

    fn table(&self, is_wide: bool) -> Text {
        let mut text = Text::default();
        if self.items.is_empty() {
            return text;
        }
        let items = self.items.iter();
        let rows: Vec<_> = items.map(|item| item.cells(self, is_wide)).collect();
        text.columns(&self.headings(is_wide), &rows);
        text
    }
}

impl Answer for Listed {
    fn text(&self) -> Text {
        self.table(false)
    }

    fn wide(&self) -> Text {
        self.table(true)
    }

    fn names(&self) -> Text {
        let mut text = Text::default();
        for item in &self.items {
            text.line([item.typed().into()]);
        }
        text
    }
}

#[cfg(test)]
mod tests;
