//! Sends Events in the background, so that they never delay the work.

mod backlog;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::Patch;
use kube::{Api, Client};
use parking_lot::Mutex;
use pod_reloader_core::annotations::FIELD_MANAGER;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

use self::backlog::{Backlog, Waiting};
use crate::client::{DEADLINE, patch_params, post_params, within};
use crate::error::CallError;

/// The maximum number of different Events that wait to be sent.
const BACKLOG: usize = 4096;
/// The minimum time from one batch to the next. An Event after a pause is sent at once. In a stream of them, equal ones
/// become one call, and the process is woken up less often.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum time that Events wait for an idle loop: restarts come first.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The time during which a repeated Event is counted instead of sent again.
const REMEMBERED: Duration = Duration::from_secs(6 * 60);
/// The maximum number of Events that are remembered to be counted.
const MAX_REMEMBERED: usize = 16_384;
/// The maximum length of an object name, in bytes.
const MAX_NAME: usize = 253;
/// The maximum length of the text of an Event, in bytes.
const MAX_NOTE: usize = 1024;

/// The content of an Event.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The reason, by which people filter.
    pub reason: &'static str,
    /// The text. Only as much of it is sent as the apiserver accepts, which is 1 KiB.
    pub note: String,
    /// True for a Warning.
    pub is_problem: bool,
    /// A second object that the Event is about.
    pub related: Option<ObjectReference>,
}

/// The sending half: hands in Events.
#[derive(Clone)]
pub struct Events {
    outbox: Arc<Outbox>,
    is_busy: Arc<watch::Sender<bool>>,
}

/// The Events that were handed in.
struct Outbox {
    backlog: Mutex<Backlog>,
    /// Notified after each Event that is added to the backlog.
    filled: Notify,
    /// Makes the keys of Events.
    hasher: RandomState,
}

impl Events {
    /// Returns a place to hand in Events, and the task that sends them, for ever.
    pub fn new(client: Client) -> (Self, impl Future<Output = ()>) {
        Self::with_room(BACKLOG, client)
    }

    fn with_room(capacity: usize, client: Client) -> (Self, impl Future<Output = ()>) {
        let outbox = Arc::new(Outbox {
            backlog: Mutex::new(Backlog::new(capacity)),
            filled: Notify::new(),
            hasher: RandomState::new(),
        });
        let (is_busy, busy) = watch::channel(false);
        let sending = send(client, outbox.clone(), busy);
        let is_busy = Arc::new(is_busy);
        (Self { outbox, is_busy }, sending)
    }

    /// Notes whether the loop has more urgent work than Events.
    pub fn hold_back(&self, is_busy: bool) {
        self.is_busy.send_if_modified(|was_busy| {
            let is_news = *was_busy != is_busy;
            *was_busy = is_busy;
            is_news
        });
    }

    /// Hands in an Event about an object. Never waits.
    pub fn publish(&self, about: ObjectReference, report: Report) {
        let Outbox {
            backlog,
            filled,
            hasher,
        } = &*self.outbox;
        let losing = backlog.lock().push(waiting(hasher, about, report));
        if let Some(namespace) = losing {
            warn!(%namespace, "dropping Events of a namespace: too many wait to be sent");
        }
        filled.notify_one();
    }
}

/// Returns an Event that has come once, with as much of its text as the apiserver accepts.
fn waiting(hasher: &RandomState, about: ObjectReference, mut report: Report) -> Waiting {
    report.note = cut(&report.note, MAX_NOTE).to_owned();
    let object = (&about.kind, &about.namespace, &about.name, &about.uid);
    let key = hasher.hash_one((object, report.reason, &report.note));
    Waiting {
        key,
        about,
        report,
        times: 1,
    }
}

async fn send(client: Client, outbox: Arc<Outbox>, mut busy: watch::Receiver<bool>) {
    let mut recorder = Recorder::new(client);
    let mut patience = MAX_WAIT;
    let mut next_batch = Instant::now();
    loop {
        outbox.filled.notified().await;
        sleep_until(next_batch).await;
        let batch = outbox.backlog.lock().len();
        if batch > 0 {
            next_batch = Instant::now() + BATCH_INTERVAL;
        }
        recorder.recent.forget_old();
        for _ in 0..batch {
            // If the loop does not become idle in time, its Events are sent alongside its work until it does.
            patience = match timeout(patience, busy.wait_for(|is_busy| !is_busy)).await {
                Ok(_) => MAX_WAIT,
                Err(_) => Duration::ZERO,
            };
            let Some(next) = outbox.backlog.lock().pop() else {
                break;
            };
            recorder.publish(&next).await;
        }
    }
}

