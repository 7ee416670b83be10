//! Tells users about their workloads in Events, beside the work and never in its way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::Patch;
use kube::{Api, Client};
use pod_reloader_core::annotations::FIELD_MANAGER;
use pod_reloader_core::brake::INTERVAL;
use pod_reloader_core::decision::Cause;
use pod_reloader_core::discovery::Requirement;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::references::Rejected;
use pod_reloader_core::workload::{Stall, Workload};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use crate::runtime::client::{DEADLINE, patch_params, post_params, within};
use crate::runtime::error::CallError;

/// How many Events may wait to be sent. More are dropped, with a line in the log.
const BACKLOG: usize = 4096;
/// How long Events wait for the loop to be at rest: restarts come first.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// For how long an Event that repeats is counted again.
const REMEMBERED: Duration = Duration::from_secs(6 * 60);
/// The longest name of an object, in bytes.
const MAX_NAME: usize = 253;
/// The longest text of an Event, in bytes.
const MAX_NOTE: usize = 1024;

/// What there is to tell about one workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Notice {
    /// Its pods are restarted, because these objects changed.
    Restarted(Cause, Vec<Reference>),
    /// They would be, because of these, but something keeps them from it.
    Stalled(Cause, Vec<Reference>, Stall),
    /// Somebody takes back the config hash or the baseline that we write.
    Reverted,
    /// Its pods would be restarted, if we did not only observe.
    WouldRestart(Cause, Vec<Reference>),
    /// Its pods cannot start without these, so no change restarts them.
    Waiting(Vec<Requirement>),
    /// A change waits for so long after the last restart, because there were many of late.
    Braked(Duration),
    /// Items of its lists are no references.
    Rejected(Vec<Rejected>),
    /// A listed object cannot be read.
    Unreadable(Reference, String),
    /// It is a CronJob, and could not be run.
    NotRun(String),
    /// The apiserver refuses our patch.
    Refused(String),
    /// It is not managed: its namespace would take more memory than so many bytes.
    NamespaceTooLarge(usize),
}

impl Notice {
    /// The reason of the Event, which people filter by.
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

    /// The text of the Event.
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

    /// Whether something keeps the workload from what its users want.
    pub(crate) fn is_problem(&self) -> bool {
        !matches!(self, Self::Restarted(..) | Self::WouldRestart(..))
    }

    /// The object that the Event is about, besides the workload.
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

/// A few items in full, the rest as a number: the text of an Event is limited to 1 KiB.
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

/// Where Events are handed in.
#[derive(Clone)]
pub(crate) struct Events {
    sender: mpsc::Sender<(ObjectReference, Notice)>,
    is_busy: Arc<watch::Sender<bool>>,
}

impl Events {
    /// Somewhere to hand in Events, and the task that sends them.
    pub(crate) fn new(client: Client) -> (Self, impl Future<Output = ()>) {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        let (is_busy, busy) = watch::channel(false);
        let is_busy = Arc::new(is_busy);
        (Self { sender, is_busy }, send(client, receiver, busy))
    }

    /// Says whether the loop has something to do that is more urgent than Events.
    pub(crate) fn hold_back(&self, is_busy: bool) {
        self.is_busy.send_if_modified(|was_busy| {
            let is_news = *was_busy != is_busy;
            *was_busy = is_busy;
            is_news
        });
    }

    /// Hands in an Event about `workload`. Never waits.
    pub(crate) fn publish(&self, workload: &Workload, notice: Notice) {
        let about = ObjectReference {
            api_version: Some(workload.api_version().to_owned()),
            kind: Some(workload.id.kind.to_string()),
            namespace: Some(workload.id.namespace.to_string()),
            name: Some(workload.id.name.to_string()),
            uid: Some(workload.uid.to_string()),
            ..ObjectReference::default()
        };
        if self.sender.try_send((about, notice)).is_err() {
            warn!(workload = %workload.id, "dropped an Event: too many wait to be sent");
        }
    }
}

async fn send(
    client: Client,
    mut receiver: mpsc::Receiver<(ObjectReference, Notice)>,
    mut busy: watch::Receiver<bool>,
) {
    let mut recorder = Recorder::new(client);
    let mut patience = MAX_WAIT;
    while let Some((about, notice)) = receiver.recv().await {
        // A loop that does not come to rest has its Events sent beside it until it does.
        patience = match timeout(patience, busy.wait_for(|is_busy| !is_busy)).await {
            Ok(_) => MAX_WAIT,
            Err(_) => Duration::ZERO,
        };
        recorder.publish(&about, &notice).await;
    }
}

/// Sends Events. One that says the same about the same workload as a recent one is counted there; kube's
/// recorder would also count one that says something else, and gives an Event a name that is too long where
/// that of the workload is long.
struct Recorder {
    client: Client,
    /// By UID of the workload, reason and text.
    recent: HashMap<(Option<String>, &'static str, String), (Event, Instant)>,
}

impl Recorder {
    fn new(client: Client) -> Self {
        let recent = HashMap::new();
        Self { client, recent }
    }

    async fn publish(&mut self, about: &ObjectReference, notice: &Notice) {
        if let Err(error) = self.record(about, notice).await {
            // The namespace may be on its way out; the log line of the change itself is there.
            debug!(%error, reason = notice.reason(), "an Event was not taken");
        }
    }

