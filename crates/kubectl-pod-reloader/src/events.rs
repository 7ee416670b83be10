//! Reads the Events of the operator.

use jiff::Timestamp;
use pod_reloader_core::annotations::FIELD_MANAGER;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::cluster::{Cluster, Place, Unseen, encoded};
use crate::workloads::Seen;

/// An Event of the operator about a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    /// Time of the last report.
    pub(crate) at: Timestamp,
    /// Reason, in one word.
    pub(crate) reason: String,
    /// Message, in a sentence.
    pub(crate) message: String,
    /// True for a warning.
    pub(crate) is_warning: bool,
    /// The workload: `Deployment shop/web`.
    pub(crate) about: String,
    /// The other object of the namespace that it is about, if there is one.
    #[serde(skip)]
    pub(crate) related: Option<RelatedObject>,
}

/// An object that an Event is about in addition to its workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelatedObject {
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// Reason of the Event of a restart.
const RESTARTED: &str = "ConfigChanged";
/// Reason of the Event of a restart that somebody has to complete.
const STALLED: &str = "RestartStalled";
/// The longest reason that is shown, in bytes.
const MAX_REASON: usize = 64;

impl Event {
    /// Returns true if the Event gives the reason for the newest hash.
    pub(crate) fn is_of_a_hash(&self) -> bool {
        [RESTARTED, STALLED].contains(&&*self.reason)
    }

    /// Returns the reason as lines name it: `others` if it is no word. Others may write Events, too, with whatever they
    /// like.
    pub(crate) fn shown_reason(&self) -> &str {
        let reason = &*self.reason;
        let is_short = (1..=MAX_REASON).contains(&reason.len());
        let is_word = is_short && reason.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_word { reason } else { "others" }
    }
}

/// Returns the operator's Events, newest first: about one workload, or about all.
pub(crate) async fn events(
    cluster: &Cluster,
    seen: Option<&Seen<'_>>,
) -> Result<Vec<Event>, Unseen> {
    let namespace = seen.map(|seen| seen.workload.id.namespace.as_str());
    let about = seen.map_or_else(String::new, |seen| {
        format!(
            ",involvedObject.kind={},involvedObject.name={}",
            seen.workload.id.kind, seen.workload.id.name
        )
    });
    let mut events = Vec::new();
    each(cluster, namespace, &about, |event| events.push(event)).await?;
    events.sort_by_key(|event| std::cmp::Reverse(event.at));
    Ok(events)
}

/// Passes on the operator's Events of a namespace, or of all, that match the field selector, which ends with `and`.
/// They come in no order, and only a page of them is in memory at a time.
pub(crate) async fn each(
    cluster: &Cluster,
    namespace: Option<&str>,
    and: &str,
    mut take: impl FnMut(Event),
) -> Result<(), Unseen> {
    let selector = format!("reportingComponent={FIELD_MANAGER}{and}");
    let query = format!("fieldSelector={}", encoded(&selector));
    let mut pages = cluster.pages(Place::new("v1", "events", namespace), &query);
    while let Some(page) = pages.next::<Box<RawValue>>().await? {
        let page = page.iter().filter_map(|event| self::event(event));
        page.for_each(&mut take);
    }
    Ok(())
}

