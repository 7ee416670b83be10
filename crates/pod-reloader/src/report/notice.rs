//! Notices: reports about workloads, and their wording.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use pod_reloader_core::brake::INTERVAL;
use pod_reloader_core::decision::Cause;
use pod_reloader_core::discovery::Requirement;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::references::Rejected;
use pod_reloader_core::workload::{Stall, Workload};

use crate::runtime::events::Report;

/// A report about one workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Notice {
    /// Its pods are being restarted, because these objects changed.
    Restarted(Cause, Vec<Reference>),
    /// Its pods should be restarted because of these objects, but something prevents that.
    Stalled(Cause, Vec<Reference>, Stall),
    /// Somebody reverts the config hash or the baseline that we write.
    Reverted,
    /// Its pods would be restarted because of these objects, but we only observe.
    WouldRestart(Cause, Vec<Reference>),
    /// Its pods cannot start without these objects or keys, so no change restarts them.
    Waiting(Vec<Requirement>),
    /// Its next restart waits until so long after the last one, because there were many recently.
    Braked(Duration),
    /// Some items of its lists are not references.
    Rejected(Vec<Rejected>),
    /// A tracked object cannot be read.
    Unreadable(Reference, String),
    /// The workload is a CronJob, and could not be run.
    NotRun(String),
    /// The apiserver refuses our patch.
    Refused(String),
    /// The workload is not managed: with it, its namespace would take more memory than so many bytes.
    NamespaceTooLarge(usize),
}

impl Notice {
    /// Returns the reason of the Event, by which people filter.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Restarted(..) => "ConfigChanged",
            Self::Stalled(..) => "RestartStalled",
            Self::Reverted => "ConfigHashReverted",
            Self::WouldRestart(..) => "WouldRestart",
            Self::Waiting(_) => "WaitingForConfig",
            Self::Braked(_) => "RestartedTooOften",
            Self::Rejected(_) => "InvalidReference",
            Self::Unreadable(..) => "ConfigUnreadable",
            Self::NotRun(_) => "CronJobNotRun",
            Self::Refused(_) => "PatchRefused",
            Self::NamespaceTooLarge(_) => "NamespaceTooLarge",
        }
    }

    /// Returns the text of the Event.
    pub(crate) fn note(&self) -> String {
        match self {
            Self::Restarted(cause, changed) => format!("restarting pods: {}", why(*cause, changed)),
            Self::Stalled(cause, changed, stall) => format!(
                "the pod template has a new config hash, but {}: {}",
                match stall {
                    Stall::Paused => "no pod is restarted until the workload is resumed",
                    Stall::OnDelete => "with OnDelete each pod is restarted when it is deleted",
                },
                why(*cause, changed)
            ),
            Self::Reverted => format!(
                "somebody takes the config hash back, such as an owner of this object or a GitOps tool: trying again every {} s",
                INTERVAL.as_secs()
            ),
            Self::WouldRestart(cause, changed) => {
                format!(
                    "would restart pods (--reconcile=observe): {}",
                    why(*cause, changed)
                )
            }
            Self::Waiting(missing) => {
                let missing = missing
                    .iter()
                    .map(|Requirement { reference, key }| match key {
                        Some(key) => format!("key {key} of {} {}", reference.kind, reference.name),
                        None => format!("{} {}", reference.kind, reference.name),
                    });
                format!(
                    "not restarting pods: they could not start without {}",
                    list(missing)
                )
            }
            Self::Braked(pause) => format!(
                "its config changes again and again: the next restart waits until {} min after the last",
                pause.as_secs() / 60
            ),
            Self::Rejected(rejected) => list(rejected.iter().map(ToString::to_string)),
            Self::Unreadable(reference, error) => {
                format!(
                    "cannot tell whether {} {} changed: {error}",
                    reference.kind, reference.name
                )
            }
            Self::NotRun(error) => format!("its config changed, but it cannot be run: {error}"),
            Self::Refused(error) => format!("cannot set the config hash: {error}"),
            Self::NamespaceTooLarge(share) => format!(
                "not restarting pods when config changes: the workloads of this namespace need more than the {} MiB of memory that pod-reloader has for one namespace; this one is managed once others are deleted or reference less",
                share >> 20
            ),
        }
    }

    /// Returns true if something keeps the workload from the state that its users want.
    pub(crate) fn is_problem(&self) -> bool {
        !matches!(self, Self::Restarted(..) | Self::WouldRestart(..))
    }

    /// Returns the Event for this notice.
    pub(crate) fn event(&self) -> Report {
        let related = self.related().map(|reference| ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(reference.kind.to_string()),
            namespace: Some(reference.namespace.to_string()),
            name: Some(reference.name.to_string()),
            ..ObjectReference::default()
        });
        Report {
            reason: self.reason(),
            note: self.note(),
            is_problem: self.is_problem(),
            related,
        }
    }

    /// Returns the object that the Event is about, in addition to the workload.
    fn related(&self) -> Option<&Reference> {
        match self {
            Self::Restarted(_, changed)
            | Self::Stalled(_, changed, _)
            | Self::WouldRestart(_, changed) => changed.first(),
            Self::Waiting(missing) => missing.first().map(|requirement| &requirement.reference),
            Self::Unreadable(reference, _) => Some(reference),
            Self::Braked(_)
            | Self::Reverted
            | Self::Rejected(_)
            | Self::NotRun(_)
            | Self::Refused(_)
            | Self::NamespaceTooLarge(_) => None,
        }
    }
}

