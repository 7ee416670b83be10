//! A StatefulSet of three pods: the last one has got a bad configuration, which was corrected since.

use serde_json::{Value, json};

use super::*;
use crate::annotations::Inherited;
use crate::dialects::Dialects;
use crate::kind::WorkloadKind;
use crate::object::{Object, WorkloadObject};
use crate::workload::Reading;

/// A StatefulSet and its pods.
struct Case {
    set: Value,
    pods: Vec<Value>,
}

fn pod(ordinal: i64, revision: &str, ready: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("db-{ordinal}"),
            "uid": format!("pod-{ordinal}"),
            "resourceVersion": "5",
            "labels": {"controller-revision-hash": revision},
            "annotations": {CONFIG_HASH: format!("hash of {revision}")},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "set", "controller": true}],
        },
        "status": {
            "startTime": "2026-11-23T12:00:00Z",
            "conditions": [
                {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-11-23T12:00:30Z"},
                {"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-23T12:00:01Z"},
            ],
        },
    })
}

impl Case {
    fn new() -> Self {
        Self {
            set: json!({
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "metadata": {"name": "db", "namespace": "ns", "uid": "set", "generation": 3},
                "spec": {
                    "replicas": 3,
                    "podManagementPolicy": "OrderedReady",
                    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                    "selector": {"matchLabels": {"app": "db", "tier": "x"}},
                    "template": {
                        "metadata": {"annotations": {CONFIG_HASH: "hash of good"}},
                        "spec": {"containers": []},
                    },
                },
                "status": {"observedGeneration": 3, "currentRevision": "old", "updateRevision": "good"},
            }),
            pods: vec![
                pod(0, "old", "True"),
                pod(1, "old", "True"),
                pod(2, "bad", "False"),
            ],
        }
    }

    /// The last complete revision has pods with these Ready conditions. None of the corrected one has come up.
    fn of_the_first_revision(ready: &[&str]) -> Self {
        let pods = (0..).zip(ready.iter());
        Self {
            pods: pods.map(|(at, ready)| pod(at, "old", ready)).collect(),
            ..Self::new()
        }
    }

    fn set(mut self, pointer: &str, value: Value) -> Self {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        self.set.pointer_mut(parent).unwrap()[field] = value;
        self
    }

    fn pod(mut self, ordinal: usize, pod: Value) -> Self {
        self.pods[ordinal] = pod;
        self
    }

    fn pod_has(mut self, ordinal: usize, pointer: &str, value: Value) -> Self {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        self.pods[ordinal].pointer_mut(parent).unwrap()[field] = value;
        self
    }

    fn stuck(self) -> Option<String> {
        let object: WorkloadObject = serde_json::from_value(self.set.clone()).unwrap();
        let reading = Reading::new(Dialects::default(), []);
        let workload =
            object.into_workload(WorkloadKind::STATEFUL_SET, &reading, &Inherited::default());
        let set: StatefulSet = serde_json::from_value(self.set).unwrap();
        assert_eq!(set.pod_labels(), "app=db,tier=x");
        let pods = self
            .pods
            .into_iter()
            .map(|it| serde_json::from_value(it).unwrap());
        let pods: Vec<SetPod> = pods.collect();
        stuck_pod(&workload.unwrap(), &set, &pods).map(|pod| pod.name().to_owned())
    }
}

#[test]
fn a_pod_that_is_not_ready_with_a_rejected_revision_is_stuck() {
    assert_eq!(Case::new().stuck().as_deref(), Some("db-2"));
    // It may have been ready for a while: the rollout of its revision was never completed.
    let late = Case::new().pod_has(
        2,
        "/status/conditions/1/lastTransitionTime",
        json!("2026-11-23T13:00:00Z"),
    );
    assert_eq!(late.stuck().as_deref(), Some("db-2"));
    let unscheduled = Case::new().pod_has(2, "/status", json!({}));
    assert_eq!(unscheduled.stuck().as_deref(), Some("db-2"));
}

#[test]
fn a_ready_pod_is_never_stuck() {
    assert_eq!(Case::new().pod(2, pod(2, "bad", "True")).stuck(), None);
}