/// An Event as the apiserver sends it, without what nobody asks for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    reporting_component: Option<String>,
    series: Option<Series>,
    last_timestamp: Option<String>,
    event_time: Option<String>,
    metadata: Option<Metadata>,
    involved_object: Option<Involved>,
    related: Option<Related>,
    reason: Option<String>,
    message: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Series {
    last_observed_time: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    creation_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Related {
    kind: Option<String>,
    name: Option<String>,
}

#[derive(Default, Deserialize)]
struct Involved {
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

fn event(event: &RawValue) -> Option<Event> {
    let event: Stored = serde_json::from_str(event.get()).ok()?;
    if event.reporting_component.as_deref() != Some(FIELD_MANAGER) {
        return None;
    }
    let times = [
        event.series.and_then(|series| series.last_observed_time),
        event.last_timestamp,
        event.event_time,
        event.metadata.and_then(|it| it.creation_timestamp),
    ];
    let at = times.into_iter().find_map(|at| at?.parse().ok())?;
    let about = event.involved_object.unwrap_or_default();
    Some(Event {
        at,
        reason: event.reason.unwrap_or_default(),
        message: event.message.unwrap_or_default(),
        is_warning: event.kind.as_deref() == Some("Warning"),
        about: format!(
            "{} {}/{}",
            about.kind.unwrap_or_default(),
            about.namespace.unwrap_or_default(),
            about.name.unwrap_or_default()
        ),
        related: event.related.and_then(|related| {
            Some(RelatedObject {
                kind: related.kind?,
                name: related.name?,
            })
        }),
    })
}

/// Returns the warnings about a workload since its last restart, the newest one for each reason.
pub(crate) fn problems<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<&'a Event> {
    let events = events.into_iter();
    let since = events.take_while(|event| event.reason != RESTARTED);
    let mut problems: Vec<&Event> = Vec::new();
    for event in since.filter(|event| event.is_warning) {
        if problems.iter().all(|known| known.reason != event.reason) {
            problems.push(event);
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    #[test]
    fn events_of_other_components_are_not_reported() {
        let one = json!({
            "reportingComponent": "pod-reloader", "reason": "ConfigChanged", "type": "Normal",
            "message": "restarting pods: ConfigMap a changed",
            "eventTime": "2026-01-01T00:00:00.123456Z", "lastTimestamp": null,
            "involvedObject": {"kind": "Deployment", "namespace": "ns", "name": "web"},
        });
        let read = |value: &serde_json::Value| event(&to_raw_value(value).unwrap());
        assert_eq!(read(&one).unwrap().about, "Deployment ns/web");
        assert_eq!(read(&one).unwrap().related, None);
        let mut halted = one.clone();
        halted["related"] = json!({"kind": "StatefulSet", "namespace": "ns", "name": "first"});
        let related = RelatedObject {
            kind: "StatefulSet".to_owned(),
            name: "first".to_owned(),
        };
        assert_eq!(read(&halted).unwrap().related, Some(related));
        let mut other = one;
        other["reportingComponent"] = json!("deployment-controller");
        assert_eq!(read(&other), None);
    }

    #[test]
    fn only_a_reason_that_is_a_word_is_shown() {
        let shown = |reason: &str| {
            let event = Event {
                at: Timestamp::UNIX_EPOCH,
                reason: reason.to_owned(),
                message: String::new(),
                is_warning: true,
                about: String::new(),
                related: None,
            };
            event.shown_reason().to_owned()
        };
        assert_eq!(shown("PatchRefused"), "PatchRefused");
        assert_eq!(shown("WinterIsBack"), "WinterIsBack");
        let long = "A".repeat(MAX_REASON + 1);
        for other in ["", &*long, "PatchRefused: it is so", "\u{1b}[31m"] {
            assert_eq!(shown(other), "others");
        }
    }

    #[test]
    fn a_problem_is_over_with_the_next_restart() {
        let event = |minute: i64, reason: &str| Event {
            at: at(&format!("2026-01-01T00:{minute:02}:00Z")),
            reason: reason.to_owned(),
            message: String::new(),
            is_warning: reason != RESTARTED,
            about: String::new(),
            related: None,
        };
        let events = [
            event(5, "PatchRefused"),
            event(4, "MissingConfig"),
            event(3, "PatchRefused"),
            event(2, RESTARTED),
            event(1, "RestartStalled"),
        ];
        let reasons: Vec<_> = problems(&events).iter().map(|it| &*it.reason).collect();
        assert_eq!(reasons, ["PatchRefused", "MissingConfig"]);
    }
}
