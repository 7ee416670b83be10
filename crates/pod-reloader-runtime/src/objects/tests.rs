//! Tests answers whose objects are long, or stop arriving.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use serde_json::Value;

use super::*;
use crate::mock;
use crate::objects::cut::Lines;

/// Reads whatever there is.
#[derive(Debug, serde::Deserialize)]
struct Anything(Value);

impl Foreign for Anything {}

async fn lines(budget: &Budget, answer: mock::Chunks) -> Objects<Lines> {
    let answer = std::sync::Arc::new(std::sync::Mutex::new(Some(answer)));
    let client = mock::streaming_client(move |_| {
        let answer = answer.lock().unwrap().take().unwrap();
        async move { (200, answer) }
    });
    let request = http::Request::get("/").body(Vec::new()).unwrap();
    Objects::ask(&client, request, budget, Lines).await.unwrap()
}

fn line(length: usize) -> String {
    "x".repeat(length) + "\n"
}

#[tokio::test]
async fn an_object_that_is_too_long_is_dropped_and_the_next_one_read() {
    let text = line(LONGEST) + &line(LONGEST + 1) + &line(3);
    let parts = text.as_bytes().chunks(1 << 20);
    let parts: Vec<_> = parts.map(|part| Ok(part.to_vec().into())).collect();
    let mut objects = lines(&Budget::new(), stream::iter(parts).boxed()).await;
    assert!(matches!(objects.next().await, Ok(Next::Object(it)) if it.len() == LONGEST));
    assert!(matches!(objects.next().await, Ok(Next::TooLong)));
    assert!(matches!(objects.next().await, Ok(Next::Object(b"xxx"))));
    assert!(matches!(objects.next().await, Ok(Next::End)));
}

#[tokio::test(start_paused = true)]
async fn a_long_object_waits_for_its_turn_and_a_short_one_does_not() {
    let budget = Budget::new();
    let (one, other) = (budget.turn().await, budget.turn().await);
    let text = line(SHORT) + &line(SHORT + 1);
    let mut objects = lines(&budget, mock::open(text)).await;
    assert!(matches!(objects.next().await, Ok(Next::Object(it)) if it.len() == SHORT));
    let waits = tokio::time::timeout(Duration::from_secs(3600), objects.next()).await;
    assert!(waits.is_err(), "{waits:?}");
    drop((one, other));
    let mut objects = lines(&budget, mock::open(line(SHORT + 1))).await;
    assert!(matches!(objects.next().await, Ok(Next::Object(it)) if it.len() == SHORT + 1));
}

#[tokio::test(start_paused = true)]
async fn a_long_object_that_stops_coming_blocks_others_only_for_a_while() {
    let budget = Budget::new();
    let mut objects = lines(&budget, mock::open("x".repeat(SHORT + 1))).await;
    let began = Instant::now();
    let ended = objects.next().await.map(|_| ());
    assert!(
        matches!(ended, Err(CallError::TimedOut(DEADLINE))),
        "{ended:?}"
    );
    assert!(began.elapsed() < DEADLINE * 2);
    drop(objects);
    let _all = (budget.turn().await, budget.turn().await);
}

#[tokio::test(start_paused = true)]
async fn a_watch_in_which_nothing_happens_is_waited_for() {
    let budget = Budget::new();
    let mut objects = lines(&budget, mock::open(line(SHORT + 1))).await;
    assert!(matches!(objects.next().await, Ok(Next::Object(_))));
    let waits = tokio::time::timeout(Duration::from_secs(3600), objects.next()).await;
    assert!(
        waits.is_err(),
        "the long object before it has no turn any more"
    );
    let _all = (budget.turn().await, budget.turn().await);
}

#[tokio::test(start_paused = true)]
async fn one_long_object_waits_for_its_turn_too() {
    let object = format!("[{}1]", "1,".repeat(SHORT));
    let budget = Budget::new();
    let request = || http::Request::get("/").body(Vec::new()).unwrap();
    let client = mock::streaming_client(move |_| {
        let answer = (200, mock::whole(object.clone()));
        async move { answer }
    });
    let turns = (budget.turn().await, budget.turn().await);
    let read = one::<Anything>(&client, request(), &budget);
    let waits = tokio::time::timeout(Duration::from_secs(3600), read).await;
    assert!(waits.is_err(), "{waits:?}");
    drop(turns);
    let read = one::<Anything>(&client, request(), &budget).await.unwrap();
    assert_eq!(read.0.as_array().unwrap().len(), SHORT + 1);
}

#[tokio::test]
async fn a_page_hands_out_each_item_and_ends_with_its_metadata() {
    let list = r#"{"metadata":{"continue":"x"},"items":[{"a":1},7]}"#;
    let client = mock::streaming_client(move |_| async move { (200, mock::whole(list)) });
    let request = http::Request::get("/").body(Vec::new()).unwrap();
    let mut items: Vec<Value> = Vec::new();
    let metadata = page(&client, request, &Budget::new(), |item| {
        let Anything(item) = item.unwrap();
        items.push(item);
    })
    .await;
    assert_eq!(items, [serde_json::json!({"a": 1}), serde_json::json!(7)]);
    assert_eq!(metadata.unwrap().continue_.as_deref(), Some("x"));
}
