//! Notices: reports about workloads.

mod note;
mod traits;
mod waiting;

use std::time::Duration;

use jiff::{Timestamp, Zoned};
use k8s_openapi::api::core::v1::ObjectReference;
use pod_reloader_core::decision::Cause;
use pod_reloader_core::discovery::Unmet;
use pod_reloader_core::gate::Closed;
use pod_reloader_core::limit::Full;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::references::Rejected;
use pod_reloader_core::release::Release;
use pod_reloader_core::reload_round::Failed;
use pod_reloader_core::sync_status::Waiting;
use pod_reloader_core::together::Missing;
use pod_reloader_core::workload::{Stall, Workload, WorkloadId};

pub(crate) use self::traits::Headline;
use self::waiting::waits_for;
use crate::runtime::events::Report;

/// A report about one workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Notice {
    /// Its pods are being restarted, because these objects changed.
    Restarted(Cause, Vec<Reference>),
    /// Its pods should be restarted because of these objects, but something prevents that.
    Stalled(Cause, Vec<Reference>, Stall),
    /// So many of its pods have reloaded these objects, which changed.
    Reloaded(usize, Vec<Reference>),
    /// A pod has not reloaded changed config, so all are restarted.
    ReloadFailed(Failed),
    /// Somebody reverts the config hash or the baseline that we write.
    Reverted,
    /// Its pods would be restarted because of these objects, in this stage if that matters, but we only
    /// observe.
    WouldRestart(Cause, Vec<Reference>, Option<i32>),
    /// Its pods cannot start without these objects or keys, so no change restarts them.
    MissingConfig(Vec<Unmet>),
    /// Its next restart waits until so long after the last one, because there were many recently.
    Braked(Duration),
    /// Some items of its lists are not references.
    Rejected(Vec<Rejected>),
    /// A tracked object cannot be read.
    Unreadable(Reference, String),
    /// Its restart waits for this release, which is under way.
    AwaitsRelease(Release),
    /// Its restart has waited for this release, which has not ended in time.
    ReleaseUnfinished(Release),
    /// Its restart waits until these objects have changed, too, for so long at most.
    AwaitsTogether(Missing, Duration),
    /// Its restart has waited for these objects, which have not changed in time.
    TogetherTimedOut(Missing),
    /// Its restart waits until its users open this gate.
    Gated(Closed),
    /// Its restart waits for this workload, which gets the content first.
    AwaitsStage(WorkloadId),
    /// It is restarted although no restart window is open: a certificate that its pods have loaded expires at
    /// this time, before the next one opens.
    OutsideWindow(Timestamp, Zoned),
    /// Its restart waits until fewer rollouts are under way.
    AwaitsSlot(Full),
    /// This pod of it was deleted, which kept the corrected content from being rolled out.
    Unstuck(Box<str>),
    /// Its restart waits for this workload, which has got the content and has not become healthy.
    Halted(WorkloadId),
    /// It has got the content before others, and has not become healthy in time.
    FailedFirst,
    /// The workload is a CronJob, and could not be run.
    NotRun(String),
    /// The apiserver refuses our patch.
    Refused(String),
    /// Its pods keep the content of earlier copies, because its user has undone the changes of these ConfigMaps.
    Undone(Vec<Name>),
    /// It has not become healthy with the changed config, so its pods have the one before that again.
    PutBack,
    /// It has not become healthy with the changed config, and for this reason its pods keep it.
    NotPutBack(&'static str),
    /// Its pods use the ConfigMaps themselves, because a copy could not be made.
    NotCopied(String),
    /// A copy that its pods use is not there any more, and its content is not known.
    CopyLost(Name),
    /// So many of its pods have been created without regard to its pins.
    PodsNotPinned(usize),
    /// The copies that its revisions keep take so many bytes.
    CopiesAreLarge(usize),
    /// It was deleted and created again, and has these settings as before.
    SettingsKept(Vec<Box<str>>),
    /// The workload is not managed: with it, its namespace would take more memory than so many bytes.
    NamespaceTooLarge(usize),
}

