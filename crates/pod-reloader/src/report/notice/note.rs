//! The words of notices: the texts of their Events.

use std::time::Duration;

use pod_reloader_core::annotations::{APPROVE, HOLD, RESTART_WINDOW, TOGETHER, UNDONE};
use pod_reloader_core::brake::INTERVAL;
use pod_reloader_core::decision::Cause;
use pod_reloader_core::gate::Closed;
use pod_reloader_core::limit::Full;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::together::Missing;
use pod_reloader_core::window;
use pod_reloader_core::words::some;
use pod_reloader_core::workload::{Stall, WorkloadId};

use super::Notice;

/// The number of items that are named in full.
pub(super) const SHOWN: usize = 3;

impl Notice {
    /// Returns the text of the Event.
    pub(crate) fn note(&self) -> String {
        match self {
            Self::Restarted(cause, changed) => format!("restarting pods: {}", why(*cause, changed)),
            Self::Stalled(cause, changed, stall) => stalled(*cause, changed, *stall),
            Self::Reloaded(pods, changed) => format!(
                "reloaded {pods} {}: {}",
                if *pods == 1 { "pod" } else { "pods" },
                why(Cause::Changed, changed)
            ),
            Self::ReloadFailed(failed) => {
                format!("restarting pods, because they cannot reload changed config: {failed}")
            }
            Self::Reverted => format!(
                "somebody reverts the config hash, such as an owner of this object or a GitOps tool: trying again every {} s",
                INTERVAL.as_secs()
            ),
            Self::WouldRestart(cause, changed, stage) => would_restart(*cause, changed, *stage),
            Self::MissingConfig(missing) => format!(
                "not restarting pods: they could not start without {}",
                list(missing.iter().map(ToString::to_string))
            ),
            Self::Braked(pause) => format!(
                "its config changes again and again: the next restart waits until {} min after the last",
                pause.as_secs() / 60
            ),
            Self::Rejected(rejected) => list(rejected.iter().map(ToString::to_string)),
            Self::Unreadable(object, error) => {
                format!("cannot tell whether {} changed: {error}", shown(object))
            }
            Self::AwaitsRelease(release) => {
                format!("waiting for the {release}, which is in progress, before restarting pods")
            }
            Self::ReleaseUnfinished(release) => {
                format!("the {release} is still in progress: not waiting for it any longer")
            }
            Self::AwaitsTogether(missing, timeout) => awaits_together(missing, *timeout),
            Self::TogetherTimedOut(missing) => format!(
                "no change of {} in time: restarting pods without waiting any longer",
                list(missing.objects.iter().map(shown))
            ),
            Self::Gated(closed) => gated(closed),
            Self::AwaitsStage(WorkloadId { kind, name, .. }) => format!(
                "waiting for {kind} {name}, which gets the changed config first, before restarting pods"
            ),
            Self::OutsideWindow(expires, opens) => format!(
                "not waiting for the restart window that opens at {}: a certificate that the pods have loaded expires at {}",
                window::shown(opens),
                expires.strftime("%Y-%m-%d %H:%M UTC")
            ),
            Self::AwaitsSlot(full) => awaits_slot(full),
            Self::Unstuck(pod) => format!(
                "deleted pod {pod}, which was not ready with an earlier config: the controller was waiting for it"
            ),
            Self::Halted(WorkloadId { kind, name, .. }) => format!(
                "not restarting pods: {kind} {name} got the changed config first, and has not become healthy"
            ),
            Self::FailedFirst => FAILED_FIRST.to_owned(),
            Self::NotRun(error) => format!("its config changed, but it cannot be run: {error}"),
            Self::Refused(error) => format!("cannot set the config hash: {error}"),
            Self::Undone(names) => format!(
                "its pods keep what they had before {}: undone, until the content changes again or the annotation {UNDONE} is removed",
                list(names.iter().map(|name| format!("ConfigMap {name} changed")))
            ),
            Self::PutBack => format!(
                "its pods have not become healthy with the changed config: they get the one before that again, until the content changes or the annotation {UNDONE} is removed"
            ),
            Self::NotPutBack(obstacle) => format!(
                "its pods have not become healthy with the changed config, which stays: {obstacle}"
            ),
            Self::NotCopied(error) => format!(
                "the pods of this revision use the ConfigMaps themselves, so an undo will not bring their content back: {error}"
            ),
            Self::CopyLost(copy) => format!(
                "ConfigMap {copy}, which kept the content for these pods, is gone: new pods get the current content"
            ),
            Self::PodsNotPinned(pods) => format!(
                "{pods} of its pods use the ConfigMaps themselves and not the copies: delete these pods to have them created again"
            ),
            Self::CopiesAreLarge(bytes) => format!(
                "the copies of its ConfigMaps may take {} MiB of etcd: set a lower revisionHistoryLimit, or pin less",
                *bytes >> 20
            ),
            Self::SettingsKept(keys) => format!(
                "deleted and created again, with what people had set before: {}; to remove it, use kubectl annotate or kubectl label",
                list(keys.iter().map(ToString::to_string))
            ),
            Self::NamespaceTooLarge(share) => format!(
                "not restarting pods when config changes: the workloads of this namespace need more than the {} MiB of memory that pod-reloader has for one namespace; this one is managed once others are deleted or reference less",
                *share >> 20
            ),
        }
    }
}

