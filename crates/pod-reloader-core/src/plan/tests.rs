//! What follows from a change, for workloads in every state.

use serde_json::json;

use super::*;
use crate::dialect::Dialect;
use crate::dialects::Dialects;
use crate::digest::{Aspects, ConfigObject};
use crate::fixtures::{Builder, config_map, deployment, holding, keyring, objects, reference};

const CURRENT: SyncStatus = SyncStatus::Current;
const CHANGED: SyncStatus = SyncStatus::Due(Cause::Changed);
const FIRST: SyncStatus = SyncStatus::Due(Cause::FirstStamp);

/// A workload that lists ConfigMap `app`, with a hash of the operator, which nobody else can verify.
fn web() -> Builder {
    deployment("web").lists("app").stamped(&operators_hash())
}

fn operators_hash() -> String {
    let objects = objects(&[("app", holding("1"))]);
    let contents = deployment("web").lists("app").build();
    let hash = keyring(&[7]).hash(&contents.references.contents(&objects));
    hash.to_string()
}

fn app(value: &str) -> Objects {
    objects(&[("app", holding(value))])
}

/// Returns what becomes of a workload, by whether its objects or it itself change.
fn after(
    sync_status: SyncStatus,
    (workload, objects): (Builder, Objects),
    (workload_after, objects_after): (Builder, Objects),
) -> SyncStatus {
    by(
        FirstStamp::Rollout,
        sync_status,
        (workload, objects),
        (workload_after, objects_after),
    )
}

fn by(
    first_stamp: FirstStamp,
    sync_status: SyncStatus,
    (workload, objects): (Builder, Objects),
    (workload_after, objects_after): (Builder, Objects),
) -> SyncStatus {
    let (workload, workload_after) = (workload.build(), workload_after.build());
    let now = State {
        workload: &workload,
        objects: &objects,
    };
    let after = State {
        workload: &workload_after,
        objects: &objects_after,
    };
    sync_status_after(now, sync_status, after, first_stamp)
}

#[test]
fn a_workload_that_is_up_to_date_restarts_if_what_it_tracks_changes() {
    assert_eq!(
        after(CURRENT, (web(), app("1")), (web(), app("1"))),
        CURRENT
    );
    assert_eq!(
        after(CURRENT, (web(), app("1")), (web(), app("2"))),
        CHANGED
    );
    let gone = objects(&[("app", None)]);
    assert_eq!(
        after(CURRENT, (web(), app("1")), (web(), gone.clone())),
        CHANGED
    );
    assert_eq!(after(CURRENT, (web(), gone), (web(), app("1"))), CHANGED);
}

#[test]
fn a_baseline_stands_for_the_present_content_as_a_hash_does() {
    let bearing = |baseline: &str| {
        deployment("web")
            .lists("app")
            .annotation("baseline", baseline)
    };
    let baseline = format!("={}", operators_hash());
    let own = || bearing(&baseline);
    assert_eq!(
        after(CURRENT, (own(), app("1")), (own(), app("1"))),
        CURRENT
    );
    assert_eq!(
        after(CURRENT, (own(), app("1")), (own(), app("2"))),
        CHANGED
    );
    let foreign = || deployment("web").lists("app").stamped("somebody else's");
    let due = SyncStatus::BaselineDue;
    assert_eq!(
        after(due, (foreign(), app("1")), (foreign(), app("1"))),
        CURRENT
    );
    assert_eq!(
        after(due, (foreign(), app("1")), (foreign(), app("2"))),
        CHANGED
    );
}

#[test]
fn an_edit_of_the_annotations_restarts_if_other_objects_are_tracked() {
    let both = objects(&[("app", holding("1")), ("more", holding("1"))]);
    let more = || {
        deployment("web")
            .lists("app,more")
            .stamped(&operators_hash())
    };
    assert_eq!(
        after(CURRENT, (web(), both.clone()), (more(), both.clone())),
        CHANGED
    );
    assert_eq!(
        after(CURRENT, (more(), both.clone()), (more(), both)),
        CURRENT
    );
}

#[test]
fn a_workload_that_opts_in_gets_its_first_hash_or_a_baseline() {
    let plain = || deployment("web");
    let opts_in = || deployment("web").lists("app");
    let not_managed = SyncStatus::NotManaged;
    let opting_in = |first_stamp| {
        by(
            first_stamp,
            not_managed,
            (plain(), app("1")),
            (opts_in(), app("1")),
        )
    };
    assert_eq!(opting_in(FirstStamp::Rollout), FIRST);
    assert_eq!(opting_in(FirstStamp::Baseline), SyncStatus::BaselineDue);
    // A hash that was left behind may stand for this very content.
    let left = || deployment("web").stamped(&operators_hash());
    let unknown = after(not_managed, (left(), app("1")), (web(), app("1")));
    assert_eq!(unknown, SyncStatus::Unknown);
    // Up to date, because it tracked nothing.
    let nothing = || deployment("web").lists("");
    assert_eq!(
        after(CURRENT, (nothing(), app("1")), (opts_in(), app("1"))),
        FIRST
    );
}

