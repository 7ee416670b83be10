//! What a restart waits for by a notice, as data for the answer to a status query.

use pod_reloader_core::gate::Closed;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::release::{Release, Tool};
use pod_reloader_core::sync_status::{NamedObject, Waiting};

use super::Notice;
use super::note::SHOWN;

/// Returns what a restart waits for by a notice, without the words for it.
pub(super) fn waits_for(notice: &Notice) -> Waiting {
    match notice {
        Notice::MissingConfig(missing) => for_objects(missing.iter().map(|unmet| &unmet.reference)),
        Notice::AwaitsTogether(missing, _) => for_objects(&missing.objects),
        Notice::Unreadable(reference, _) | Notice::Gated(Closed::HeldBy(reference)) => {
            for_objects([reference])
        }
        Notice::AwaitsRelease(release) => Waiting {
            release: Some(named(release)),
            ..Waiting::default()
        },
        Notice::AwaitsStage(other) | Notice::Halted(other) => Waiting {
            workload: Some(NamedObject {
                kind: other.kind.to_string(),
                namespace: None,
                name: other.name.to_string(),
            }),
            ..Waiting::default()
        },
        Notice::Gated(Closed::Until(opens)) => Waiting {
            until: Some(opens.timestamp().to_string()),
            ..Waiting::default()
        },
        // The words say it all.
        _ => Waiting::default(),
    }
}

/// Returns the wait for objects of the workload's namespace, without the words for it.
fn for_objects<'a>(references: impl IntoIterator<Item = &'a Reference>) -> Waiting {
    let named = |reference: &Reference| NamedObject {
        kind: reference.kind.to_string(),
        namespace: None,
        name: reference.name.to_string(),
    };
    let references = references.into_iter().take(SHOWN);
    Waiting {
        objects: references.map(named).collect(),
        ..Waiting::default()
    }
}

/// Returns a release, for the answer to a status query.
fn named(release: &Release) -> NamedObject {
    let kind = match release.tool {
        Tool::Helm => "HelmRelease",
        Tool::Flux => "Kustomization",
        Tool::ArgoCd => "Application",
    };
    NamedObject {
        kind: kind.to_owned(),
        namespace: release.namespace.as_ref().map(ToString::to_string),
        name: release.name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{id, reference};
    use jiff::Zoned;
    use pod_reloader_core::decision::Cause;
    use pod_reloader_core::discovery::Unmet;
    use pod_reloader_core::reference::ConfigKind;

    #[test]
    fn what_a_restart_waits_for_is_told_as_data() {
        let first = id("first");
        let halted = Notice::Halted(first).waiting().unwrap();
        assert_eq!(halted.reason, "RestartHalted");
        assert!(halted.is_problem);
        assert_eq!(halted.workload.unwrap().name, "first");
        let missing = ["a", "b", "c", "d"].map(|name| Unmet {
            reference: Reference {
                kind: ConfigKind::Secret,
                ..reference(name)
            },
            key: None,
            is_binary: false,
        });
        let notice = Notice::MissingConfig(missing.to_vec());
        let waiting = notice.waiting().unwrap();
        let names: Vec<_> = waiting.objects.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(waiting.message, notice.note());
        let opens: Zoned = "2026-11-28T02:00[Europe/Berlin]".parse().unwrap();
        let gated = Notice::Gated(Closed::Until(opens)).waiting().unwrap();
        assert_eq!(gated.until.as_deref(), Some("2026-11-28T01:00:00Z"));
        assert!(!gated.is_problem);
        let release = Release {
            tool: Tool::Helm,
            namespace: None,
            name: "shop".into(),
        };
        let waiting = Notice::AwaitsRelease(release).waiting().unwrap();
        assert_eq!(waiting.release.unwrap().kind, "HelmRelease");
        assert_eq!(
            Notice::Restarted(Cause::Changed, Vec::new()).waiting(),
            None
        );
    }
}
