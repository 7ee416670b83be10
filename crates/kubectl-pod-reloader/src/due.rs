//! Tells what a workload waits for that is due, and whether waiting helps.

use std::collections::BTreeSet;

use pod_reloader_core::digest::Aspects;
use pod_reloader_core::sync_status::{Report, SyncStatus, Waiting};

use crate::args::Target;
use crate::cluster::{Cluster, Unseen};
use crate::events::{self, Event, RelatedObject};
use crate::gates;
use crate::objects;
use crate::operators::Operators;
use crate::print::some;
use crate::revisions;
use crate::rollout::Rollout;
use crate::workloads::{self, Reply, Seen};

/// The reason of what waits for its users.
pub(crate) const PENDING: &str = "RestartPending";
/// The reason of what waits for a workload that has failed.
pub(crate) const HALTED: &str = "RestartHalted";
/// The reason of what waits for objects or keys that are missing.
pub(crate) const MISSING_CONFIG: &str = "MissingConfig";
/// All other reasons to wait begin with this.
const WAITING: &str = "WaitingFor";
/// Number of missing objects that are named.
const NAMED: usize = 5;

/// What a restart that is due waits for.
pub(crate) enum Wait {
    /// For its settle period, or for nothing that can be seen.
    ForNothing,
    /// For this.
    For(String),
    /// For a workload that has failed.
    Halted(String),
    /// The same, by an Event of an operator that does not name the workload as data: it may be over.
    PerhapsHalted(String),
}

/// Returns what a workload waits for, given what the operator says of it.
pub(crate) async fn wait(
    cluster: &Cluster,
    operators: &Operators,
    seen: &Seen<'_>,
    report: &Report,
) -> Wait {
    // What the workload itself shows is certain.
    let gates = seen.workload.rare().gates.as_deref();
    if let Some(closed) = gates::closed_by_itself(gates, report) {
        return Wait::For(gates::words(&closed));
    }
    if let Some(wait) = by_report(report) {
        return wait;
    }
    match events::events(cluster, Some(seen)).await {
        Ok(events) => by_events(cluster, operators, seen, report, &events).await,
        Err(_) => Wait::ForNothing,
    }
}

/// Returns what the operator says that a workload waits for. `None` if the replica that has answered does not know.
pub(crate) fn by_report(report: &Report) -> Option<Wait> {
    match &report.waits_for {
        Some(waiting) if waiting.reason == HALTED => Some(Wait::Halted(words(waiting))),
        Some(waiting) => Some(Wait::For(words(waiting))),
        // A leader that could not read the objects does not know which content is due.
        None => {
            let is_due = matches!(report.sync_status, SyncStatus::Due(_));
            (report.leads && is_due).then_some(Wait::ForNothing)
        }
    }
}

/// Says what a workload waits for. The reason alone says it if there are no words for it.
pub(crate) fn words(waiting: &Waiting) -> String {
    match (&*waiting.reason, &*waiting.objects) {
        (PENDING, [object]) => gates::held_by(&object.kind, &object.name),
        (reason, _) if waiting.message.is_empty() => reason.to_owned(),
        _ => waiting.message.clone(),
    }
}

/// Returns what a workload waits for whose own gates are open, where the operator does not say it. `events` are those about
/// it, newest first.
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
        PENDING => held_by_objects(cluster, seen, latest, content).await,
        HALTED => halted(cluster, operators, latest).await,
        _ => told_by(latest).map_or(Wait::ForNothing, |told| Wait::For(told.to_owned())),
    }
}

/// Returns what an Event says a workload waits for, if its reason is one to wait.
pub(crate) fn told_by(event: &Event) -> Option<&str> {
    let reason = &*event.reason;
    let is_wait =
        [PENDING, HALTED, MISSING_CONFIG].contains(&reason) || reason.starts_with(WAITING);
    is_wait.then_some(&event.message)
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
    match gates::closed(seen, &found.objects, content) {
        Some(closed) => Wait::For(gates::words(&closed)),
        None if found.unseen.is_empty() && unlisted.is_empty() => Wait::ForNothing,
        None => Wait::For(latest.message.clone()),
    }
}

/// Looks at the workload that has failed: since the Event, it may have become healthy, or the content may have changed.
async fn halted(cluster: &Cluster, operators: &Operators, latest: &Event) -> Wait {
    let message = latest.message.clone();
    let Some(RelatedObject { kind, name }) = &latest.related else {
        return Wait::PerhapsHalted(message);
    };
    let failed = Target {
        kind: kind.to_ascii_lowercase(),
        name: name.clone(),
        namespace: None,
    };
    match still_fails(cluster, operators, &failed, latest).await {
        Ok(true) => Wait::Halted(message),
        Ok(false) => Wait::ForNothing,
        Err(_) => Wait::For(message),
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
    let since = revisions::hash_since(cluster, &seen).await?;
    Ok(has_content && since.is_none_or(|since| since <= latest.at))
}

/// Says that the pods could not start, and what they lack.
pub(crate) async fn lacking(cluster: &Cluster, seen: &Seen<'_>) -> String {
    let needed = seen.workload.requirements.iter();
    let needed = needed.chain(&seen.workload.untracked_requirements);
    let needed = needed.map(|it| (*it.reference).clone()).collect();
    let found = objects::read(cluster, &needed, Aspects::default()).await;
    let missing = objects::missing(seen, &found.objects);
    let start = "its pods could not start";
    match (&*missing, found.unseen.values().next()) {
        ([], Some(error)) => format!("{start}: what is missing cannot be seen, as {error}"),
        ([], None) => format!("{start}: objects or keys are missing"),
        (missing, _) => format!("{start} without {}", some(missing, NAMED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::answered;
    use pod_reloader_core::decision::Cause;

    #[test]
    fn a_leader_without_an_answer_does_not_say_that_nothing_is_waited_for() {
        let by = |sync_status, leads| {
            by_report(&Report {
                leads,
                ..answered(sync_status)
            })
        };
        let due = SyncStatus::Due(Cause::Changed);
        assert!(matches!(by(due, true), Some(Wait::ForNothing)));
        assert!(by(due, false).is_none());
        assert!(by(SyncStatus::Unknown, true).is_none());
    }
}