#[test]
fn a_pod_of_the_present_revision_is_not_stuck_and_neither_is_any_behind_it() {
    assert_eq!(Case::new().pod(2, pod(2, "good", "False")).stuck(), None);
    assert_eq!(Case::new().pod(1, pod(1, "good", "False")).stuck(), None);
}

#[test]
fn a_pod_that_has_run_well_and_is_not_ready_for_a_moment_is_not_stuck() {
    let first = Case::of_the_first_revision(&["False"]);
    let ran_well = first.pod_has(
        0,
        "/status/conditions/1/lastTransitionTime",
        json!("2026-11-23T13:00:00Z"),
    );
    assert_eq!(ran_well.stuck(), None);
}

#[test]
fn a_pod_of_the_first_revision_is_stuck_if_none_has_ever_become_ready() {
    let first = Case::of_the_first_revision;
    assert_eq!(first(&["False"]).stuck().as_deref(), Some("db-0"));
    let both = first(&["False", "False"]);
    assert_eq!(both.stuck().as_deref(), Some("db-0"));
}

#[test]
fn a_pod_that_takes_long_with_a_revision_that_works_is_not_stuck() {
    // A drain has moved it, and it recovers for longer than usual.
    let first = Case::of_the_first_revision;
    for ready in [["False", "True"], ["True", "False"]] {
        assert_eq!(first(&ready).stuck(), None, "{ready:?}");
    }
    let moved = Case::new().pod(1, pod(1, "old", "False"));
    assert_eq!(moved.stuck(), None);
    // The pod of another StatefulSet proves nothing.
    let other = first(&["False", "True"]);
    let other = other.pod_has(1, "/metadata/ownerReferences/0/uid", json!("other"));
    assert_eq!(other.stuck().as_deref(), Some("db-0"));
}

#[test]
fn the_first_of_several_is_deleted_first() {
    let both = Case::new().pod(1, pod(1, "bad", "Unknown"));
    assert_eq!(both.stuck().as_deref(), Some("db-1"));
}

#[test]
fn nothing_is_deleted_while_another_pod_goes() {
    let going = Case::new().pod_has(
        0,
        "/metadata/deletionTimestamp",
        json!("2026-11-23T12:00:00Z"),
    );
    assert_eq!(going.stuck(), None);
}

#[test]
fn pods_that_are_to_keep_their_revision_stay() {
    let case = Case::new;
    for (pointer, value) in [
        ("/spec/updateStrategy/type", json!("OnDelete")),
        ("/spec/updateStrategy/rollingUpdate/partition", json!(3)),
        // All pods of these are replaced in any case.
        ("/spec/podManagementPolicy", json!("Parallel")),
        ("/spec/replicas", json!(2)),
    ] {
        assert_eq!(case().set(pointer, value).stuck(), None, "{pointer}");
    }
    let partition = |at: i64| {
        let case = case().set("/spec/updateStrategy/rollingUpdate/partition", json!(at));
        case.stuck().is_some()
    };
    assert_eq!([1, 2, 3].map(partition), [true, true, false]);
    let shifted = case().set("/spec/ordinals", json!({"start": 1}));
    let shifted = shifted.set("/spec/updateStrategy/rollingUpdate/partition", json!(2));
    assert_eq!(shifted.stuck(), None);
}

#[test]
fn a_pod_whose_config_is_the_present_one_is_not_ours_to_delete() {
    for hash in [json!("hash of good"), Value::Null] {
        let annotations = match hash {
            Value::Null => json!({}),
            hash => json!({CONFIG_HASH: hash}),
        };
        let case = Case::new().pod_has(2, "/metadata/annotations", annotations);
        assert_eq!(case.stuck(), None);
    }
    let other_owner = Case::new().pod_has(2, "/metadata/ownerReferences/0/uid", json!("other"));
    assert_eq!(other_owner.stuck(), None);
}

#[test]
fn a_template_that_its_controller_has_not_seen_proves_nothing() {
    assert_eq!(
        Case::new()
            .set("/status/observedGeneration", json!(2))
            .stuck(),
        None
    );
    assert_eq!(Case::new().set("/status", json!({})).stuck(), None);
}
