use serde_json::json;

use super::*;
use crate::fixtures::{self, name};
use crate::kind::WorkloadKind;
use crate::object::WorkloadObject;
use crate::scope::Scope;

fn id(namespace: &str, text: &str) -> WorkloadId {
    WorkloadId {
        namespace: name(namespace),
        ..fixtures::id(text)
    }
}

fn held() -> Lasting {
    let hold = "pod-reloader.cs.sap.com/hold";
    let fields = json!({"f:metadata": {"f:annotations": {(format!("f:{hold}")): {}}}});
    let object: WorkloadObject = serde_json::from_value(json!({
        "metadata": {
            "name": "web",
            "namespace": "ns",
            "annotations": {hold: "true"},
            "managedFields": [{"manager": "kubectl-annotate", "fieldsV1": fields}],
        },
        "spec": {"template": {}},
    }))
    .unwrap();
    Lasting::of(&object, &Scope::new([], name("operator"))).unwrap()
}

/// Returns a memory of one workload, `web`, whose UID was `old`, and the time when it was deleted.
fn of_web() -> (Deleted, WorkloadId, Instant) {
    let (mut deleted, web, now) = (Deleted::default(), id("ns", "web"), Instant::now());
    deleted.note(&web, "old", held(), now);
    (deleted, web, now)
}

#[test]
fn a_workload_is_back_if_its_uid_is_another() {
    let (mut deleted, web, now) = of_web();
    assert!(deleted.due(&web, now).is_none());
    assert!(!deleted.is_back(&web, "old"));
    assert!(!deleted.is_back(&id("ns", "api"), "new"));
    let of_another_kind = WorkloadId {
        kind: WorkloadKind::STATEFUL_SET,
        ..web.clone()
    };
    assert!(!deleted.is_back(&of_another_kind, "new"));
    assert!(deleted.is_back(&web, "new"));
    let settings = deleted.due(&web, now).unwrap();
    deleted.forget(&web, &settings);
    assert!(deleted.due(&web, now).is_none() && !deleted.is_back(&web, "newer"));
}

#[test]
fn a_workload_that_comes_back_too_late_gets_nothing() {
    let (mut deleted, web, mut now) = of_web();
    now += MEMORY - Duration::from_secs(1);
    assert!(deleted.is_back(&web, "new") && deleted.due(&web, now).is_some());
    now += Duration::from_secs(1);
    assert!(deleted.due(&web, now).is_none());
    deleted.tidy(now);
    assert!(!deleted.is_back(&web, "new"));
}

#[test]
fn what_was_put_back_is_not_what_was_deleted_since() {
    let (mut deleted, web, now) = of_web();
    assert!(deleted.is_back(&web, "new"));
    let first = deleted.due(&web, now).unwrap();
    deleted.note(&web, "new", held(), now);
    deleted.forget(&web, &first);
    assert!(deleted.is_back(&web, "newer"));
}

#[test]
fn a_workload_that_is_deleted_whenever_it_has_its_settings_gets_them_ten_times() {
    let (mut deleted, web) = (Deleted::default(), id("ns", "web"));
    let mut now = Instant::now();
    for number in 0..MOST_IN_A_ROW {
        assert!(
            deleted.note(&web, &format!("{number}"), held(), now),
            "{number}"
        );
        // It may be deleted before it has them, too.
        assert!(
            deleted.note(&web, &format!("{number}"), held(), now),
            "{number}"
        );
        // What counts is the time since it had them.
        now += MEMORY - Duration::from_secs(1);
        assert!(deleted.is_back(&web, "new"));
        let settings = deleted.due(&web, now).unwrap();
        deleted.put_back(&web, &settings, now);
        assert!(deleted.due(&web, now).is_none() && !deleted.is_back(&web, "newer"));
        now += MEMORY - Duration::from_secs(1);
    }
    assert!(!deleted.note(&web, "last", held(), now));
    assert!(!deleted.is_back(&web, "new"));
}

#[test]
fn a_workload_that_keeps_its_settings_for_a_while_gets_them_as_often_as_it_comes_back() {
    let (mut deleted, web) = (Deleted::default(), id("ns", "web"));
    let mut now = Instant::now();
    for number in 0..2 * MOST_IN_A_ROW {
        assert!(
            deleted.note(&web, &format!("{number}"), held(), now),
            "{number}"
        );
        assert!(deleted.is_back(&web, "new"));
        let settings = deleted.due(&web, now).unwrap();
        deleted.put_back(&web, &settings, now);
        now += MEMORY;
    }
}

#[test]
fn a_namespace_is_forgotten_with_all_its_workloads() {
    let (mut deleted, web, now) = of_web();
    let other = id("other", "web");
    deleted.note(&other, "old", held(), now);
    deleted.forget_all_in(&web.namespace);
    assert!(!deleted.is_back(&web, "new") && deleted.is_back(&other, "new"));
}

#[test]
fn failures_are_tried_again_with_pauses() {
    let (mut deleted, web, now) = of_web();
    deleted.is_back(&web, "new");
    let settings = deleted.due(&web, now).unwrap();
    let pauses = [1, 2, 4, 8, 16, 32, 32].map(Duration::from_secs);
    for pause in pauses {
        assert_eq!(deleted.failed(&web, &settings, now), now + pause);
    }
}

#[test]
fn without_room_the_oldest_of_the_fullest_namespace_goes() {
    let (mut deleted, web, mut now) = of_web();
    for number in 1..=MOST {
        now += Duration::from_millis(1);
        deleted.note(&id("other", &format!("web-{number}")), "old", held(), now);
    }
    assert!(deleted.is_back(&web, "new"));
    assert!(!deleted.is_back(&id("other", "web-1"), "new"));
    assert!(deleted.is_back(&id("other", "web-2"), "new"));
}
