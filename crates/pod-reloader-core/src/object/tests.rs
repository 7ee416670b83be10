use super::*;
use crate::annotations;
use crate::decision::{Cause, Decision, FirstStamp, baseline_by_time, decide};
use crate::fixtures::{hashed_by, holding, keyring, objects};
use crate::kind::CustomResource;
use crate::patch;
use json_patch::Patch;
use serde_json::{Value, json};

#[test]
fn a_review_does_not_hold_managed_fields() {
    let mut built_in = object(json!({"template": {}}), &[]);
    built_in["metadata"]["managedFields"] = json!([{"manager": "kubectl-annotate"}]);
    let raw = RawValue::from_string(built_in.to_string()).unwrap();
    for kind in [WorkloadKind::DEPLOYMENT, rollout()] {
        let reviewed = Reviewed::of(&raw, kind).unwrap();
        assert!(reviewed.metadata().managed_fields.is_none());
    }
    let read: WorkloadObject = serde_json::from_value(built_in).unwrap();
    assert!(read.metadata.managed_fields.is_some());
}

fn kind(resource: Value) -> WorkloadKind {
    let resource: CustomResource = serde_json::from_value(resource).unwrap();
    resource.into_kind().unwrap()
}

fn rollout() -> WorkloadKind {
    kind(json!({
        "group": "argoproj.io", "resource": "rollouts", "kind": "Rollout",
        "podTemplates": ["spec.template"], "restartAt": "spec.restartAt",
    }))
}

fn connect() -> WorkloadKind {
    kind(json!({
        "group": "kafka.strimzi.io", "resource": "kafkaconnects", "kind": "KafkaConnect",
        "podTemplates": ["spec.template.pod"], "makesTemplates": true,
    }))
}

fn cluster() -> WorkloadKind {
    kind(json!({
        "group": "postgresql.cnpg.io", "resource": "clusters", "kind": "Cluster",
        "restartAt": "metadata.annotations[kubectl.kubernetes.io/restartedAt]",
    }))
}

fn object(spec: Value, annotations: &[(&str, &str)]) -> Value {
    let mut all = json!({"pod-reloader.cs.sap.com/configmaps": "a"});
    for (key, value) in annotations {
        all[key] = json!(value);
    }
    json!({
        "apiVersion": "x.io/v1",
        "metadata": {"name": "web", "namespace": "ns", "uid": "1", "generation": 3, "annotations": all},
        "spec": spec,
    })
}

fn workload(kind: WorkloadKind, object: &Value) -> Workload {
    let object: CustomObject = serde_json::from_value(object.clone()).unwrap();
    object
        .into_workload(kind, &Reading::default(), &Inherited::default())
        .unwrap()
}

fn decided(workload: &Workload, value: &str) -> Decision {
    let objects = objects(&[("a", holding(value))]);
    decide(workload, &objects, &keyring(&[1]), FirstStamp::Rollout)
}

fn hash(value: &str) -> String {
    let objects = objects(&[("a", holding(value))]);
    hashed_by(1, &objects)
}

/// Applies a patch without its tests for `null`, which pass at the apiserver.
fn patched(object: &Value, patch: &Patch) -> Value {
    let is_of_null = |it: &json_patch::PatchOperation| matches!(it, json_patch::PatchOperation::Test(test) if test.value.is_null());
    let rest: Vec<_> = patch.iter().filter(|it| !is_of_null(it)).cloned().collect();
    let mut object = object.clone();
    json_patch::patch(&mut object, &rest).unwrap();
    object
}

#[test]
fn a_template_of_a_custom_resource_carries_the_hash() {
    let object = object(
        json!({"template": {"metadata": {}, "spec": {"containers": []}}}),
        &[],
    );
    let patch = patch::stamp(&workload(rollout(), &object), &patch::Stamp::of("new"));
    let after = patched(&object, &patch);
    let template = &after["spec"]["template"];
    assert_eq!(
        template["metadata"]["annotations"][annotations::CONFIG_HASH],
        "new"
    );
    assert_eq!(workload(rollout(), &after).config_hash(), Some("new"));
    assert_eq!(workload(rollout(), &after).api_version(), "x.io/v1");
    assert!(after["spec"]["restartAt"].is_null());
}

