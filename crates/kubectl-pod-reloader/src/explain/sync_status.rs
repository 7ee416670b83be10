//! Explains a workload's sync status in words.

use pod_reloader_core::annotations::BASELINE;
use pod_reloader_core::decision::Cause;
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::sync_status::SyncStatus;
use pod_reloader_core::workload::Restart;
use pod_reloader_settings::Reconcile;

use crate::print::Verdict;
use crate::rollout::Rollout;
use crate::workloads::{Reply, Seen};

/// Returns the workload's sync status: in a word, its meaning, and whether it is good.
pub(super) fn sync_status(
    seen: &Seen<'_>,
    reply: Option<&Reply>,
    rollout: &Rollout,
) -> (String, String, Verdict) {
    let reconcile = seen.operator.map(|it| it.args.reconcile);
    let sync_status = match reply {
        None => {
            let obstacle = seen.obstacle.as_deref().unwrap_or_default();
            let meaning = format!("not managed: {obstacle}");
            return ("not asked".to_owned(), meaning, Verdict::Bad);
        }
        Some(Reply::Impossible(error)) => {
            let meaning = format!("not known: {error}, and only such a dry run shows it");
            return ("not asked".to_owned(), meaning, Verdict::Unknown);
        }
        Some(Reply::Unanswered) => {
            let mut meaning = "not known: the webhook of pod-reloader did not answer".to_owned();
            meaning += &match &seen.doubt {
                None => "; kubectl pod-reloader status shows more".to_owned(),
                Some(doubt) => format!(", and by its defaults {doubt}"),
            };
            return ("not answered".to_owned(), meaning, Verdict::Unknown);
        }
        Some(Reply::Answered(report)) => report.sync_status,
    };
    let (meaning, verdict) = match sync_status {
        SyncStatus::Current => current(seen, rollout),
        SyncStatus::Due(Cause::Changed) if seen.workload.rare().http_reload.is_some() => (
            with_mode("out of date: a reload or a restart is due", reconcile),
            Verdict::Bad,
        ),
        SyncStatus::Due(cause) => (due(cause, reconcile), Verdict::Bad),
        SyncStatus::MissingConfig => (
            "missing config: its pods could not start without the objects below".to_owned(),
            Verdict::Bad,
        ),
        SyncStatus::BaselineDue => {
            let what = match seen.workload.config_hash() {
                Some(_) => {
                    "foreign: the hash cannot be verified, so a baseline of the current state is due, which restarts nothing"
                }
                None => "new: a baseline of the current state is due, which restarts nothing",
            };
            (with_mode(what, reconcile), Verdict::Unknown)
        }
        SyncStatus::NotManaged => (
            "not managed: it is outside the operator's scope".to_owned(),
            Verdict::Bad,
        ),
        SyncStatus::Unknown => (
            "not known: pod-reloader could not read its objects now".to_owned(),
            Verdict::Unknown,
        ),
    };
    (sync_status.as_str().to_owned(), meaning, verdict)
}

fn due(cause: Cause, reconcile: Option<Reconcile>) -> String {
    let what = match cause {
        Cause::FirstStamp => "due: it has just opted in and gets its first hash",
        Cause::Changed => "out of date: a restart is due",
        Cause::ChangedBeforeTakeover => {
            "out of date: its objects changed before pod-reloader took over"
        }
        Cause::Rotated => "due: the CSI driver has rotated the secrets that its pods mount",
        Cause::Pinned => "due: it has just asked for pins and gets its first copies",
    };
    with_mode(what, reconcile)
}

/// Returns `what`, and the mode that keeps the operator from doing it, if any.
fn with_mode(what: &str, reconcile: Option<Reconcile>) -> String {
    match reconcile {
        Some(Reconcile::Nothing) => format!("{what}, but the operator runs with --reconcile=none"),
        Some(Reconcile::Observe) => {
            format!("{what}, but the operator only observes (--reconcile=observe)")
        }
        Some(Reconcile::Restart) | None => what.to_owned(),
    }
}

/// Explains what it means that nothing is pending for a workload.
fn current(seen: &Seen<'_>, rollout: &Rollout) -> (String, Verdict) {
    let workload = &seen.workload;
    let has_baseline = workload.markers.baseline.is_some();
    let what = match workload.config_hash() {
        _ if workload.references.is_empty() => {
            return (
                "it tracks nothing, so nothing restarts it".to_owned(),
                Verdict::Good,
            );
        }
        _ if !workload.can_be_restarted() => {
            let text = "its pod template is that of another object: annotate that one";
            return (text.to_owned(), Verdict::Bad);
        }
        Some(hash) if ConfigHash::parse(hash).is_none() => {
            format!("current, by its annotation {BASELINE}: the hash itself is somebody else's")
        }
        None if workload.restart != Restart::Template => {
            format!("current, by its annotation {BASELINE}: it is restarted by a time")
        }
        None if has_baseline => {
            format!(
                "current, by its annotation {BASELINE}: it has no hash yet, because nothing has changed since"
            )
        }
        _ => "current".to_owned(),
    };
    match rollout {
        Rollout::Done(text) if workload.id.kind.is("batch", "CronJob") => {
            (format!("{what}: {text}"), Verdict::Good)
        }
        Rollout::Done(_) if what == "current" => (
            format!("{what}: its pods run the current configuration"),
            Verdict::Good,
        ),
        Rollout::Done(_) | Rollout::Unknown(_) => (what, Verdict::Good),
        Rollout::Running(_) => (
            format!("{what}, and its rollout is in progress"),
            Verdict::Bad,
        ),
        Rollout::Stopped(_) => (format!("{what}, but its rollout is stuck"), Verdict::Bad),
    }
}
