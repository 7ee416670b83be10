//! Sends Events in the background, so that they never delay the work.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::Patch;
use kube::{Api, Client};
use pod_reloader_core::annotations::FIELD_MANAGER;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

use crate::runtime::client::{DEADLINE, patch_params, post_params, within};
use crate::runtime::error::CallError;

/// The maximum number of Events that wait to be sent. Any more are dropped, with a line in the log.
const BACKLOG: usize = 4096;
/// The maximum number of different Events that are sent as one batch.
const BATCH: usize = 256;
/// The minimum time from one batch to the next. An Event after a pause is sent at once. In a stream of them, equal ones
/// become one call, and the process is woken up less often.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum time that Events wait for an idle loop: restarts come first.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The time during which a repeated Event is counted instead of sent again.
const REMEMBERED: Duration = Duration::from_secs(6 * 60);
/// The maximum length of an object name, in bytes.
const MAX_NAME: usize = 253;
/// The maximum length of the text of an Event, in bytes.
const MAX_NOTE: usize = 1024;

/// The content of an Event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    /// The reason, by which people filter.
    pub(crate) reason: &'static str,
    /// The text. The apiserver accepts up to 1 KiB.
    pub(crate) note: String,
    /// True for a Warning.
    pub(crate) is_problem: bool,
    /// A second object that the Event is about.
    pub(crate) related: Option<ObjectReference>,
}

/// The sending half: hands in Events.
#[derive(Clone)]
pub(crate) struct Events {
    sender: mpsc::Sender<(ObjectReference, Report)>,
    is_busy: Arc<watch::Sender<bool>>,
}

impl Events {
    /// Returns a place to hand in Events, and the task that sends them.
    pub(crate) fn new(client: Client) -> (Self, impl Future<Output = ()>) {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let (is_busy, busy) = watch::channel(false);
        let is_busy = Arc::new(is_busy);
        (Self { sender, is_busy }, send(client, receiver, busy))
    }

    /// Notes whether the loop has more urgent work than Events.
    pub(crate) fn hold_back(&self, is_busy: bool) {
        self.is_busy.send_if_modified(|was_busy| {
            let is_news = *was_busy != is_busy;
            *was_busy = is_busy;
            is_news
        });
    }

    /// Hands in an Event about an object. Never waits.
    pub(crate) fn publish(&self, about: ObjectReference, report: Report) {
        let ObjectReference {
            namespace, name, ..
        } = &about;
        let (namespace, name) = (namespace.clone(), name.clone());
        if self.sender.try_send((about, report)).is_err() {
            warn!(
                ?namespace,
                ?name,
                "dropped an Event: too many wait to be sent"
            );
        }
    }
}

async fn send(
    client: Client,
    mut receiver: mpsc::Receiver<(ObjectReference, Report)>,
    mut busy: watch::Receiver<bool>,
) {
    let mut recorder = Recorder::new(client);
    let mut patience = MAX_WAIT;
    let mut next_batch = Instant::now();
    while let Some(first) = receiver.recv().await {
        sleep_until(next_batch).await;
        let mut batch = Batch::default();
        batch.add(first);
        while batch.0.len() < BATCH
            && let Ok(next) = receiver.try_recv()
        {
            batch.add(next);
        }
        if batch.0.len() < BATCH {
            next_batch = Instant::now() + BATCH_INTERVAL;
        }
        recorder.forget_old();
        for (about, report, times) in batch.0 {
            // If the loop does not become idle in time, its Events are sent alongside its work until it does.
            patience = match timeout(patience, busy.wait_for(|is_busy| !is_busy)).await {
                Ok(_) => MAX_WAIT,
                Err(_) => Duration::ZERO,
            };
            recorder.publish(&about, &report, times).await;
        }
    }
}

/// Different Events in the order in which they first came, each with the number of times that it came.
#[derive(Default)]
struct Batch(Vec<(ObjectReference, Report, i32)>);

impl Batch {
    fn add(&mut self, (about, report): (ObjectReference, Report)) {
        let is_same = |it: &&mut (_, _, _)| (&it.0, &it.1) == (&about, &report);
        match self.0.iter_mut().find(is_same) {
            Some((_, _, times)) => *times += 1,
            None => self.0.push((about, report, 1)),
        }
    }
}

/// Sends Events. If an Event repeats a recent one about the same object, that one is counted up instead.
/// kube's recorder would also count an Event with another text, and its names are too long for objects with
/// long names.
struct Recorder {
    client: Client,
    /// Recent Events, by a hash of whom they are about and what they say. A fan-out sends thousands of them.
    recent: HashMap<u64, Sent>,
}

/// An Event that was sent.
struct Sent {
    name: Box<str>,
    /// The number of times that it came.
    count: i32,
    /// The last time that it came.
    used: Instant,
}

