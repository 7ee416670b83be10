//! Tells what a workload waits for that is due, and whether waiting helps.

use std::collections::BTreeSet;

use pod_reloader_core::stages;
use pod_reloader_core::sync_status::{Report, SyncStatus};

use crate::args::Target;
use crate::cluster::{Cluster, Unseen};
use crate::gates;
use crate::history::{self, Event};
use crate::objects;
use crate::operators::Operators;
use crate::rollout::Rollout;
use crate::workloads::{self, Reply, Seen};

/// What a restart that is due waits for.
pub(crate) enum Wait {
    /// For its settle period, or for nothing that can be seen.
    ForNothing,
    /// For this.
    For(String),
    /// For a workload that has failed.
    Halted(String),
}

/// Returns what a workload waits for, given what the operator says of it.
pub(crate) async fn wait(
    cluster: &Cluster,
    operators: &Operators,
    seen: &Seen<'_>,
    report: &Report,
) -> Wait {
    // What the workload itself shows is certain. An Event may be older.
    let gates = seen.workload.gates.as_deref();
    if let Some(closed) = gates::closed_by_itself(gates, report) {
        return Wait::For(gates::words(&closed));
    }
    match history::events(cluster, Some(seen)).await {
        Ok(events) => by_events(cluster, operators, seen, report, &events).await,
        Err(_) => Wait::ForNothing,
    }
}

/// Returns what a workload waits for whose own gates are open. `events` are those about it, newest first.
pub(crate) async fn by_events(
    cluster: &Cluster,
    operators: &Operators,
    seen: &Seen<'_>,
    report: &Report,
    events: &[Event],
) -> Wait {
    let Some(latest) = events.first() else {
        return Wait::ForNothing;
    };
    let content = report.content.as_deref().unwrap_or_default();
    match &*latest.reason {
        "RestartPending" => held_by_objects(cluster, seen, latest, content).await,
        "RestartHalted" => halted(cluster, operators, latest).await,
        _ => told_by(latest).map_or(Wait::ForNothing, |told| Wait::For(told.to_owned())),
    }
}

/// Returns what an Event says a workload waits for, if it says something about that.
pub(crate) fn told_by(event: &Event) -> Option<&str> {
    let waits = [
        "RestartPending",
        "RestartHalted",
        // The objects that are not tracked: the operator does not tell of them in its answers.
        "MissingConfig",
        "WaitingForStage",
        "WaitingForRelease",
        "WaitingForTogether",
        "WaitingForSlot",
    ];
    waits.contains(&&*event.reason).then_some(&event.message)
}

/// Looks for the object on hold of which an Event speaks: somebody may have released it since.
async fn held_by_objects(
    cluster: &Cluster,
    seen: &Seen<'_>,
    latest: &Event,
    content: &str,
) -> Wait {
    let none = BTreeSet::new();
    let (found, unlisted) = objects::of_workload(cluster, seen, none.iter()).await;
    match gates::closed(seen, &found, content) {
        Some(closed) => Wait::For(gates::words(&closed)),
        None if found.unseen.is_empty() && unlisted.is_empty() => Wait::ForNothing,
        None => Wait::For(latest.message.clone()),
    }
}

/// Looks at the workload that has failed: since the Event, it may have become healthy, or the content may have
/// changed.
async fn halted(cluster: &Cluster, operators: &Operators, latest: &Event) -> Wait {
    let Some((kind, name)) = stages::failed_in(&latest.message) else {
        return Wait::For(latest.message.clone());
    };
    let failed = Target {
        kind: kind.to_ascii_lowercase(),
        name: name.to_owned(),
        namespace: None,
    };
    match still_fails(cluster, operators, &failed, latest).await {
        Ok(true) => Wait::Halted(latest.message.clone()),
        Ok(false) => Wait::ForNothing,
        Err(_) => Wait::For(latest.message.clone()),
    }
}

/// Returns true if a workload has the current content, has had it since before the Event, and is not healthy.
async fn still_fails(
    cluster: &Cluster,
    operators: &Operators,
    failed: &Target,
    latest: &Event,
) -> Result<bool, Unseen> {
    let seen = match workloads::get(cluster, operators, failed).await {
        Ok(seen) => seen,
        Err(error) if error.is_absent() => return Ok(false),
        Err(error) => return Err(error),
    };
    let is_done = matches!(Rollout::of(&seen.workload, &seen.object), Rollout::Done(_));
    if is_done {
        return Ok(false);
    }
    let has_content = match seen.query_status(cluster).await {
        Reply::Answered(report) => report.sync_status == SyncStatus::Current,
        Reply::Unanswered => false,
        Reply::Impossible(error) => return Err(error),
    };
    let since = history::hash_since(cluster, &seen).await?;
    Ok(has_content && since.is_none_or(|since| since <= latest.at))
}