    async fn record(&mut self, about: &ObjectReference, notice: &Notice) -> Result<(), CallError> {
        let now = Instant::now();
        self.recent
            .retain(|_, (_, used)| now.duration_since(*used) < REMEMBERED);
        let namespace = about.namespace.as_deref().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let key = (about.uid.clone(), notice.reason(), notice.note());
        if let Some((event, _)) = self.recent.get(&key) {
            let event = counted_again(event, Timestamp::now());
            let name = event.metadata.name.as_deref().unwrap_or_default();
            let (params, patch) = (patch_params(), Patch::Merge(&event));
            match within(DEADLINE, events.patch(name, &params, &patch)).await {
                Ok(_) => {
                    self.recent.insert(key, (event, now));
                    return Ok(());
                }
                // Somebody has deleted it.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let event = event(about, notice, Timestamp::now());
        within(DEADLINE, events.create(&post_params(), &event)).await?;
        self.recent.insert(key, (event, now));
        Ok(())
    }
}

fn event(about: &ObjectReference, notice: &Notice, now: Timestamp) -> Event {
    let related = notice.related().map(|reference| ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(reference.kind.to_string()),
        namespace: Some(reference.namespace.to_string()),
        name: Some(reference.name.to_string()),
        ..ObjectReference::default()
    });
    let severity = match notice.is_problem() {
        true => "Warning",
        false => "Normal",
    };
    let note = notice.note();
    Event {
        metadata: ObjectMeta {
            namespace: about.namespace.clone(),
            name: Some(name(about.name.as_deref().unwrap_or_default(), now)),
            ..ObjectMeta::default()
        },
        type_: Some(severity.to_owned()),
        reason: Some(notice.reason().to_owned()),
        note: Some(cut(&note, MAX_NOTE).to_owned()),
        action: Some("Reconcile".to_owned()),
        event_time: Some(MicroTime(now)),
        regarding: Some(about.clone()),
        related,
        reporting_controller: Some(FIELD_MANAGER.to_owned()),
        reporting_instance: Some(FIELD_MANAGER.to_owned()),
        ..Event::default()
    }
}

fn counted_again(event: &Event, now: Timestamp) -> Event {
    let count = event.series.as_ref().map_or(1, |series| series.count) + 1;
    Event {
        series: Some(EventSeries {
            count,
            last_observed_time: MicroTime(now),
        }),
        ..event.clone()
    }
}

/// The name of an Event: that of its workload, as far as there is room for it, and the time.
fn name(workload: &str, now: Timestamp) -> String {
    let suffix = format!(".{:x}", now.as_nanosecond());
    let workload = cut(workload, MAX_NAME - suffix.len());
    // What is cut off may leave what no part of a name ends with.
    format!("{}{suffix}", workload.trim_end_matches(['.', '-']))
}

/// The beginning of `text`, as far as it fits into so many bytes.
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
    use pod_reloader_core::reference::ConfigKind;

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

    /// The Events that an apiserver has, which takes what is created and counts what is patched.
    async fn published(notices: &[Notice], deleted_after: usize) -> Vec<(String, u64)> {
        let stored = Arc::new(Mutex::new(Vec::<(String, String, u64)>::new()));
        let events = stored.clone();
        let client = mock::client(move |head: Parts, body: Bytes| {
            let events = events.clone();
            async move {
                let event: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
                let name = text(&event["metadata"]["name"]);
                let mut events = events.lock();
                if head.method == Method::POST {
                    events.push((name, text(&event["note"]), 1));
                    return Ok(event);
                }
                let known = events.iter_mut().find(|(known, ..)| *known == name);
                let (_, note, count) = known.ok_or((404, "NotFound"))?;
                *note = text(&event["note"]);
                *count = event["series"]["count"].as_u64().unwrap();
                Ok(event)
            }
        });
        let mut recorder = Recorder::new(client);
        for (index, notice) in notices.iter().enumerate() {
            if index == deleted_after {
                stored.lock().clear();
            }
            recorder.publish(&ObjectReference::default(), notice).await;
        }
        let stored = stored.lock();
        stored.iter().map(|it| (it.1.clone(), it.2)).collect()
    }

    fn changed(names: &[&str]) -> Notice {
        let changed = names.iter().map(|name| reference(name)).collect();
        Notice::Restarted(Cause::Changed, changed)
    }

    #[tokio::test]
    async fn an_event_that_repeats_is_counted_and_one_that_says_something_else_is_not() {
        let notices = [&["a"][..], &["a", "b"], &["a"], &["a"]].map(changed);
        let expected = [("Secret a", 3), ("Secret a, Secret b", 1)]
            .map(|(what, count)| (format!("restarting pods: {what} changed"), count));
        assert_eq!(published(&notices, usize::MAX).await, expected);
    }

    #[tokio::test]
    async fn an_event_that_somebody_has_deleted_is_made_again() {
        let notices = [&["a"][..], &["a"], &["a"]].map(changed);
        let expected = ("restarting pods: Secret a changed".to_owned(), 1);
        assert_eq!(published(&notices, 2).await, [expected]);
    }

    #[test]
    fn the_event_of_a_workload_with_a_long_name_has_a_name_too() {
        let now = "2026-11-22T08:00:00.123456789Z".parse().unwrap();
        assert_eq!(name("web", now), "web.18ea4f1ff465cd15");
        // Where it is cut there is a dot, a dash, or neither.
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
        let missing = ["\u{e4}".repeat(2_000), "x".repeat(2_000)].map(|key| Requirement {
            reference: reference(&"a".repeat(MAX_NAME)),
            key: Some(key.into()),
        });
        for notice in [
            Notice::Waiting(missing.to_vec()),
            Notice::Refused("\u{1f980}".repeat(500)),
            changed(&[&*"a".repeat(MAX_NAME); 5]),
        ] {
            let event = event(&ObjectReference::default(), &notice, Timestamp::now());
            let note = event.note.unwrap();
            assert!(note.len() <= MAX_NOTE && note.len() > 800, "{}", note.len());
        }
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
}