#[test]
fn a_missing_template_is_created_if_it_may_consist_of_metadata_only() {
    let bare = object(json!({"replicas": 1}), &[]);
    let patch = patch::stamp(&workload(connect(), &bare), &patch::Stamp::of("new"));
    let after = patched(&bare, &patch);
    let pod = &after["spec"]["template"]["pod"];
    assert_eq!(
        pod,
        &json!({"metadata": {"annotations": {annotations::CONFIG_HASH: "new"}}})
    );
    let refers = object(json!({"workloadRef": {"name": "web"}}), &[]);
    assert!(!workload(rollout(), &refers).can_be_restarted());
    assert_eq!(
        decided(&workload(rollout(), &refers), "1"),
        Decision::Unchanged
    );
}

#[test]
fn a_kind_without_template_is_restarted_by_a_time_once_per_change() {
    let bare = object(json!({}), &[]);
    let first = decided(&workload(cluster(), &bare), "1");
    assert_eq!(first, Decision::Baseline(baseline_by_time(&hash("1"))));
    let baseline = baseline_by_time(&hash("1"));
    let at_rest = object(json!({}), &[(annotations::BASELINE, &baseline)]);
    assert_eq!(
        decided(&workload(cluster(), &at_rest), "1"),
        Decision::Unchanged
    );
    let Decision::Set { config_hash, cause } = decided(&workload(cluster(), &at_rest), "2") else {
        panic!()
    };
    assert_eq!(cause, Cause::Changed);
    let patch = patch::restart_at(
        &workload(cluster(), &at_rest),
        "2026-11-21T12:00:00Z",
        &baseline_by_time(&config_hash),
    );
    let after = patched(&at_rest, &patch);
    let at = &after["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"];
    assert_eq!(at, "2026-11-21T12:00:00Z");
    assert_eq!(
        decided(&workload(cluster(), &after), "2"),
        Decision::Unchanged
    );
}

#[test]
fn another_way_of_restarting_restarts_nothing() {
    let with = |restart: &str, stamp: &str, baseline: &str| {
        let spec =
            json!({"template": {"metadata": {"annotations": {annotations::CONFIG_HASH: stamp}}}});
        let marks = [
            (annotations::RESTART, restart),
            (annotations::BASELINE, baseline),
        ];
        workload(rollout(), &object(spec, &marks))
    };
    let (old, new) = (hash("1"), hash("2"));
    // A baseline from before the first config hash says nothing about times.
    let by_time = with("at", &new, &format!("={old}"));
    assert_eq!(
        decided(&by_time, "2"),
        Decision::Baseline(baseline_by_time(&new))
    );
    let by_template = with("template", &old, &baseline_by_time(&new));
    let baseline = format!("{old}~={new}");
    assert_eq!(
        decided(&by_template, "2"),
        Decision::Baseline(baseline.clone())
    );
    assert_eq!(
        decided(&with("template", &old, &baseline), "2"),
        Decision::Unchanged
    );
    assert!(matches!(decided(&by_template, "3"), Decision::Set { .. }));
}

#[test]
fn a_restart_by_somebody_else_in_between_fails_the_write() {
    let key = "kubectl.kubernetes.io/restartedAt";
    let before = object(json!({}), &[(key, "2026-01-01T00:00:00Z")]);
    let patch = patch::restart_at(&workload(cluster(), &before), "2026-11-21T12:00:00Z", "=x");
    let tests = serde_json::to_value(&patch).unwrap();
    let path = "/metadata/annotations/kubectl.kubernetes.io~1restartedAt";
    let is_tested = tests.as_array().unwrap().iter().any(|it| {
        it["op"] == "test" && it["path"] == path && it["value"] == "2026-01-01T00:00:00Z"
    });
    assert!(is_tested, "{tests}");
}

#[test]
fn a_workload_chooses_how_it_is_restarted_where_its_kind_has_both_ways() {
    let spec = json!({"template": {"metadata": {"annotations": {annotations::CONFIG_HASH: "x"}}}});
    let with = |value| {
        workload(
            rollout(),
            &object(spec.clone(), &[(annotations::RESTART, value)]),
        )
    };
    assert_eq!(with("template").config_hash(), Some("x"));
    assert_eq!(with("at").config_hash(), None);
    assert!(matches!(with("at").restart, Restart::At { .. }));
    let patch = patch::restart_at(&with("at"), "2026-11-21T12:00:00Z", "=y");
    let after = patched(
        &object(spec.clone(), &[(annotations::RESTART, "at")]),
        &patch,
    );
    assert_eq!(after["spec"]["restartAt"], "2026-11-21T12:00:00Z");
    assert_eq!(after["spec"]["template"], spec["template"]);
}