const FAILED_FIRST: &str = "its pods have not become healthy with the changed config: no other workload is restarted until they are, or until the config changes again";

fn stalled(cause: Cause, changed: &[Reference], stall: Stall) -> String {
    format!(
        "the pod template has a new config hash, but {}: {}",
        match stall {
            Stall::Paused => "no pod is restarted until the workload is resumed",
            Stall::OnDelete => "with OnDelete each pod is restarted when it is deleted",
        },
        why(cause, changed)
    )
}

fn would_restart(cause: Cause, changed: &[Reference], stage: Option<i32>) -> String {
    let stage = stage.map(|stage| format!(" in stage {stage}"));
    format!(
        "would restart pods{} (--reconcile=observe): {}",
        stage.unwrap_or_default(),
        why(cause, changed)
    )
}

fn awaits_together(Missing { objects, is_blind }: &Missing, timeout: Duration) -> String {
    let (objects, seconds) = (list(objects.iter().map(shown)), timeout.as_secs_f64());
    match is_blind {
        false => format!(
            "waiting for {seconds} s at most before restarting pods: the annotation {TOGETHER} says that {objects} changes, too"
        ),
        true => format!(
            "waiting for {seconds} s at most before restarting pods: the annotation {TOGETHER} names objects that change together, and pod-reloader has not seen which have changed; not seen: {objects}"
        ),
    }
}

fn gated(closed: &Closed) -> String {
    match closed {
        Closed::Held => format!("not restarting pods: the annotation {HOLD} says so"),
        Closed::HeldByNamespace => {
            format!("not restarting pods: their Namespace has the annotation {HOLD}")
        }
        Closed::HeldBy(reference) => format!(
            "not restarting pods: {} has the annotation {HOLD}",
            shown(reference)
        ),
        Closed::NotApproved(digits) => format!(
            "not restarting pods until somebody approves the changed config with the annotation {APPROVE}={digits}"
        ),
        Closed::Until(opens) => format!(
            "not restarting pods until its restart window opens at {}",
            window::shown(opens)
        ),
        Closed::NoWindow => format!(
            "not restarting pods: the annotation {RESTART_WINDOW} names no window such as Mon-Fri 02:00-04:00 Europe/Berlin"
        ),
    }
}

fn awaits_slot(full: &Full) -> String {
    let (count, limit) = match full {
        Full::Cluster(count) => (count, "the limit of the cluster"),
        Full::Namespace(count) => (count, "the limit of the namespace"),
        Full::Part(count) => (
            count,
            "the part of the cluster's limit that one namespace has",
        ),
    };
    let rollouts = match count {
        1 => "1 rollout is".to_owned(),
        count => format!("{count} rollouts are"),
    };
    format!("waiting before restarting pods: {rollouts} in progress, which is {limit}")
}

fn why(cause: Cause, changed: &[Reference]) -> String {
    match cause {
        Cause::FirstStamp => "first config hash of this workload".to_owned(),
        Cause::Pinned => "first copies of its ConfigMaps".to_owned(),
        Cause::Rotated => "the CSI driver has rotated the secrets that its pods mount".to_owned(),
        Cause::ChangedBeforeTakeover => {
            "its config changed before pod-reloader took over".to_owned()
        }
        Cause::Changed if changed.is_empty() => {
            "its config changed while pod-reloader was not watching".to_owned()
        }
        Cause::Changed => {
            format!("{} changed", list(changed.iter().map(shown)))
        }
    }
}

/// Returns an object as the text of an Event names it.
fn shown(reference: &Reference) -> String {
    format!("{} {}", reference.kind, reference.name)
}

/// Returns a few items in full, and the number of the rest: the text of an Event is limited to 1 KiB.
fn list(items: impl Iterator<Item = String>) -> String {
    let text = some(Vec::from_iter(items), SHOWN);
    text.chars().take(900).collect()
}