impl Notice {
    /// Returns the reason of the Event, by which people filter.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Restarted(..) => "ConfigChanged",
            Self::Stalled(..) => "RestartStalled",
            Self::Reloaded(..) => "ConfigReloaded",
            Self::ReloadFailed(_) => "ReloadFailed",
            Self::Reverted => "ConfigHashReverted",
            Self::WouldRestart(..) => "WouldRestart",
            Self::MissingConfig(_) => "MissingConfig",
            Self::Braked(_) => "RestartedTooOften",
            Self::Rejected(_) => "InvalidReference",
            Self::Unreadable(..) => "ConfigUnreadable",
            Self::AwaitsRelease(_) => "WaitingForRelease",
            Self::ReleaseUnfinished(_) => "ReleaseUnfinished",
            Self::AwaitsTogether(..) => "WaitingForTogether",
            Self::TogetherTimedOut(_) => "TogetherTimedOut",
            Self::Gated(_) => "RestartPending",
            Self::AwaitsStage(_) => "WaitingForStage",
            Self::AwaitsSlot(_) => "WaitingForSlot",
            Self::OutsideWindow(..) => "OutsideWindow",
            Self::Unstuck(_) => "StuckPodDeleted",
            Self::Halted(_) | Self::FailedFirst => "RestartHalted",
            Self::NotRun(_) => "CronJobNotRun",
            Self::Refused(_) => "PatchRefused",
            Self::Undone(_) => "ConfigUndone",
            Self::PutBack => "ConfigReverted",
            Self::NotPutBack(_) => "ConfigNotReverted",
            Self::NotCopied(_) => "CopyFailed",
            Self::CopyLost(_) => "CopyLost",
            Self::PodsNotPinned(_) => "PodsNotPinned",
            Self::CopiesAreLarge(_) => "CopiesLarge",
            Self::SettingsKept(_) => "SettingsKept",
            Self::NamespaceTooLarge(_) => "NamespaceTooLarge",
        }
    }

    /// Returns true if something keeps the workload from the state that its users want.
    pub(crate) fn is_problem(&self) -> bool {
        self.traits().is_problem
    }

    /// Returns the Event for this notice.
    pub(crate) fn event(&self) -> Report {
        Report {
            reason: self.reason(),
            note: self.note(),
            is_problem: self.is_problem(),
            related: self.related(),
        }
    }

    /// Returns the reason why a restart that is due waits, for the answer to a status query. `None` if the notice tells no
    /// such reason.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        let traits = self.traits();
        traits.waits.then(|| Waiting {
            reason: self.reason().to_owned(),
            is_problem: traits.is_problem,
            message: self.note(),
            ..waits_for(self)
        })
    }

    /// Returns the other object that the Event is about, in addition to the workload.
    fn related(&self) -> Option<ObjectReference> {
        if let Self::AwaitsStage(other) | Self::Halted(other) = self {
            // Without a version, because it is known by its kind and its name alone. The kubectl plugin reads both.
            return Some(ObjectReference {
                kind: Some(other.kind.to_string()),
                namespace: Some(other.namespace.to_string()),
                name: Some(other.name.to_string()),
                ..ObjectReference::default()
            });
        }
        self.related_object().map(|reference| ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(reference.kind.to_string()),
            namespace: Some(reference.namespace.to_string()),
            name: Some(reference.name.to_string()),
            ..ObjectReference::default()
        })
    }

    /// Returns the config object that the Event is about.
    fn related_object(&self) -> Option<&Reference> {
        match self {
            Self::Restarted(_, changed)
            | Self::Reloaded(_, changed)
            | Self::Stalled(_, changed, _)
            | Self::WouldRestart(_, changed, _) => changed.first(),
            Self::MissingConfig(missing) => missing.first().map(|unmet| &unmet.reference),
            Self::Unreadable(reference, _) | Self::Gated(Closed::HeldBy(reference)) => {
                Some(reference)
            }
            Self::AwaitsTogether(missing, _) | Self::TogetherTimedOut(missing) => {
                missing.objects.first()
            }
            _ => None,
        }
    }
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
    use crate::mock;
    use pod_reloader_core::kind::WorkloadKind;
    use pod_reloader_core::reference::ConfigKind;
    use std::collections::BTreeSet;

    fn reference(name: &str) -> Reference {
        Reference {
            kind: ConfigKind::Secret,
            ..mock::reference(name)
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
            "restarting pods: its config changed while pod-reloader was not watching"
        );
    }

    #[test]
    fn the_event_about_a_halt_names_the_workload_that_has_failed_as_data() {
        let first = || WorkloadId {
            kind: WorkloadKind::STATEFUL_SET,
            ..mock::id("first")
        };
        for notice in [Notice::Halted(first()), Notice::AwaitsStage(first())] {
            let related = notice.event().related.unwrap();
            assert_eq!(related.kind.as_deref(), Some("StatefulSet"));
            assert_eq!(related.namespace.as_deref(), Some("ns"));
            assert_eq!(related.name.as_deref(), Some("first"));
        }
    }

    #[test]
    fn a_restart_that_waits_for_a_slot_says_which_limit_is_reached() {
        let note = |full| Notice::AwaitsSlot(full).note();
        let expected = [
            (
                Full::Cluster(5),
                "5 rollouts are in progress, which is the limit of the cluster",
            ),
            (
                Full::Namespace(1),
                "1 rollout is in progress, which is the limit of the namespace",
            ),
            (
                Full::Part(2),
                "2 rollouts are in progress, which is the part of the cluster's limit that one namespace has",
            ),
        ];
        for (full, why) in expected {
            assert_eq!(note(full), format!("waiting before restarting pods: {why}"));
        }
    }

    #[test]
    fn a_change_with_missing_config_says_what_it_waits_for() {
        let missing = |name: &str, key: Option<&str>, is_binary| Unmet {
            reference: Reference {
                kind: match is_binary {
                    true => ConfigKind::ConfigMap,
                    false => ConfigKind::Secret,
                },
                ..reference(name)
            },
            key: key.map(Into::into),
            is_binary,
        };
        let note = |missing: &[Unmet]| Notice::MissingConfig(missing.to_vec()).note();
        assert_eq!(
            note(&[missing("a", None, false), missing("b", Some("k"), false)]),
            "not restarting pods: they could not start without Secret a, key k of Secret b"
        );
        assert_eq!(
            note(&[missing("app", Some("greeting"), true)]),
            "not restarting pods: they could not start without key greeting of ConfigMap app (it is in binaryData, and variables come from data alone)"
        );
    }

    /// A test of the kubectl plugin checks that it shows the warnings in this document.
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
    fn every_warning_has_a_section_that_says_what_to_do() {
        let page = include_str!("../../../../docs/troubleshooting.md");
        let (contents, _) = page.split_once("\n## ").unwrap();
        let warning = |line: &'static str| {
            let (reason, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            rest.starts_with("Warning | ").then_some(reason)
        };
        let document = include_str!("../../../../docs/operating.md");
        let of_workloads = document.lines().filter_map(warning);
        for reason in of_workloads.chain(["ConfigNotSynced", "FieldsNotApplied"]) {
            assert!(contents.contains(&format!("`{reason}`")), "{reason}");
        }
    }

    #[test]
    fn a_long_note_fills_an_event() {
        let missing = ["\u{e4}".repeat(2_000), "x".repeat(2_000)].map(|key| Unmet {
            reference: reference(&"a".repeat(253)),
            key: Some(key.into()),
            is_binary: false,
        });
        let changed = vec![reference(&"a".repeat(253)); 5];
        for notice in [
            Notice::MissingConfig(missing.to_vec()),
            Notice::Refused("\u{1f980}".repeat(500)),
            Notice::Restarted(Cause::Changed, changed),
        ] {
            assert!(notice.note().len() > 800, "{}", notice.note());
        }
    }
}
