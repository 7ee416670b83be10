//! Tests lists and watches that fail in every way, against an apiserver that is a function.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures::stream::{self, StreamExt};
use pod_reloader_core::revision::CopyMetadata;
use serde_json::{Value, json};

use super::*;
use crate::budget::LONGEST;
use crate::mock::{self, Chunks};

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_too_old_is_listed_again_at_once() {
    let expired = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    let event = json!({"type": "ERROR", "object": expired});
    for watch in [
        (200, mock::open(format!("{event}\n"))),
        (200, mock::open(format!("{expired}\n"))),
        (410, mock::whole(expired.to_string())),
    ] {
        let apiserver = Apiserver::new([list(&["a"]), list(&["b"])], [watch]);
        apiserver.followed(HOUR).await;
        let lists = apiserver.times("limit=500");
        assert_eq!(lists.len(), 2);
        assert_eq!(lists[1] - lists[0], Duration::ZERO);
        assert_eq!(apiserver.events(), "init +a done init +b done");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_always_too_old_is_listed_with_pauses() {
    let expired = || (410, mock::whole(r#"{"code":410}"#));
    let apiserver = Apiserver::new([], std::iter::repeat_with(expired).take(5));
    apiserver.followed(HOUR).await;
    let lists = apiserver.times("limit=500");
    assert_eq!(lists.len(), 6);
    let time = lists[5] - lists[0];
    assert!(time >= Duration::from_secs(5), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn half_a_list_is_no_list() {
    let page = |name| {
        (
            200,
            mock::whole(list_of(&[config_map(name)], "next").to_string()),
        )
    };
    let half = list_of(&[config_map("c")], "").to_string();
    let half = (200, mock::broken(half[..half.len() - 1].to_owned()));
    let expired = (410, mock::whole(r#"{"code":410}"#));
    let no_version = json!({"metadata": {}, "items": []}).to_string();
    let no_version = (200, mock::whole(no_version));
    let no_list = (200, mock::whole("sorry"));
    let lists = [
        page("a"),
        expired,
        page("b"),
        half,
        no_version,
        no_list,
        page("d"),
        list(&["e"]),
    ];
    let apiserver = Apiserver::new(lists, []);
    apiserver.followed(HOUR).await;
    assert_eq!(
        apiserver.events(),
        "init +a init +b +c init init init +d +e done"
    );
    let complete = apiserver.0.lock().unwrap().complete.clone();
    assert_eq!(complete, [["d", "e"]]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_tried_again_with_pauses_that_grow() {
    let failing = || (503, mock::whole(""));
    let apiserver = Apiserver::new(std::iter::repeat_with(failing).take(6), []);
    apiserver.followed(HOUR).await;
    let lists = apiserver.times("limit=500");
    assert_eq!(lists.len(), 7);
    let pauses: Vec<_> = lists.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[5] > pauses[0] * 4, "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn pages_that_break_off_become_smaller_until_a_list_is_whole() {
    let half = list_of(&[config_map("a")], "").to_string();
    let half = || (200, mock::broken(half[..half.len() - 1].to_owned()));
    let slow = (
        200,
        mock::open(r#"{"metadata":{},"items":[{"metadata":{}},"#),
    );
    let refused = (503, mock::whole(""));
    let expired = (410, mock::whole(""));
    let lists = [half(), slow, refused, half(), list(&[]), list(&[])];
    let apiserver = Apiserver::new(lists, [expired]);
    apiserver.followed(HOUR).await;
    let limits: Vec<_> = [500, 250, 125, 62]
        .map(|limit| apiserver.times(&format!("limit={limit}&")).len())
        .into();
    // A refused list says nothing about its length.
    assert_eq!(limits, [2, 1, 2, 1], "{:?}", apiserver.calls());
}

#[tokio::test(start_paused = true)]
async fn pages_that_come_quickly_become_larger_and_slow_ones_do_not() {
    let page = || list_of(&[config_map("a")], "next").to_string();
    let quick = || (200, mock::whole(page()));
    let slow = || {
        let answer = page();
        let answer = stream::once(async {
            tokio::time::sleep(QUICK_PAGE).await;
            Ok(answer.into())
        });
        (200, answer.boxed())
    };
    let limits = async |lists: Vec<(u16, Chunks)>| {
        let apiserver = Apiserver::new(lists.into_iter().chain([list(&["b"])]), []);
        apiserver.followed(HOUR).await;
        [500, 1_000, 2_000].map(|limit| apiserver.times(&format!("limit={limit}&")).len())
    };
    let quick = std::iter::repeat_with(quick).take(5).collect();
    assert_eq!(limits(quick).await, [1, 1, 4]);
    let slow = std::iter::repeat_with(slow).take(5).collect();
    assert_eq!(limits(slow).await, [6, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_items_are_null_is_empty() {
    let null = json!({"metadata": {"resourceVersion": "1"}, "items": null});
    let apiserver = Apiserver::new([(200, mock::whole(null.to_string()))], []);
    apiserver.followed(HOUR).await;
    assert_eq!(apiserver.events(), "init done");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_left_out_of_its_list() {
    let mut long = config_map("long");
    long["data"] = json!({"key": "x".repeat(LONGEST)});
    let items = [
        config_map("a"),
        json!({"metadata": 7}),
        json!(null),
        long,
        config_map("b"),
    ];
    let list = list_of(&items, "").to_string();
    let apiserver = Apiserver::new([(200, mock::whole(list))], []);
    apiserver.followed(HOUR).await;
    assert_eq!(apiserver.events(), "init +a +b done");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_used_is_left_out_of_its_watch() {
    let no_version = json!({"type": "ADDED", "object": {"metadata": {"name": "x"}}});
    let failure = json!({"type": "ERROR", "object": {"code": 500, "message": "no"}});
    let long = json!({"type": "ADDED", "object": {"x": "x".repeat(LONGEST)}});
    let lines = [
        event("ADDED", "a", "3").to_string(),
        "sorry".to_owned(),
        r#"{"type":"ADDED","object":{"metadata":7}}"#.to_owned(),
        no_version.to_string(),
        failure.to_string(),
        long.to_string(),
        String::new(),
        event("DELETED", "a", "4").to_string(),
    ];
    let watch = (200, mock::whole(lines.map(|line| line + "\n").concat()));
    let apiserver = Apiserver::new([], [watch]);
    apiserver.followed(HOUR).await;
    assert_eq!(apiserver.events(), "init done a -a");
    assert_eq!(apiserver.times("resourceVersion=4").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_what_it_saw_last() {
    let seen = |lines: &[Value]| {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        lines
    };
    let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}}});
    let half = event("MODIFIED", "b", "10").to_string();
    let watches = [
        (200, mock::broken(seen(&[event("ADDED", "a", "5")]))),
        (
            200,
            mock::whole(seen(&[event("MODIFIED", "a", "6"), bookmark])),
        ),
        (500, mock::whole("")),
        (200, mock::whole(half[..half.len() - 1].to_owned())),
        (200, mock::open(half + "\n")),
    ];
    let apiserver = Apiserver::new([list(&[])], watches);
    apiserver.followed(HOUR).await;
    assert_eq!(apiserver.events(), "init done a a b");
    let versions = ["1", "5", "9"].map(|version| {
        let from = format!(
            "watch=true&timeoutSeconds=60&allowWatchBookmarks=true&resourceVersion={version}"
        );
        apiserver
            .calls()
            .iter()
            .filter(|call| call.ends_with(&from))
            .count()
    });
    assert_eq!(versions, [1, 1, 3], "{:?}", apiserver.calls());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_is_no_reason_to_spin() {
    let ends = || (200, mock::whole(""));
    let apiserver = Apiserver::new([], std::iter::repeat_with(ends).take(1000));
    apiserver.followed(Duration::from_secs(60)).await;
    let watches = apiserver.times("watch=true").len();
    assert!(watches < 20, "{watches}");
}

/// Answers lists and watches of ConfigMaps as scripted. After that, lists are empty and watches silent.
#[derive(Clone, Default)]
struct Apiserver(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lists: VecDeque<(u16, Chunks)>,
    watches: VecDeque<(u16, Chunks)>,
    calls: Vec<(Instant, String)>,
    events: Vec<String>,
    /// What was collected of each complete list.
    complete: Vec<Vec<String>>,
}

impl Apiserver {
    fn new(
        lists: impl IntoIterator<Item = (u16, Chunks)>,
        watches: impl IntoIterator<Item = (u16, Chunks)>,
    ) -> Self {
        Self(Arc::new(Mutex::new(State {
            lists: lists.into_iter().collect(),
            watches: watches.into_iter().collect(),
            ..State::default()
        })))
    }

    /// Follows the ConfigMaps for that long.
    async fn followed(&self, time: Duration) {
        let this = self.clone();
        let client = mock::streaming_client(move |request| {
            let mut state = this.0.lock().unwrap();
            let uri = request.uri.to_string();
            let answer = match uri.contains("watch=true") {
                true => state.watches.pop_front().unwrap_or((200, mock::open(""))),
                false => state.lists.pop_front().unwrap_or(list(&[])),
            };
            state.calls.push((Instant::now(), uri));
            async move { answer }
        });
        let api: Api<CopyMetadata> = Api::all(client);
        let resources = Resources::new(api, "ConfigMap", &Budget::new());
        let following = resources.follow(Watches::default(), self.clone());
        assert!(tokio::time::timeout(time, following).await.is_err());
    }

    fn note(&self, event: String) {
        self.0.lock().unwrap().events.push(event);
    }

    fn events(&self) -> String {
        self.0.lock().unwrap().events.join(" ")
    }

    fn calls(&self) -> Vec<String> {
        let state = self.0.lock().unwrap();
        state.calls.iter().map(|(_, call)| call.clone()).collect()
    }

    /// Returns the times of the calls that contain `part`.
    fn times(&self, part: &str) -> Vec<Instant> {
        let state = self.0.lock().unwrap();
        let calls = state.calls.iter();
        let calls = calls.filter(|(_, call)| format!("{call}&").contains(part));
        calls.map(|(at, _)| *at).collect()
    }
}

impl Follower<CopyMetadata> for Apiserver {
    type Noted = String;
    type List = Vec<String>;

    fn listing(&mut self) {
        self.note("init".to_owned());
    }

    fn listed(&mut self, object: CopyMetadata) -> Option<String> {
        self.note(format!("+{}", name(&object)));
        Some(name(&object))
    }

    fn all_listed(&mut self, list: Vec<String>) {
        self.note("done".to_owned());
        self.0.lock().unwrap().complete.push(list);
    }

    fn seen(&mut self, object: CopyMetadata) {
        self.note(name(&object));
    }

    fn gone(&mut self, object: CopyMetadata) {
        self.note(format!("-{}", name(&object)));
    }
}

fn name(object: &CopyMetadata) -> String {
    object.meta().name.clone().unwrap_or_default()
}

fn list(names: &[&str]) -> (u16, Chunks) {
    let items: Vec<_> = names.iter().map(|name| config_map(name)).collect();
    (200, mock::whole(list_of(&items, "").to_string()))
}

fn list_of(items: &[Value], token: &str) -> Value {
    json!({"metadata": {"resourceVersion": "1", "continue": token}, "items": items})
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": "1"}})
}

fn event(what: &str, name: &str, version: &str) -> Value {
    json!({"type": what, "object": {"metadata": {"name": name, "resourceVersion": version}}})
}

const HOUR: Duration = Duration::from_secs(3600);