impl Recorder {
    fn new(client: Client) -> Self {
        let recent = HashMap::new();
        Self { client, recent }
    }

    /// Forgets Events that are too old to be counted up.
    fn forget_old(&mut self) {
        let now = Instant::now();
        self.recent
            .retain(|_, sent| now.duration_since(sent.used) < REMEMBERED);
    }

    async fn publish(&mut self, about: &ObjectReference, report: &Report, times: i32) {
        if let Err(error) = self.record(about, report, times).await {
            // The namespace may be terminating. The log line of the change itself has been written.
            debug!(%error, reason = report.reason, "an Event was not taken");
        }
    }

    async fn record(
        &mut self,
        about: &ObjectReference,
        report: &Report,
        times: i32,
    ) -> Result<(), CallError> {
        let now = Instant::now();
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace(about));
        let key = (&about.uid, report.reason, &report.note);
        let key = self.recent.hasher().hash_one(key);
        if let Some(sent) = self.recent.get_mut(&key)
            && now.duration_since(sent.used) < REMEMBERED
        {
            let count = sent.count.saturating_add(times);
            let patch = Patch::Merge(json!({"series": series(count, Timestamp::now())}));
            match within(DEADLINE, events.patch(&sent.name, &patch_params(), &patch)).await {
                Ok(_) => {
                    (sent.count, sent.used) = (count, now);
                    return Ok(());
                }
                // Somebody has deleted the Event.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let at = Timestamp::now();
        let mut event = event(about, report, at);
        event.series = (times > 1).then(|| series(times, at));
        within(DEADLINE, events.create(&post_params(), &event)).await?;
        let sent = Sent {
            name: event.metadata.name.unwrap_or_default().into(),
            count: times,
            used: now,
        };
        self.recent.insert(key, sent);
        Ok(())
    }
}

fn event(about: &ObjectReference, report: &Report, now: Timestamp) -> Event {
    let severity = match report.is_problem {
        true => "Warning",
        false => "Normal",
    };
    Event {
        metadata: ObjectMeta {
            namespace: Some(namespace(about).to_owned()),
            name: Some(name(about.name.as_deref().unwrap_or_default(), now)),
            ..ObjectMeta::default()
        },
        type_: Some(severity.to_owned()),
        reason: Some(report.reason.to_owned()),
        note: Some(cut(&report.note, MAX_NOTE).to_owned()),
        action: Some("Reconcile".to_owned()),
        event_time: Some(MicroTime(now)),
        regarding: Some(about.clone()),
        related: report.related.clone(),
        reporting_controller: Some(FIELD_MANAGER.to_owned()),
        reporting_instance: Some(FIELD_MANAGER.to_owned()),
        ..Event::default()
    }
}

/// Returns the namespace of an Event about an object. Kubernetes has those about objects without one in `default`.
fn namespace(about: &ObjectReference) -> &str {
    about.namespace.as_deref().unwrap_or("default")
}

fn series(count: i32, now: Timestamp) -> EventSeries {
    EventSeries {
        count,
        last_observed_time: MicroTime(now),
    }
}

/// Returns the name of an Event: the name of its object, as much of it as fits, and the time.
fn name(object: &str, now: Timestamp) -> String {
    let suffix = format!(".{:x}", now.as_nanosecond());
    let object = cut(object, MAX_NAME - suffix.len());
    // The cut can leave a character at the end that no part of a name may end with.
    format!("{}{suffix}", object.trim_end_matches(['.', '-']))
}

/// Returns the beginning of `text`, as much as fits into `bytes`.
fn cut(text: &str, bytes: usize) -> &str {
    let ends = (0..=bytes.min(text.len())).rev();
    let end = ends.into_iter().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock;
    use bytes::Bytes;
    use http::Method;
    use http::request::Parts;
    use parking_lot::Mutex;
    use pod_reloader_core::name::Name;
    use serde_json::Value;

    /// Returns the Events of an apiserver that stores each created Event and counts each patch.
    async fn published(reports: &[Report], deleted_after: usize) -> Vec<(String, u64)> {
        let stored = Arc::new(Mutex::new(Vec::<(String, String, u64)>::new()));
        let events = stored.clone();
        let client = mock::client(move |head: Parts, body: Bytes| {
            let events = events.clone();
            async move {
                let event: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
                let mut events = events.lock();
                if head.method == Method::POST {
                    let name = text(&event["metadata"]["name"]);
                    events.push((name, text(&event["note"]), 1));
                    return Ok(event);
                }
                let name = head.uri.path().rsplit('/').next();
                let known = events.iter_mut().find(|it| Some(&*it.0) == name);
                let (.., count) = known.ok_or((404, "NotFound"))?;
                *count = event["series"]["count"].as_u64().unwrap();
                Ok(event)
            }
        });
        let mut recorder = Recorder::new(client);
        for (index, report) in reports.iter().enumerate() {
            if index == deleted_after {
                stored.lock().clear();
            }
            recorder
                .publish(&ObjectReference::default(), report, 1)
                .await;
        }
        let stored = stored.lock();
        stored.iter().map(|it| (it.1.clone(), it.2)).collect()
    }

    fn changed(what: &str) -> Report {
        Report {
            reason: "Changed",
            note: format!("{what} changed"),
            is_problem: false,
            related: None,
        }
    }

    #[tokio::test]
    async fn an_event_that_repeats_is_counted_and_one_that_says_something_else_is_not() {
        let reports = ["a", "b", "a", "a"].map(changed);
        let expected = [("a changed", 3), ("b changed", 1)];
        let expected = expected.map(|(note, count)| (note.to_owned(), count));
        assert_eq!(published(&reports, usize::MAX).await, expected);
    }

    #[tokio::test]
    async fn an_event_that_somebody_has_deleted_is_made_again() {
        let reports = ["a"; 3].map(changed);
        let expected = ("a changed".to_owned(), 1);
        assert_eq!(published(&reports, 2).await, [expected]);
    }

    #[tokio::test(start_paused = true)]
    async fn equal_events_of_a_second_are_one_call_and_the_first_one_does_not_wait() {
        struct Call {
            at: Instant,
            method: Method,
            name: String,
            note: String,
            count: Option<u64>,
        }
        let calls = Arc::new(Mutex::new(Vec::<Call>::new()));
        let taken = calls.clone();
        let client = mock::client(move |head: Parts, body: Bytes| {
            let event: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let mut calls = taken.lock();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            // A patch has the name of the Event in its path alone, and no note.
            let (name, note) = match head.method {
                Method::POST => (text(&event["metadata"]["name"]), text(&event["note"])),
                _ => {
                    let name = head.uri.path().rsplit('/').next().unwrap_or_default();
                    let created = calls.iter().find(|call| call.name == name);
                    let note = created.map(|call| call.note.clone());
                    (name.to_owned(), note.unwrap_or_default())
                }
            };
            calls.push(Call {
                at: Instant::now(),
                method: head.method,
                name,
                note,
                count: event["series"]["count"].as_u64(),
            });
            async move { Ok(event) }
        });
        let (events, sending) = Events::new(client);
        tokio::spawn(sending);
        let began = Instant::now();
        let publish = |what: &str| events.publish(ObjectReference::default(), changed(what));
        publish("a");
        tokio::time::sleep(Duration::from_millis(1)).await;
        for _ in 0..8 {
            ["a", "b"].into_iter().for_each(publish);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(BATCH_INTERVAL).await;
        let [first, rest @ ..] = &calls.lock()[..] else {
            panic!("no call");
        };
        assert!(first.at.duration_since(began) < Duration::from_millis(10));
        let rest = rest.iter().map(|call| {
            assert!(call.at.duration_since(first.at) >= BATCH_INTERVAL);
            (call.method.as_str(), &*call.note, call.count)
        });
        let expected = [
            ("PATCH", "a changed", Some(9)),
            ("POST", "b changed", Some(8)),
        ];
        assert_eq!(rest.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_event_of_an_object_with_a_long_name_has_a_name_too() {
        let now = "2026-11-22T08:00:00.123456789Z".parse().unwrap();
        assert_eq!(name("web", now), "web.18ea4f1ff465cd15");
        // The cut can fall on a dot, a dash, or neither.
        let parts = [
            &*"a".repeat(62),
            "-",
            &"b".repeat(62),
            ".",
            &"c".repeat(200),
        ]
        .concat();
        for length in 1..=MAX_NAME {
            let workload = &parts[..length];
            let name = name(workload, now);
            assert!(Name::parse(&name).is_ok(), "{name}");
            let is_whole = name.starts_with(workload);
            assert!(
                is_whole || length > 236 || workload.ends_with(['.', '-']),
                "{name}"
            );
        }
        let dots = ["a".repeat(234), "-b.c".to_owned()].concat();
        assert!(Name::parse(&name(&dots, now)).is_ok());
    }

    #[test]
    fn no_text_of_an_event_is_longer_than_the_apiserver_takes() {
        for character in ["x", "\u{e4}", "\u{1f980}"] {
            let report = changed(&character.repeat(2_000));
            let event = event(&ObjectReference::default(), &report, Timestamp::now());
            let note = event.note.unwrap();
            assert!(note.len() <= MAX_NOTE && note.len() > 800, "{}", note.len());
        }
    }
}