fn why(cause: Cause, changed: &[Reference]) -> String {
    match cause {
        Cause::FirstStamp => "first config hash of this workload".to_owned(),
        Cause::ChangedBeforeTakeover => {
            "its config changed before pod-reloader took over".to_owned()
        }
        Cause::Changed if changed.is_empty() => {
            "its config changed while nobody watched".to_owned()
        }
        Cause::Changed => {
            let names = changed
                .iter()
                .map(|reference| format!("{} {}", reference.kind, reference.name));
            format!("{} changed", list(names))
        }
    }
}

/// Returns a few items in full, and the number of the rest: the text of an Event is limited to 1 KiB.
fn list(items: impl Iterator<Item = String>) -> String {
    const SHOWN: usize = 3;
    let items: Vec<_> = items.collect();
    let shown = items
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    let text = match items.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    };
    text.chars().take(900).collect()
}

/// Returns the reference by which an Event names the workload.
pub(crate) fn about(workload: &Workload) -> ObjectReference {
    ObjectReference {
        api_version: Some(workload.api_version().to_owned()),
        kind: Some(workload.id.kind.to_string()),
        namespace: Some(workload.id.namespace.to_string()),
        name: Some(workload.id.name.to_string()),
        uid: Some(workload.uid.to_string()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_reloader_core::name::Name;
    use pod_reloader_core::reference::ConfigKind;
    use std::collections::BTreeSet;

    fn reference(name: &str) -> Reference {
        let parse = |name| Name::parse(name).unwrap();
        Reference {
            kind: ConfigKind::Secret,
            namespace: parse("ns"),
            name: parse(name),
        }
    }

    #[test]
    fn a_restart_says_what_changed() {
        let note = |names: &[&str]| {
            Notice::Restarted(
                Cause::Changed,
                names.iter().map(|name| reference(name)).collect(),
            )
            .note()
        };
        assert_eq!(note(&["a"]), "restarting pods: Secret a changed");
        assert_eq!(
            note(&["a", "b", "c", "d", "e"]),
            "restarting pods: Secret a, Secret b, Secret c and 2 more changed"
        );
        assert_eq!(
            note(&[]),
            "restarting pods: its config changed while nobody watched"
        );
    }

    #[test]
    fn a_held_change_says_what_it_waits_for() {
        let missing = vec![
            Requirement {
                reference: reference("a"),
                key: None,
            },
            Requirement {
                reference: reference("b"),
                key: Some("k".into()),
            },
        ];
        assert_eq!(
            Notice::Waiting(missing).note(),
            "not restarting pods: they could not start without Secret a, key k of Secret b"
        );
    }

    /// A test of the kubectl plugin checks that it knows the warnings in this document.
    #[test]
    fn the_document_has_every_reason_and_no_other() {
        let arm = |line: &'static str| {
            let (_, reason) = line.trim().strip_prefix("Self::")?.split_once(" => \"")?;
            reason.strip_suffix("\",")
        };
        let row = |line: &'static str| {
            let (reason, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            let is_event = rest.starts_with("Normal | ") || rest.starts_with("Warning | ");
            is_event.then_some(reason)
        };
        let reasons: BTreeSet<_> = include_str!("notice.rs").lines().filter_map(arm).collect();
        let document = include_str!("../../../../docs/operating.md");
        let told: BTreeSet<_> = document.lines().filter_map(row).collect();
        assert_eq!(told, reasons);
        assert!(reasons.contains(Notice::Reverted.reason()), "{reasons:?}");
    }

    #[test]
    fn a_long_note_fills_an_event() {
        let missing = ["\u{e4}".repeat(2_000), "x".repeat(2_000)].map(|key| Requirement {
            reference: reference(&"a".repeat(253)),
            key: Some(key.into()),
        });
        let changed = vec![reference(&"a".repeat(253)); 5];
        for notice in [
            Notice::Waiting(missing.to_vec()),
            Notice::Refused("\u{1f980}".repeat(500)),
            Notice::Restarted(Cause::Changed, changed),
        ] {
            assert!(notice.note().len() > 800, "{}", notice.note());
        }
    }
}
