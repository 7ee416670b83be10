use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::object::WorkloadObject;
use pod_reloader_core::scope::Scope;
use serde_json::json;

use super::*;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn id(namespace: &str, text: &str) -> WorkloadId {
    WorkloadId {
        kind: WorkloadKind::DEPLOYMENT,
        namespace: name(namespace),
        name: text.into(),
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

/// Returns a memory of one workload, `web`, whose UID was `old`.
fn of_web() -> (Deleted, WorkloadId) {
    let (deleted, web) = (Deleted::default(), id("ns", "web"));
    deleted.note(&web, "old", held());
    (deleted, web)
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_back_if_its_uid_is_another() {
    let (deleted, web) = of_web();
    assert!(deleted.due(&web).is_none());
    assert!(!deleted.is_back(&web, "old"));
    assert!(!deleted.is_back(&id("ns", "api"), "new"));
    let of_another_kind = WorkloadId {
        kind: WorkloadKind::STATEFUL_SET,
        ..web.clone()
    };
    assert!(!deleted.is_back(&of_another_kind, "new"));
    assert!(deleted.is_back(&web, "new"));
    let settings = deleted.due(&web).unwrap();
    deleted.forget(&web, &settings);
    assert!(deleted.due(&web).is_none() && !deleted.is_back(&web, "newer"));
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_comes_back_too_late_gets_nothing() {
    let (deleted, web) = of_web();
    tokio::time::advance(MEMORY - Duration::from_secs(1)).await;
    assert!(deleted.is_back(&web, "new") && deleted.due(&web).is_some());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(deleted.due(&web).is_none());
    deleted.tidy();
    assert!(!deleted.is_back(&web, "new"));
}

#[tokio::test(start_paused = true)]
async fn what_was_put_back_is_not_what_was_deleted_since() {
    let (deleted, web) = of_web();
    assert!(deleted.is_back(&web, "new"));
    let first = deleted.due(&web).unwrap();
    deleted.note(&web, "new", held());
    deleted.forget(&web, &first);
    assert!(deleted.is_back(&web, "newer"));
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_deleted_whenever_it_has_its_settings_gets_them_ten_times() {
    let (deleted, web) = (Deleted::default(), id("ns", "web"));
    for number in 0..MOST_IN_A_ROW {
        assert!(deleted.note(&web, &format!("{number}"), held()), "{number}");
        // It may be deleted before it has them, too.
        assert!(deleted.note(&web, &format!("{number}"), held()), "{number}");
        assert!(deleted.is_back(&web, "new"));
        deleted.put_back(&web, &deleted.due(&web).unwrap());
        assert!(deleted.due(&web).is_none() && !deleted.is_back(&web, "newer"));
        tokio::time::advance(MEMORY - Duration::from_secs(1)).await;
    }
    assert!(!deleted.note(&web, "last", held()));
    assert!(!deleted.is_back(&web, "new"));
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_keeps_its_settings_for_a_while_gets_them_as_often_as_it_comes_back() {
    let (deleted, web) = (Deleted::default(), id("ns", "web"));
    for number in 0..2 * MOST_IN_A_ROW {
        assert!(deleted.note(&web, &format!("{number}"), held()), "{number}");
        assert!(deleted.is_back(&web, "new"));
        deleted.put_back(&web, &deleted.due(&web).unwrap());
        tokio::time::advance(MEMORY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_forgotten_with_all_its_workloads() {
    let (deleted, web) = of_web();
    let other = id("other", "web");
    deleted.note(&other, "old", held());
    deleted.forget_all_in(&web.namespace);
    assert!(!deleted.is_back(&web, "new") && deleted.is_back(&other, "new"));
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_with_pauses() {
    let (deleted, web) = of_web();
    deleted.is_back(&web, "new");
    let settings = deleted.due(&web).unwrap();
    let pauses = [1, 2, 4, 8, 16, 32, 32].map(Duration::from_secs);
    for pause in pauses {
        assert_eq!(deleted.failed(&web, &settings), Instant::now() + pause);
    }
}

#[tokio::test(start_paused = true)]
async fn without_room_the_oldest_of_the_fullest_namespace_goes() {
    let (deleted, web) = of_web();
    for number in 1..=MOST {
        tokio::time::advance(Duration::from_millis(1)).await;
        deleted.note(&id("other", &format!("web-{number}")), "old", held());
    }
    assert!(deleted.is_back(&web, "new"));
    assert!(!deleted.is_back(&id("other", "web-1"), "new"));
    assert!(deleted.is_back(&id("other", "web-2"), "new"));
}
