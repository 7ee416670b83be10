use serde_json::{Value, json};

use super::*;
use crate::annotations::Inherited;
use crate::dialects::Dialects;
use crate::fixtures::deployment;
use crate::object::{Object, WorkloadObject};
use crate::workload::{Reading, Workload};

fn read(kind: WorkloadKind, object: &Value) -> Workload {
    let object: WorkloadObject = serde_json::from_value(object.clone()).unwrap();
    let mut reading = Reading::new(Dialects::default(), []);
    reading.staging.staged = Staged::ConfigMaps;
    object
        .into_workload(kind, &reading, &Inherited::default())
        .unwrap()
}

fn health(kind: WorkloadKind, spec: &Value, status: &Value) -> Health {
    let mut spec = spec.clone();
    spec["template"] = json!({"spec": {"containers": []}});
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "generation": 7},
        "spec": spec,
        "status": status,
    });
    read(kind, &object).staging.unwrap().health
}

#[test]
fn a_deployment_is_healthy_when_all_pods_are_updated_and_available() {
    let of = |replicas: Value, status: Value| {
        let spec = json!({"replicas": replicas});
        health(WorkloadKind::DEPLOYMENT, &spec, &status)
    };
    let all = json!({"observedGeneration": 7, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
    assert_eq!(of(json!(2), all.clone()), Health::Healthy);
    for (field, value) in [
        ("observedGeneration", 6),
        ("replicas", 3),
        ("updatedReplicas", 1),
        ("availableReplicas", 1),
    ] {
        let mut status = all.clone();
        status[field] = json!(value);
        assert_eq!(of(json!(2), status), Health::Rolling, "{field}");
    }
    assert_eq!(of(json!(2), json!(null)), Health::Rolling);
    assert_eq!(
        of(json!(0), json!({"observedGeneration": 7})),
        Health::Unknown
    );
    let mut crashed = all;
    crashed["availableReplicas"] = json!(1);
    crashed["conditions"] = json!([
        {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
    ]);
    assert_eq!(of(json!(2), crashed), Health::Unavailable);
    let one = json!({"observedGeneration": 7, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1});
    assert_eq!(of(json!(null), one), Health::Healthy, "one is the default");
}

#[test]
fn a_stateful_set_keeps_the_pods_below_its_partition() {
    let of = |partition: i64, updated: i64| {
        let spec = json!({
            "replicas": 3,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}},
        });
        let status = json!({
            "observedGeneration": 7, "replicas": 3, "updatedReplicas": updated, "availableReplicas": 3,
        });
        health(WorkloadKind::STATEFUL_SET, &spec, &status)
    };
    assert_eq!(of(0, 3), Health::Healthy);
    assert_eq!(of(0, 2), Health::Rolling);
    assert_eq!(of(1, 2), Health::Healthy);
    assert_eq!(of(1, 1), Health::Rolling);
    assert_eq!(of(9, 0), Health::Unknown, "it keeps all its pods");
}

#[test]
fn a_daemon_set_is_healthy_when_every_node_has_an_available_pod() {
    let of = |status: Value| health(WorkloadKind::DAEMON_SET, &json!({}), &status);
    let status = |updated, available| {
        json!({
            "observedGeneration": 7, "desiredNumberScheduled": 2,
            "updatedNumberScheduled": updated, "numberAvailable": available,
        })
    };
    assert_eq!(of(status(2, 2)), Health::Healthy);
    assert_eq!(of(status(1, 2)), Health::Rolling);
    assert_eq!(of(status(2, 1)), Health::Unavailable);
    assert_eq!(of(json!({"observedGeneration": 7})), Health::Unknown);
    assert_eq!(of(json!({"observedGeneration": 6})), Health::Rolling);
}

#[test]
fn annotations_take_precedence_over_the_operators_settings() {
    let staging = |annotations: &[(&str, &str)], spec: Value| {
        let mut object = json!({
            "metadata": {"name": "web", "namespace": "shop", "annotations": {}},
            "spec": spec,
        });
        for (key, value) in annotations {
            object["metadata"]["annotations"][*key] = json!(value);
        }
        object["spec"]["template"] = json!({"spec": {"containers": []}});
        read(WorkloadKind::DEPLOYMENT, &object).staging
    };
    let usual = staging(&[], json!({})).unwrap();
    assert_eq!(usual.staged, Staged::ConfigMaps);
    assert_eq!(usual.stage, DEFAULT_STAGE);
    assert_eq!(usual.soak, Duration::from_secs(30));
    assert_eq!(usual.deadline, Duration::from_secs(600));
    assert_eq!(staging(&[(STAGED, "none")], json!({})), None);

    let own = [
        (STAGED, "all"),
        (STAGE, "-2"),
        (SOAK, "0s"),
        (DEADLINE, "5h"),
    ];
    let own = staging(&own, json!({"progressDeadlineSeconds": 60})).unwrap();
    assert_eq!(own.staged, Staged::Everything);
    assert_eq!((own.stage, own.soak), (-2, Duration::ZERO));
    assert_eq!(own.deadline, MAX_SETTLE_PERIOD);
    let by_kubernetes = staging(&[], json!({"progressDeadlineSeconds": 60})).unwrap();
    assert_eq!(by_kubernetes.deadline, Duration::from_secs(60));

    let bad = [
        (STAGED, "true"),
        (STAGE, "x"),
        (SOAK, "long"),
        (DEADLINE, ""),
    ];
    assert_eq!(staging(&bad, json!({})), Some(usual));
}

#[test]
fn without_a_setting_or_an_annotation_nothing_is_staged_or_kept() {
    assert_eq!(deployment("web").lists("app").build().staging, None);
}