#[test]
fn templates_that_disagree_are_set_to_the_same() {
    let both = kind(json!({
        "group": "x.io", "resource": "xs", "kind": "X",
        "podTemplates": ["spec.one", "spec.two"],
    }));
    let stamped =
        |value: &str| json!({"metadata": {"annotations": {annotations::CONFIG_HASH: value}}});
    let object = object(
        json!({"one": stamped(&hash("1")), "two": {"metadata": {}}}),
        &[],
    );
    let Decision::Set { config_hash, .. } = decided(&workload(both, &object), "1") else {
        panic!()
    };
    let after = patched(
        &object,
        &patch::stamp(&workload(both, &object), &patch::Stamp::of(&config_hash)),
    );
    assert_eq!(decided(&workload(both, &after), "1"), Decision::Unchanged);
    assert_eq!(
        after["spec"]["two"]["metadata"]["annotations"][annotations::CONFIG_HASH],
        hash("1")
    );
}

#[test]
fn what_the_user_has_in_a_template_stays_whatever_it_is() {
    let odd = json!({"annotations": {"scrape": true}, "labels": {"app": "web"}});
    let spec = json!({"template": {"metadata": odd, "spec": {"containers": {}}}});
    let before = object(spec, &[]);
    let patch = patch::stamp(&workload(rollout(), &before), &patch::Stamp::of("new"));
    let after = patched(&before, &patch);
    let metadata = &after["spec"]["template"]["metadata"];
    assert_eq!(metadata["labels"], odd["labels"]);
    assert_eq!(metadata["annotations"]["scrape"], true);
    assert_eq!(workload(rollout(), &after).config_hash(), Some("new"));
}

#[test]
fn a_parent_that_is_not_an_object_is_left_alone() {
    for spec in [
        json!({"template": "none"}),
        json!({"template": {"metadata": []}}),
        json!({"template": {"metadata": {"annotations": "none"}}}),
    ] {
        assert!(
            !workload(rollout(), &object(spec.clone(), &[])).can_be_restarted(),
            "{spec}"
        );
    }
    let text = object(json!({"template": "none"}), &[]);
    assert!(!workload(connect(), &text).can_be_restarted());
}

#[test]
fn an_object_may_be_nested_deeper_than_a_parser_goes() {
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let text = object(json!({"template": {"metadata": {}}, "deep": "DEEP"}), &[]).to_string();
    let text = text.replace("\"DEEP\"", &deep);
    let object: CustomObject = serde_json::from_str(&text).unwrap();
    let workload = object.into_workload(rollout(), &Reading::default(), &Inherited::default());
    assert!(workload.unwrap().can_be_restarted());
}

#[test]
fn templates_with_one_missing_parent_do_not_wipe_each_other() {
    let both = kind(json!({
        "group": "kafka.strimzi.io", "resource": "kafkaconnects", "kind": "KafkaConnect",
        "podTemplates": ["spec.template.pod", "spec.template.buildPod"], "makesTemplates": true,
    }));
    let bare = object(json!({}), &[]);
    let after = patched(
        &bare,
        &patch::stamp(&workload(both, &bare), &patch::Stamp::of("new")),
    );
    for pod in ["pod", "buildPod"] {
        let annotations = &after["spec"]["template"][pod]["metadata"]["annotations"];
        assert_eq!(annotations[annotations::CONFIG_HASH], "new", "{pod}");
    }
}

#[test]
fn what_keeps_pods_from_being_restarted_is_seen() {
    let stall = |spec: Value| {
        let object: WorkloadObject = serde_json::from_value(object(spec.clone(), &[])).unwrap();
        let built_in = object.into_workload(
            WorkloadKind::DEPLOYMENT,
            &Reading::default(),
            &Inherited::default(),
        );
        let custom = workload(rollout(), &self::object(spec, &[])).stall;
        assert_eq!(built_in.unwrap().stall, custom);
        custom
    };
    assert_eq!(
        stall(json!({"template": {}, "paused": true})),
        Some(Stall::Paused)
    );
    let on_delete = json!({"template": {}, "updateStrategy": {"type": "OnDelete"}});
    assert_eq!(stall(on_delete), Some(Stall::OnDelete));
    let rolling =
        json!({"template": {}, "paused": false, "updateStrategy": {"type": "RollingUpdate"}});
    assert_eq!(stall(rolling), None);
}