/// Sends Events. If an Event repeats a recent one about the same object, that one is counted up instead.
/// kube's recorder would also count an Event with another text, and its names are too long for objects with
/// long names.
struct Recorder {
    client: Client,
    recent: Recent,
}

/// Recent Events, by their namespaces and keys. A fan-out sends thousands of them.
#[derive(Default)]
struct Recent(HashMap<Box<str>, HashMap<u64, Sent>>);

/// An Event that was sent.
struct Sent {
    /// The time that is part of its name.
    created: Timestamp,
    /// The number of times that it came.
    count: i32,
    /// The last time that it came.
    used: Instant,
}

impl Recent {
    /// Returns the Event with this key, if it is recent enough to be counted up.
    fn get_mut(&mut self, namespace: &str, key: u64) -> Option<&mut Sent> {
        let sent = self.0.get_mut(namespace)?.get_mut(&key);
        sent.filter(|sent| sent.used.elapsed() < REMEMBERED)
    }

    /// Remembers an Event. If there are too many, all those of the namespace with the most are forgotten.
    fn remember(&mut self, namespace: &str, key: u64, sent: Sent) {
        let count: usize = self.0.values().map(HashMap::len).sum();
        if count >= MAX_REMEMBERED {
            let most = self.0.iter().max_by_key(|(_, recent)| recent.len());
            if let Some(most) = most.map(|(namespace, _)| namespace.clone()) {
                self.0.remove(&most);
            }
        }
        let recent = self.0.entry(namespace.into()).or_default();
        recent.insert(key, sent);
    }

    /// Forgets Events that are too old to be counted up.
    fn forget_old(&mut self) {
        self.0.retain(|_, recent| {
            recent.retain(|_, sent| sent.used.elapsed() < REMEMBERED);
            !recent.is_empty()
        });
    }
}

impl Recorder {
    fn new(client: Client) -> Self {
        let recent = Recent::default();
        Self { client, recent }
    }

    async fn publish(&mut self, waiting: &Waiting) {
        if let Err(error) = self.record(waiting).await {
            let reason = waiting.report.reason;
            // The namespace may be terminating. The log line of the change itself has been written.
            debug!(%error, reason, "an Event was not taken");
        }
    }

