//! Gates that users put in the way of a restart, in words. The only file that tells one gate from another, except
//! for what `approve` and `explain` ask for by name.

use jiff::Timestamp;
use pod_reloader_core::digest::Objects;
use pod_reloader_core::gate::{self, Closed, Gates};
use pod_reloader_core::reference::Reference;
use pod_reloader_core::sync_status::{Report, SyncStatus};
use pod_reloader_core::window;

use crate::workloads::Seen;

/// Returns the gate of a workload itself that keeps it from a restart that is due. Needs no objects.
pub(crate) fn closed_by_itself(gates: Option<&Gates>, report: &Report) -> Option<Closed> {
    let is_due = matches!(report.sync_status, SyncStatus::Due(_));
    let content = report.content.as_deref().unwrap_or_default();
    let gates = gates.filter(|_| is_due);
    gate::closed(gates, &Objects::new(), content, Timestamp::now())
}

/// Returns the gate that keeps a workload from getting `content`, as far as the objects that it tracks could be
/// read.
pub(crate) fn closed(seen: &Seen<'_>, objects: &Objects, content: &str) -> Option<Closed> {
    let references = &seen.workload.references;
    let tracked = objects.iter();
    let tracked = tracked.filter(|(reference, _)| references.extent(reference).is_some());
    let tracked = tracked.map(|(reference, object)| (reference.clone(), object.clone()));
    let tracked: Objects = tracked.collect();
    let gates = seen.workload.rare().gates.as_deref();
    gate::closed(gates, &tracked, content, Timestamp::now())
}

/// Returns the objects that a workload tracks and that are on hold.
pub(crate) fn holders<'a>(
    seen: &'a Seen<'_>,
    objects: &'a Objects,
) -> impl Iterator<Item = &'a Reference> {
    let references = &seen.workload.references;
    let held = objects.iter().filter(move |(reference, object)| {
        references.extent(reference).is_some() && object.is_held()
    });
    held.map(|(reference, _)| reference)
}

/// Returns true if a workload with these gates waits until somebody opens them. A restart window opens by itself.
pub(crate) fn need_somebody(gates: &Gates) -> bool {
    // Without `..`, so that a gate that is added is not left out here.
    let Gates {
        hold,
        needs_approval,
        approved: _,
        windows,
    } = gates;
    hold.is_some() || *needs_approval || *windows == Some(None)
}

/// Says what has to happen before a workload gets any change, if its own gates ask for something.
pub(crate) fn remark(gates: Option<&Gates>) -> Option<&'static str> {
    // Without `..`, so that a gate that is added is not left out here.
    let Gates {
        hold,
        needs_approval,
        approved: _,
        windows,
    } = gates?;
    match (hold.is_some(), *needs_approval) {
        (true, _) => Some("on hold: when it is released"),
        (false, true) => Some("when its content is approved"),
        (false, false) => windows.as_ref().map(|_| "when its restart window is open"),
    }
}

/// Says when the next restart window opens, if restarts are limited to windows and none is open.
pub(crate) fn next_opening(gates: &Gates) -> Option<String> {
    match gates.windows.as_ref()? {
        None => Some("cannot be read, so the pods are not restarted".to_owned()),
        Some(windows) => {
            let opens = windows.next_opening(Timestamp::now())?;
            Some(format!("opens at {}", window::shown(&opens)))
        }
    }
}

/// Says for a number of workloads what they wait for.
pub(crate) fn in_short(closed: &Closed) -> &'static str {
    match closed {
        Closed::Held | Closed::HeldByNamespace | Closed::HeldBy(_) => "on hold",
        Closed::NotApproved(_) => "waiting for approval",
        Closed::Until(_) => "waiting for a restart window",
        Closed::NoWindow => "with a restart window that cannot be read",
    }
}

/// Says why a workload waits at a gate.
pub(crate) fn words(closed: &Closed) -> String {
    match closed {
        Closed::Held => "it is on hold".to_owned(),
        Closed::HeldByNamespace => "its Namespace is on hold".to_owned(),
        Closed::HeldBy(Reference { kind, name, .. }) => held_by(kind.as_str(), name.as_str()),
        Closed::NotApproved(content) if content.is_empty() => {
            "its content waits for approval".to_owned()
        }
        Closed::NotApproved(content) => format!("content {content} waits for approval"),
        Closed::Until(opens) => format!("its restart window opens at {}", window::shown(opens)),
        Closed::NoWindow => "its restart window cannot be read".to_owned(),
    }
}

/// Says that an object is on hold.
pub(crate) fn held_by(kind: &str, name: &str) -> String {
    format!("{kind} {name} is on hold")
}
