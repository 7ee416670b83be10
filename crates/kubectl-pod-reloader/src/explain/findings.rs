//! Asks the cluster for everything that explains a workload.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pod_reloader_core::advice::Advice;
use pod_reloader_core::discovery::Consumption;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::sync_status::SyncStatus;

use super::pinning::undone_copies;
use crate::cluster::{Cluster, Unseen};
use crate::due::{self, Wait};
use crate::events::{self, Event};
use crate::gates;
use crate::objects::{self, Found};
use crate::operators::Operators;
use crate::revisions;
use crate::workloads::{Reply, Seen};

/// Everything besides the workload itself.
pub(super) struct Findings {
    /// Ways in which the pods use config objects.
    pub(super) uses: BTreeMap<Reference, Vec<Consumption>>,
    /// The objects that are tracked or used.
    pub(super) found: Found,
    /// The copies of the content that was undone.
    pub(super) undone: Found,
    /// Notes on objects that could not be listed.
    unlisted: Vec<String>,
    /// The sync status, unless the workload is not managed.
    pub(super) reply: Option<Reply>,
    /// The Events about the workload, newest first.
    pub(super) events: Result<Vec<Event>, Unseen>,
    /// Time at which the pods got their hash.
    pub(super) hash_since: Result<Option<Timestamp>, Unseen>,
    /// What a restart that is due waits for.
    pub(super) waits_for: Option<String>,
}

impl Findings {
    pub(super) async fn of(cluster: &Cluster, operators: &Operators, seen: &Seen<'_>) -> Self {
        let uses = seen.uses();
        let (found, unlisted) = objects::of_workload(cluster, seen, uses.keys()).await;
        let reply = match &seen.obstacle {
            None => Some(seen.query_status(cluster).await),
            Some(_) => None,
        };
        let events = events::events(cluster, Some(seen)).await;
        let known = (&found, events.as_deref().unwrap_or_default());
        let waits_for = waits_for(cluster, operators, seen, reply.as_ref(), known).await;
        Self {
            uses,
            found,
            undone: undone_copies(cluster, seen).await,
            unlisted,
            reply,
            events,
            waits_for,
            hash_since: revisions::hash_since(cluster, seen).await,
        }
    }

    /// Returns what the workload asks to track and what is not there, as far as can be seen.
    pub(super) fn unanswered(&self, seen: &Seen<'_>) -> Vec<Advice> {
        if seen.obstacle.is_some() {
            return Vec::new();
        }
        let mut advice = seen.workload.unanswered(&self.found.objects);
        if !self.unlisted.is_empty() {
            advice.retain(|it| !matches!(it, Advice::NoMatch(..)));
        }
        advice
    }

    /// Returns the digits of the content that is due, if the operator names it.
    pub(super) fn content(&self) -> Option<&str> {
        match &self.reply {
            Some(Reply::Answered(report)) => report.content.as_deref(),
            _ => None,
        }
    }

    /// Describes everything that the user may not see.
    pub(super) fn unseen(&self, seen: &Seen<'_>, operators: &Operators) -> Vec<String> {
        let objects = self.found.unseen.iter();
        let objects = objects
            .map(|(reference, error)| format!("{} {}: {error}", reference.kind, reference.name));
        let events = self.events.as_ref().err();
        let events = events.map(|error| format!("why it was restarted: {error}"));
        let since = self.hash_since.as_ref().err();
        let since = since.map(|error| format!("when it was restarted: {error}"));
        let mut unseen = operators.unseen.clone();
        unseen.extend(seen.unseen.clone());
        unseen.extend(self.unlisted.iter().cloned());
        unseen.extend(objects.chain(events).chain(since));
        unseen
    }
}

/// Says what a workload waits for, by what is known of it, its objects and the Events about it.
async fn waits_for(
    cluster: &Cluster,
    operators: &Operators,
    seen: &Seen<'_>,
    reply: Option<&Reply>,
    (found, events): (&Found, &[Event]),
) -> Option<String> {
    let Some(Reply::Answered(report)) = reply else {
        // Nobody can tell whether this is over.
        return by_latest(events);
    };
    let is_due = match report.sync_status {
        SyncStatus::Current => return None,
        SyncStatus::Due(_) => true,
        _ => false,
    };
    let content = report.content.as_deref().unwrap_or_default();
    let closed = gates::closed(seen, &found.objects, content).filter(|_| is_due);
    if let Some(closed) = closed {
        return Some(gates::words(&closed));
    }
    let wait = match due::by_report(report) {
        Some(wait) => wait,
        None if is_due => due::by_events(cluster, operators, seen, report, events).await,
        None => return by_latest(events),
    };
    match wait {
        Wait::ForNothing => None,
        Wait::For(what) | Wait::Halted(what) | Wait::PerhapsHalted(what) => Some(what),
    }
}

/// Returns what the newest Event says that a workload waits for.
fn by_latest(events: &[Event]) -> Option<String> {
    due::told_by(events.first()?).map(ToOwned::to_owned)
}
