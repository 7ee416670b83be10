//! The labels of metrics.

use pod_reloader_core::decision::Cause;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::workload::Stall;

/// Labels, with values from closed sets only.
pub(super) type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The label values of [`Metrics::admission`](super::Metrics::admission).
pub(super) const OUTCOMES: [&str; 7] = [
    "ignored",
    "unchanged",
    "set",
    "missing_config",
    "unknown",
    "too_long",
    "error",
];

pub(super) fn labels(kind: WorkloadKind, cause: Cause) -> Labels<2> {
    [("kind", kind.as_str()), ("cause", cause_label(cause))]
}

pub(crate) fn cause_label(cause: Cause) -> &'static str {
    match cause {
        Cause::FirstStamp => "first_stamp",
        Cause::Changed => "changed",
        Cause::ChangedBeforeTakeover => "changed_before_takeover",
        Cause::Pinned => "pinned",
        Cause::Rotated => "rotated",
    }
}

pub(super) fn stalled_labels(kind: WorkloadKind, stall: Stall) -> Labels<2> {
    let reason = match stall {
        Stall::Paused => "paused",
        Stall::OnDelete => "on_delete",
    };
    [("kind", kind.as_str()), ("reason", reason)]
}
