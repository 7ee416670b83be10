//! Tests objects of every size, from an apiserver that is a function.

use futures::future::{try_join, try_join_all};
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::ConfigKind;
use serde_json::{Value, json};

use super::*;
use crate::mock;
use crate::reads::{AllReads, Reader};
use crate::runtime::budget::BYTES;

fn without_keys() -> Aspects<'static> {
    const NONE: &DataKeys = &DataKeys::new();
    Aspects {
        keys: Some(NONE),
        ..Aspects::default()
    }
}

#[tokio::test]
async fn objects_of_every_size_are_read() {
    for size in [0, USUAL, LARGE, 4 * LARGE] {
        let source = source(size, &Budget::new());
        let presence = source.read(&reference(0), DataKeys::new()).await.unwrap();
        let text = config_map(size).to_string();
        let expected = ConfigObject::parse(text.as_bytes(), without_keys()).unwrap();
        assert_eq!(presence, Presence::Present(expected), "{size}");
    }
}

#[tokio::test]
async fn large_objects_are_read_one_after_the_other_where_reviews_leave_little_room() {
    let budget = Budget::new();
    let usual = 2 * READS_AT_ONCE * USUAL;
    let mut reviews = budget.share();
    reviews.grow(BYTES - usual - LARGE).unwrap();
    let (webhook, reconcile) = (source(USUAL, &budget), source(USUAL, &budget));
    let references: Vec<_> = (0..2 * READS_AT_ONCE).map(reference).collect();
    let read = |source: &Source| {
        let (source, references) = (source.clone(), references.clone());
        async move { try_join_all(references.iter().map(|it| source.read(it, DataKeys::new()))).await }
    };
    let (one, other) = try_join(read(&webhook), read(&reconcile)).await.unwrap();
    assert_eq!(one.len() + other.len(), 2 * references.len());
}

#[tokio::test]
async fn an_object_for_which_there_is_no_room_is_unknown() {
    let budget = Budget::new();
    let mut reviews = budget.share();
    reviews.grow(BYTES - LARGE).unwrap();
    let error = source(LARGE, &budget)
        .read(&reference(0), DataKeys::new())
        .await
        .unwrap_err();
    assert!(
        chain(&error).contains("there is no memory left"),
        "{error:?}"
    );
    drop(reviews);
    source(LARGE, &budget)
        .read(&reference(0), DataKeys::new())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_list_of_names_whose_items_are_null_is_empty() {
    let null = json!({"metadata": {"resourceVersion": "1"}, "items": null});
    let source = answering(null, &Budget::new());
    let namespace = Name::parse("ns").unwrap();
    for kind in ConfigKind::ALL {
        assert_eq!(source.names(kind, &namespace).await.unwrap(), []);
    }
}

#[tokio::test]
async fn all_names_are_unknown_if_one_cannot_be_read() {
    let items = [config_map(0), json!({"metadata": 7})];
    let source = answering(json!({"metadata": {}, "items": items}), &Budget::new());
    let namespace = Name::parse("ns").unwrap();
    let names = source.names(ConfigKind::ConfigMap, &namespace);
    assert!(chain(&names.await.unwrap_err()).contains("the answer cannot be read"));
}

#[tokio::test]
async fn names_of_objects_with_much_metadata_take_no_memory_from_reviews() {
    let budget = Budget::new();
    let mut reviews = budget.share();
    reviews.grow(BYTES).unwrap();
    let mut object = config_map(0);
    object["metadata"]["annotations"] = json!({"large": "<".repeat(LARGE)});
    let items = vec![object; 4];
    let source = answering(json!({"metadata": {}, "items": items}), &budget);
    let namespace = Name::parse("ns").unwrap();
    let names = source.names(ConfigKind::ConfigMap, &namespace);
    assert_eq!(names.await.unwrap().len(), 4);
}

/// Returns a source that gets `answer` to every call.
fn answering(answer: Value, budget: &Budget) -> Source {
    let client = mock::client(move |_, _| {
        let answer = answer.clone();
        async move { Ok(answer) }
    });
    let reads = AllReads::default().by(Reader::Reconcile);
    let scope = Scope::new([], Name::parse("operator").unwrap());
    Source::new(
        client,
        Duration::from_secs(60),
        budget.clone(),
        &scope,
        reads,
    )
}

/// Returns a source in which each object has a value of `size` bytes.
fn source(size: usize, budget: &Budget) -> Source {
    answering(config_map(size), budget)
}

fn config_map(size: usize) -> Value {
    let metadata = json!({"name": "a", "namespace": "ns", "uid": "1", "resourceVersion": "1"});
    json!({"metadata": metadata, "data": {"key": "x".repeat(size)}})
}

fn reference(number: usize) -> Reference {
    Reference {
        kind: ConfigKind::ConfigMap,
        namespace: Name::parse("ns").unwrap(),
        name: Name::parse(&format!("app-{number}")).unwrap(),
    }
}