#[test]
fn no_workload_restarts_into_a_configuration_that_it_cannot_start_with() {
    let missing = SyncStatus::MissingConfig;
    let needs = || web().requires("app", Some("key"));
    let other = || objects(&[("app", Some(config_map(&json!({"data": {"other": ""}}))))]);
    let gone = || objects(&[("app", None)]);
    for there in [other(), gone()] {
        for now in [CURRENT, CHANGED, missing] {
            assert_eq!(
                after(now, (needs(), app("1")), (needs(), there.clone())),
                missing
            );
        }
    }
    assert_eq!(
        after(missing, (needs(), gone()), (needs(), app("2"))),
        CHANGED
    );
    let new = || deployment("web").lists("app").requires("app", None);
    assert_eq!(after(missing, (new(), gone()), (new(), app("2"))), FIRST);
}

#[test]
fn a_restart_that_is_due_stays_due_and_what_is_unknown_stays_unknown() {
    for status in [CHANGED, FIRST, SyncStatus::Unknown] {
        assert_eq!(after(status, (web(), app("1")), (web(), app("1"))), status);
    }
}

#[test]
fn a_mark_that_an_object_gets_restarts_nothing() {
    let listing = || {
        let web = deployment("web").annotated("configmap.reloader.stakater.com/reload", "app,b");
        let web = web.stamped(&operators_hash());
        web.read_in(Dialects {
            spoken: [Dialect::Stakater].into(),
            ..Dialects::default()
        })
    };
    let ignored = |ignored: bool| {
        let json = json!({
            "metadata": {"uid": "1", "resourceVersion": "1",
                "annotations": {"reloader.stakater.com/ignore": ignored.to_string()}},
            "data": {"key": "1"},
        });
        let object = ConfigObject::parse(json.to_string().as_bytes(), Aspects::default());
        objects(&[("app", object.ok()), ("b", holding("1"))])
    };
    let workload = listing();
    let (now, then) = (ignored(false), ignored(true));
    let state = |objects| State {
        workload: &workload,
        objects,
    };
    let status = sync_status_after(state(&now), CURRENT, state(&then), FirstStamp::Rollout);
    assert_eq!(status, SyncStatus::BaselineDue);
}

#[test]
fn only_tracked_differences_are_named() {
    let two = |a: &str, b: &str| {
        let data = json!({"data": {"a": a, "b": b}});
        objects(&[("app", Some(config_map(&data))), ("other", holding("1"))])
    };
    let keys = |difference: &[Difference]| match difference {
        [
            Difference {
                change: Change::Keys(keys),
                ..
            },
        ] => keys.join(","),
        other => format!("{other:?}"),
    };
    let whole = deployment("web").lists("app").build();
    assert_eq!(
        keys(&differences(&whole, &two("1", "1"), &two("1", "2"))),
        "b"
    );
    assert_eq!(
        keys(&differences(&whole, &two("1", "1"), &two("2", "2"))),
        "a,b"
    );
    let one = deployment("web").lists("app[a]").build();
    assert_eq!(differences(&one, &two("1", "1"), &two("1", "2")), []);
    assert_eq!(
        keys(&differences(&one, &two("1", "1"), &two("2", "2"))),
        "a"
    );
    let absent = objects(&[("app", None)]);
    let created = Difference {
        reference: reference("app"),
        change: Change::Created,
    };
    assert_eq!(differences(&whole, &absent, &app("1")), [created]);
    let deleted = Difference {
        reference: reference("app"),
        change: Change::Deleted,
    };
    assert_eq!(differences(&whole, &app("1"), &absent), [deleted]);
}

#[test]
fn our_annotations_are_no_change_of_the_pod_template() {
    let raw = |web: Builder| serde_json::value::to_raw_value(&web.json()).unwrap();
    let changes = |after: Builder| {
        changes_template(
            WorkloadKind::DEPLOYMENT,
            &raw(deployment("web")),
            &raw(after),
        )
    };
    assert!(!changes(deployment("web")));
    assert!(!changes(deployment("web").stamped("v1.other")));
    assert!(!changes(
        deployment("web")
            .lists("app")
            .with("/spec/replicas", json!(3))
    ));
    assert!(changes(deployment("web").image("new")));
    let no_workload = serde_json::value::to_raw_value("x").unwrap();
    assert!(changes_template(
        WorkloadKind::DEPLOYMENT,
        &no_workload,
        &no_workload
    ));
}
