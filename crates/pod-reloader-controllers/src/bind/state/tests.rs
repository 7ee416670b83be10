//! The state, in the order in which looks and news may come.

use jiff::Timestamp;
use pod_reloader_core::field_binding::BindingId;
use pod_reloader_core::ready::ready;
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
    assert_eq!(state.all_listed(None, 0), [newer.clone(), older.clone()]);
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
    assert_eq!(state.objects.news().map(|it| it.len()), Some(2));
    let (id, object) = numbered(0);
    state.binding_seen(id, object);
    let (id, object) = numbered(50);
    state.binding_seen(id, object);
    assert_eq!(state.objects.news(), None);
}

#[test]
fn a_binding_that_comes_has_only_younger_ones_looked_at() {
    let mut state = state();
    let of_day = |day: usize| {
        let created = format!("2026-01-{day:02}T00:00:00Z");
        let metadata = json!({"metadata": {"creationTimestamp": created}});
        binding(&format!("of-{day}"), &metadata)
    };
    for day in [3, 1, 2] {
        let (id, object) = of_day(day);
        state.binding_seen(id, object);
    }
    let (id, object) = of_day(9);
    assert_eq!(state.binding_seen(id.clone(), object), [id]);
    let (id, object) = of_day(2);
    let mut changed = object;
    changed.metadata.generation = Some(2);
    let looked_at = state.binding_seen(id.clone(), changed);
    let expected = [of_day(3).0, of_day(9).0, id];
    assert!(expected.iter().all(|it| looked_at.contains(it)));
    assert!(!looked_at.contains(&of_day(1).0), "it is older");
}

#[test]
fn bindings_are_counted_as_their_status_changes() {
    let mut state = state();
    let with = |reason: &str| {
        let since = "2026-01-01T00:00:00Z";
        let ready = json!({"type": "Ready", "status": "False", "reason": reason, "message": "", "lastTransitionTime": since});
        binding("one", &json!({"status": {"conditions": [ready]}}))
    };
    for reason in ["Failed", "Conflict", "Anything"] {
        let (id, object) = with(reason);
        state.binding_seen(id, object);
        let counts = ["Failed", "Conflict", "Anything"].map(|it| state.count(it));
        let expected = ["Failed", "Conflict", ""].map(|it| usize::from(it == reason));
        assert_eq!(counts, expected, "{reason}");
    }
    let (id, object) = with("Failed");
    state.binding_seen(id.clone(), object);
    state.binding_gone(&id);
    assert_eq!(state.count("Failed"), 0);
}

#[test]
fn a_binding_that_does_not_fit_into_its_namespace_says_so_and_the_others_go_on() {
    let mut state = state();
    let path = |at: usize| format!("spec.{}{at:02}", "a".repeat(249));
    let fields = (0..64).map(|at| json!({"key": "k".repeat(253), "path": path(at)}));
    let fields: Vec<_> = fields.collect();
    let large = |namespace: &str, number: usize| {
        let spec = json!({"metadata": {"namespace": namespace}, "spec": {"fields": fields}});
        let (id, object) = binding(&format!("large-{number}"), &spec);
        let namespace = name(namespace);
        (BindingId { namespace, ..id }, object)
    };
    for number in 0..40 {
        let (id, object) = large("ns", number);
        state.binding_seen(id, object);
    }
    let kept = (0..40).filter(|it| state.is_kept(&large("ns", *it).0));
    let kept = kept.count();
    assert!((20..40).contains(&kept), "{kept}");
    let (id, object) = large("ns", 39);
    let change = state.status(&id, Timestamp::now()).unwrap();
    let reason = &ready(&change.after.conditions).unwrap().reason;
    assert_eq!(reason, "NamespaceTooLarge");
    let (other, in_another) = large("other", 0);
    state.binding_seen(other.clone(), in_another);
    assert!(state.is_kept(&other));

    // What was written comes back, and is not written again.
    state.status_written(&id, &change.after);
    let mut told = object;
    told.status = Some(change.after);
    assert_eq!(state.binding_seen(id.clone(), told.clone()), []);
    assert!(!state.has_status(&id));
    state.binding_gone(&large("ns", 0).0);
    state.binding_seen(id.clone(), told);
    assert!(state.is_kept(&id), "there is room by now");
}

#[test]
fn those_without_room_are_counted_by_lists() {
    let mut state = state();
    state.all_listed(None, 9);
    assert_eq!(state.count("NamespaceTooLarge"), 9);
    assert_eq!(state.count("Failed"), 0);
}