    async fn record(&mut self, waiting: &Waiting) -> Result<(), CallError> {
        let Waiting {
            key,
            about,
            report,
            times,
        } = waiting;
        let (namespace, now) = (namespace(about), Instant::now());
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Some(sent) = self.recent.get_mut(namespace, *key) {
            let count = sent.count.saturating_add(*times);
            let patch = Patch::Merge(json!({"series": series(count, Timestamp::now())}));
            let name = name(about, sent.created);
            match within(DEADLINE, events.patch(&name, &patch_params(), &patch)).await {
                Ok(_) => {
                    (sent.count, sent.used) = (count, now);
                    return Ok(());
                }
                // Somebody has deleted the Event.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let created = Timestamp::now();
        let mut event = event(about, report, created);
        event.series = (*times > 1).then(|| series(*times, created));
        within(DEADLINE, events.create(&post_params(), &event)).await?;
        let sent = Sent {
            created,
            count: *times,
            used: now,
        };
        self.recent.remember(namespace, *key, sent);
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
            name: Some(name(about, now)),
            ..ObjectMeta::default()
        },
        type_: Some(severity.to_owned()),
        reason: Some(report.reason.to_owned()),
        note: Some(report.note.clone()),
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
fn name(about: &ObjectReference, created: Timestamp) -> String {
    let suffix = format!(".{:x}", created.as_nanosecond());
    let object = about.name.as_deref().unwrap_or_default();
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
        let (mut recorder, hasher) = (Recorder::new(client), RandomState::new());
        for (index, report) in reports.iter().enumerate() {
            if index == deleted_after {
                stored.lock().clear();
            }
            let about = ObjectReference::default();
            recorder
                .publish(&waiting(&hasher, about, report.clone()))
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
        let name = |object: &str| {
            let about = ObjectReference {
                name: Some(object.to_owned()),
                ..ObjectReference::default()
            };
            name(&about, now)
        };
        assert_eq!(name("web"), "web.18ea4f1ff465cd15");
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
            let name = name(workload);
            assert!(Name::parse(&name).is_ok(), "{name}");
            let is_whole = name.starts_with(workload);
            assert!(
                is_whole || length > 236 || workload.ends_with(['.', '-']),
                "{name}"
            );
        }
        let dots = ["a".repeat(234), "-b.c".to_owned()].concat();
        assert!(Name::parse(&name(&dots)).is_ok());
    }

    #[test]
    fn no_text_of_an_event_is_longer_than_the_apiserver_takes() {
        for character in ["x", "\u{e4}", "\u{1f980}"] {
            let report = changed(&character.repeat(2_000));
            let waiting = waiting(&RandomState::new(), ObjectReference::default(), report);
            let kept = waiting.report.note.capacity();
            assert!(kept <= MAX_NOTE, "{kept} while it waits");
            let event = event(&waiting.about, &waiting.report, Timestamp::now());
            let note = event.note.unwrap();
            assert!(note.len() <= MAX_NOTE && note.len() > 800, "{}", note.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_floods_neither_displaces_nor_delays_the_events_of_others() {
        const A_CALL: Duration = Duration::from_millis(10);
        let calls = Arc::new(Mutex::new(Vec::<String>::new()));
        let taken = calls.clone();
        let client = mock::client(move |head: Parts, body: Bytes| {
            // The path is /apis/events.k8s.io/v1/namespaces/NAMESPACE/events.
            let namespace = head.uri.path().split('/').nth(5).unwrap_or_default();
            taken.lock().push(namespace.to_owned());
            let event: Value = serde_json::from_slice(&body).unwrap();
            async move {
                tokio::time::sleep(A_CALL).await;
                Ok(event)
            }
        });
        let (events, sending) = Events::with_room(100, client);
        tokio::spawn(sending);
        let publish = |namespace: &str, what: &str| {
            let about = ObjectReference {
                namespace: Some(namespace.to_owned()),
                ..ObjectReference::default()
            };
            events.publish(about, changed(what));
        };
        for number in 0..1_000 {
            publish("eve", &number.to_string());
        }
        for number in 0..40 {
            publish(&format!("team-{number}"), "a");
        }
        // It is in the middle of the Events of eve.
        tokio::time::sleep(A_CALL * 60).await;
        let before = calls.lock().len();
        publish("late", "a");
        tokio::time::sleep(A_CALL * 1_000).await;
        let calls = calls.lock();
        let of = |namespace: &str| calls.iter().filter(|it| *it == namespace).count();
        assert_eq!((of("eve"), of("late"), calls.len()), (60, 1, 101));
        let others = |call: &String| call.starts_with("team-");
        assert!(
            !others(&calls[0]) && calls[1..=40].iter().all(others),
            "{calls:?}"
        );
        let late = calls.iter().position(|it| it == "late").unwrap();
        assert!(
            (before..before + 2).contains(&late),
            "{late} after {before}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_floods_leaves_what_is_remembered_of_others() {
        let sent = || Sent {
            created: Timestamp::UNIX_EPOCH,
            count: 1,
            used: Instant::now(),
        };
        let mut recent = Recent::default();
        for namespace in ["a", "b"] {
            recent.remember(namespace, 0, sent());
        }
        for key in 0..2 * MAX_REMEMBERED as u64 {
            recent.remember("eve", key, sent());
        }
        assert!(
            ["a", "b"]
                .into_iter()
                .all(|it| recent.get_mut(it, 0).is_some())
        );
        let count = |recent: &Recent| recent.0.values().map(HashMap::len).sum::<usize>();
        assert!(count(&recent) <= MAX_REMEMBERED, "{}", count(&recent));
        tokio::time::advance(REMEMBERED).await;
        assert!(recent.get_mut("a", 0).is_none());
        recent.forget_old();
        assert!(recent.0.is_empty());
    }
}
