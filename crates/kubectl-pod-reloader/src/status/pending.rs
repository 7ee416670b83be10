//! Tells what workloads that are due wait for, by the operator's answers, the workloads themselves and the newest Events.

use std::borrow::Cow;

use pod_reloader_core::gate::Gates;
use pod_reloader_core::sync_status::Report;

use crate::due::{HALTED, PENDING, told_by};
use crate::events::Event;
use crate::gates;
use crate::print::Verdict;

/// Returns what a workload that is due waits for, and whether that is well. `None` if it should not wait.
/// `latest` is the newest Event about it.
pub(super) fn waits_for(
    gates: Option<&Gates>,
    report: &Report,
    latest: Option<&Event>,
) -> Option<(Verdict, Cow<'static, str>)> {
    if let Some(closed) = gates::closed_by_itself(gates, report) {
        return Some((Verdict::Good, gates::in_short(&closed).into()));
    }
    let (reason, is_problem) = match (&report.waits_for, latest) {
        // The gate of a Namespace that cannot be seen, or of a window by the clock of the operator.
        (Some(waiting), _) if waiting.reason == PENDING && waiting.objects.is_empty() => {
            return Some((Verdict::Good, GATED.into()));
        }
        (Some(waiting), _) => (&*waiting.reason, waiting.is_problem),
        (None, Some(event)) if !report.leads && told_by(event).is_some() => {
            (event.shown_reason(), event.is_warning)
        }
        (None, _) => return None,
    };
    let verdict = match is_problem || reason == HALTED {
        true => Verdict::Bad,
        false => Verdict::Good,
    };
    Some((verdict, words(reason)))
}

/// What workloads wait for if the operator names no object that holds them back.
const GATED: &str = "on hold, or waiting for approval or a restart window";

/// Says for a number of workloads what they wait for.
fn words(reason: &str) -> Cow<'static, str> {
    let known = match reason {
        PENDING => "on hold by an object that they track",
        "WaitingForStage" => "waiting for their stage",
        "WaitingForRelease" => "waiting for a release",
        "WaitingForTogether" => "waiting for other objects to change, too",
        "WaitingForSlot" => "waiting until fewer rollouts are in progress",
        "MissingConfig" => "waiting for missing config",
        HALTED => "halted by a workload that has failed",
        other => return format!("not restarted: {other}").into(),
    };
    known.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::canned::{answered, deployment};
    use crate::operators::read;
    use pod_reloader_core::decision::Cause;
    use pod_reloader_core::kind::WorkloadKind;
    use pod_reloader_core::name::Name;
    use pod_reloader_core::scope::Scope;
    use pod_reloader_core::sync_status::{SyncStatus, Waiting};
    use serde_json::json;
    use serde_json::value::to_raw_value;

    fn due() -> Report {
        Report {
            content: Some("48a63946".to_owned()),
            ..answered(SyncStatus::Due(Cause::Changed))
        }
    }

    fn latest(reason: &str) -> Event {
        Event {
            at: jiff::Timestamp::UNIX_EPOCH,
            reason: reason.to_owned(),
            message: String::new(),
            is_warning: false,
            about: String::new(),
            related: None,
        }
    }

    #[test]
    fn the_gates_of_a_workload_say_more_than_an_event() {
        let own = |is_held: bool, approved: Option<&str>| {
            let mut web = deployment("web");
            web["metadata"]["annotations"] = json!({
                "pod-reloader.cs.sap.com/hold": is_held.to_string(),
                "pod-reloader.cs.sap.com/approval": "required",
                "pod-reloader.cs.sap.com/approve": approved.unwrap_or_default(),
            });
            let web = to_raw_value(&web).unwrap();
            let scope = Scope::new([], Name::parse("ops").unwrap());
            let web = read(&scope, WorkloadKind::DEPLOYMENT, &web).unwrap();
            *web.rare().gates.clone().unwrap()
        };
        let halted = latest("RestartHalted");
        let text = |gates: &Gates| waits_for(Some(gates), &due(), Some(&halted)).unwrap().1;
        assert_eq!(text(&own(true, None)), "on hold");
        assert_eq!(text(&own(false, Some("00000000"))), "waiting for approval");
        let approved = own(false, Some("48a63946"));
        assert!(text(&approved).starts_with("halted"));
        let current = Report {
            sync_status: SyncStatus::Current,
            ..due()
        };
        let held = own(true, None);
        assert_eq!(gates::closed_by_itself(Some(&held), &current), None);
    }

    /// The operator has a test that it has the same reasons as the document.
    #[test]
    fn every_documented_wait_is_recognised_by_its_reason() {
        let document = include_str!("../../../../docs/operating.md");
        let reasons = document.lines().filter_map(|line| {
            let (reason, _) = line.strip_prefix("| `")?.split_once("` | ")?;
            reason.starts_with("WaitingFor").then_some(reason)
        });
        let reasons: Vec<_> = reasons.collect();
        assert!(reasons.contains(&"WaitingForStage"), "{reasons:?}");
        for reason in reasons {
            let event = latest(reason);
            assert!(told_by(&event).is_some(), "{reason}");
            assert!(waits_for(None, &due(), Some(&event)).is_some(), "{reason}");
        }
    }

    #[test]
    fn only_a_halt_is_a_fault() {
        let verdict = |reason| {
            let (verdict, _) = waits_for(None, &due(), Some(&latest(reason)))?;
            Some(verdict)
        };
        for reason in [
            "RestartPending",
            "WaitingForStage",
            "WaitingForRelease",
            "WaitingForTogether",
            "WaitingForSlot",
        ] {
            assert_eq!(verdict(reason), Some(Verdict::Good));
        }
        assert_eq!(verdict("RestartHalted"), Some(Verdict::Bad));
        assert_eq!(verdict("ConfigChanged"), None);
        assert_eq!(waits_for(None, &due(), None), None);
    }

    #[test]
    fn the_answer_of_the_leader_counts_and_not_an_earlier_event() {
        let event = latest("RestartHalted");
        let told = |waits_for: Option<(&str, bool)>| {
            let waits_for = waits_for.map(|(reason, is_problem)| Waiting {
                reason: reason.to_owned(),
                is_problem,
                ..Waiting::default()
            });
            let report = Report {
                leads: true,
                waits_for,
                ..due()
            };
            super::waits_for(None, &report, Some(&event))
        };
        assert_eq!(told(None), None);
        let stage = (Verdict::Good, Cow::from("waiting for their stage"));
        assert_eq!(told(Some(("WaitingForStage", false))), Some(stage));
        let gated = (Verdict::Good, Cow::from(GATED));
        assert_eq!(told(Some((PENDING, false))), Some(gated));
        // No plugin has ever heard of these.
        let spring = (Verdict::Good, Cow::from("not restarted: WaitingForSpring"));
        assert_eq!(told(Some(("WaitingForSpring", false))), Some(spring));
        let winter = (Verdict::Bad, Cow::from("not restarted: WinterIsBack"));
        assert_eq!(told(Some(("WinterIsBack", true))), Some(winter));
    }
}
