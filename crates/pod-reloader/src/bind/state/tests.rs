//! The state, in the order in which looks and news may come.

use pod_reloader_core::scope::Scope;
use serde_json::json;

use super::{Memory, State};
use crate::bind::tests::{binding, name, stores};

fn settled() -> Memory {
    Memory {
        is_settled: true,
        outcomes: vec![Ok(())],
        ..Memory::default()
    }
}

fn state() -> State {
    State::new([stores()].into(), Scope::new([], name("operator")))
}

#[test]
fn a_field_that_becomes_its_own_during_a_look_is_looked_at_again() {
    let mut state = state();
    let (older, object) = binding("older", &json!({}));
    state.binding_seen(older.clone(), object);
    let later = json!({"metadata": {"creationTimestamp": "2026-02-01T00:00:00Z"}});
    let (newer, object) = binding("newer", &later);
    state.binding_seen(newer.clone(), object);
    assert!(state.task(&newer).is_none(), "there may be older ones");
    assert_eq!(state.all_listed(None), [newer.clone(), older.clone()]);
    let task = state.task(&newer).unwrap();
    assert_eq!(task.older.len(), 1);
    assert_eq!(state.binding_gone(&older), std::slice::from_ref(&newer));
    state.looked(&task, settled());
    let again = state.task(&newer).unwrap();
    assert!(again.older.is_empty());
    state.looked(&again, settled());
    assert!(state.task(&newer).is_none());
}

#[test]
fn however_many_objects_are_bound_each_kind_is_watched_once() {
    let mut state = state();
    let numbered = |at: usize| {
        let (source, target) = (format!("source-{at}"), format!("target-{at}"));
        let spec = json!({"source": {"name": source}, "target": {"name": target}});
        binding(&format!("binding-{at}"), &json!({"spec": spec}))
    };
    for at in 0..50 {
        let (id, object) = numbered(at);
        state.binding_seen(id, object);
    }
    assert_eq!(state.watches().map(|it| it.len()), Some(2));
    let (id, object) = numbered(0);
    state.binding_seen(id, object);
    let (id, object) = numbered(50);
    state.binding_seen(id, object);
    assert_eq!(state.watches(), None);
}
