//! Tests when a rotation restarts pods, with statuses as the driver writes them.

use serde_json::{Value, json};

use super::*;
use crate::decision::{FirstStamp, decide};
use crate::dialects::Dialects;
use crate::fixtures::{Builder, deployment, holding, keyring, objects};
use crate::kind::WorkloadKind;

/// Returns Deployment `web`, whose pods mount the class `db`.
fn web() -> Builder {
    mounting(&["db"]).annotation("auto", "true")
}

fn mounting(classes: &[&str]) -> Builder {
    let volume = |class: &&str| {
        let attributes = json!({"secretProviderClass": class});
        let csi = json!({"driver": "secrets-store.csi.k8s.io", "volumeAttributes": attributes});
        json!({"name": class, "csi": csi})
    };
    let volumes: Vec<_> = classes.iter().map(volume).collect();
    deployment("web")
        .with("/spec/selector", json!({"matchLabels": {"app": "web"}}))
        .with("/spec/template/spec/volumes", json!(volumes))
}

fn read(builder: Builder) -> Workload {
    builder.read_in(Dialects {
        classes: true,
        ..Dialects::default()
    })
}

/// A pod, and what the driver has mounted for it.
#[derive(Clone)]
struct Mount {
    pod: Value,
    status: Value,
}

/// Returns a pod that has started with a version.
fn started_with(version: &str) -> Mount {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let (name, uid) = (format!("web-5d4-{number}"), format!("uid-{number}"));
    let owner = |kind: &str, name: &str, uid: &str| json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": true}]);
    Mount {
        pod: json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": uid, "creationTimestamp": "2026-11-23T10:00:00Z",
                "labels": {"app": "web", "pod-template-hash": "5d4"},
                "ownerReferences": owner("ReplicaSet", "web-5d4", "uid-rs"),
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"state": {"running": {"startedAt": "2026-11-23T10:00:09Z"}}}],
            },
        }),
        status: json!({
            "metadata": {
                "name": format!("{name}-ns-db"), "namespace": "ns", "generation": 1,
                "creationTimestamp": "2026-11-23T10:00:05Z",
                "managedFields": [{"time": "2026-11-23T10:00:05Z"}],
                "ownerReferences": owner("Pod", &name, &uid),
            },
            "status": {"secretProviderClassName": "db", "objects": [{"id": "password", "version": version}]},
        }),
    }
}

/// Returns a pod that the driver has given another version than it started with.
fn rotated_to(version: &str) -> Mount {
    started_with("1").rotated(version, 2, "2026-11-23T10:05:00Z")
}

impl Mount {
    fn rotated(mut self, version: &str, generation: i64, at: &str) -> Self {
        self.status["metadata"]["generation"] = json!(generation);
        self.status["metadata"]["managedFields"][0]["time"] = json!(at);
        self.status["status"]["objects"][0]["version"] = json!(version);
        self
    }

    fn of_class(mut self, class: &str) -> Self {
        self.status["status"]["secretProviderClassName"] = json!(class);
        self
    }

    fn pod(mut self, pointer: &str, value: Value) -> Self {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        self.pod.pointer_mut(parent).unwrap()[field] = value;
        self
    }

    fn not_ready(self) -> Self {
        self.pod("/status/conditions/0/status", json!("False"))
    }

    fn of_revision(self, revision: &str) -> Self {
        let owner = format!("web-{revision}");
        self.pod("/metadata/labels/pod-template-hash", json!(revision))
            .pod("/metadata/ownerReferences/0/name", json!(owner))
    }
}

fn of(workload: &Workload, mounts: &[Mount]) -> Rotated {
    let read = |value: &Value| serde_json::from_value(value.clone()).unwrap();
    let statuses: Vec<_> = mounts.iter().map(|it| read(&it.status)).collect();
    let pods: Vec<_> = mounts
        .iter()
        .map(|it| serde_json::from_value(it.pod.clone()).unwrap())
        .collect();
    rotated(workload, &statuses, &pods)
}

fn is_due(mounts: &[Mount]) -> bool {
    !of(&read(web()), mounts).is_empty()
}

#[test]
fn a_restart_is_due_once_all_pods_have_been_rotated_to_the_same_versions() {
    assert!(!is_due(&[]));
    assert!(!is_due(&[rotated_to("2"), started_with("1")]));
    assert!(!is_due(&[rotated_to("2"), rotated_to("3")]));
    assert!(is_due(&[rotated_to("2"), rotated_to("2")]));
}

#[test]
fn pods_that_started_with_the_new_versions_need_no_restart() {
    assert!(!is_due(&[started_with("1"), started_with("1")]));
    assert!(!is_due(&[started_with("2"), started_with("2")]));
    // The second one was added when the store had the new version already.
    assert!(is_due(&[rotated_to("2"), started_with("2")]));
}

#[test]
fn pods_that_have_ended_or_are_ending_do_not_count() {
    let ended = |phase: &str| started_with("1").pod("/status/phase", json!(phase));
    let ending =
        started_with("1").pod("/metadata/deletionTimestamp", json!("2026-11-23T10:04:00Z"));
    for gone in [ended("Succeeded"), ended("Failed"), ending] {
        assert!(is_due(&[rotated_to("2"), gone]));
    }
    let ended = rotated_to("2").pod("/status/phase", json!("Failed"));
    assert!(!is_due(&[ended, started_with("2")]));
}

#[test]
fn a_pod_that_is_not_ready_keeps_no_other_waiting() {
    assert!(is_due(&[rotated_to("2"), started_with("1").not_ready()]));
    assert!(is_due(&[started_with("2"), rotated_to("2").not_ready()]));
    // If none is ready, all of them count: the old password may be why.
    let crashing = || rotated_to("2").not_ready();
    assert!(is_due(&[crashing(), crashing()]));
    assert!(!is_due(&[crashing(), started_with("1").not_ready()]));
}

#[test]
fn a_rollout_that_is_under_way_brings_the_latest_versions_along() {
    let new = started_with("2").of_revision("7f8");
    assert!(!is_due(&[rotated_to("2"), new.clone()]));
    assert!(!is_due(&[new]));
}

#[test]
fn pods_without_the_name_of_a_revision_are_of_one_revision_if_they_have_one_owner() {
    let mut object = web().json();
    object["apiVersion"] = json!("apps.openshift.io/v1");
    let resource = json!({
        "group": "apps.openshift.io", "resource": "deploymentconfigs", "kind": "DeploymentConfig",
        "podTemplates": ["spec.template"],
    });
    let resource: crate::kind::CustomResource = serde_json::from_value(resource).unwrap();
    let object: crate::object::CustomObject = serde_json::from_value(object).unwrap();
    let dialects = Dialects {
        classes: true,
        ..Dialects::default()
    };
    let reading = crate::workload::Reading::new(dialects, []);
    let config = crate::object::Object::into_workload(
        object,
        resource.into_kind().unwrap(),
        &reading,
        &Default::default(),
    );
    let config = config.unwrap();
    let of_controller = |mount: Mount, number: u8| {
        let owner = json!([{"kind": "ReplicationController", "name": format!("web-{number}"), "uid": format!("uid-{number}"), "controller": true}]);
        mount
            .pod("/metadata/labels", json!({"app": "web"}))
            .pod("/metadata/ownerReferences", owner)
    };
    let is_due = |mounts: &[Mount]| !of(&config, mounts).is_empty();
    let old = || of_controller(rotated_to("2"), 1);
    assert!(is_due(&[old(), old()]));
    // A rollout is in progress, and brings the latest versions along.
    assert!(!is_due(&[old(), of_controller(started_with("2"), 2)]));
}

#[test]
fn statuses_of_other_pods_and_other_classes_do_not_count() {
    let others = started_with("1").pod("/metadata/ownerReferences/0/name", json!("web-2-5d4"));
    let bare = started_with("1").pod("/metadata/ownerReferences", json!(null));
    let other_class = started_with("1").of_class("tls");
    for other in [others, bare, other_class] {
        assert!(is_due(&[rotated_to("2"), other]));
    }
    let mut orphaned = rotated_to("2");
    orphaned.status["metadata"]["ownerReferences"][0]["uid"] = json!("uid-of-an-earlier-pod");
    assert!(!is_due(&[orphaned, started_with("1")]));
}

#[test]
fn each_of_two_classes_restarts_the_pods() {
    let workload = read(mounting(&["db", "tls"]).annotation("auto", "true"));
    let (mut db, mut tls) = (rotated_to("2"), started_with("1").of_class("tls"));
    tls.pod = db.pod.clone();
    tls.status["metadata"]["ownerReferences"] = db.status["metadata"]["ownerReferences"].clone();
    let due = |mounts: [&Mount; 2]| {
        let due = of(&workload, &mounts.map(Clone::clone));
        due.keys().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(due([&db, &tls]), ["db"]);
    tls = tls.rotated("2", 2, "2026-11-23T10:05:00Z");
    assert_eq!(due([&db, &tls]), ["db", "tls"]);
    db = db.rotated("1", 1, "2026-11-23T10:00:05Z");
    assert_eq!(due([&db, &tls]), ["tls"]);
}

fn stateful_set() -> Workload {
    let mut object = web().json();
    object["kind"] = json!("StatefulSet");
    let object: crate::object::WorkloadObject = serde_json::from_value(object).unwrap();
    let dialects = Dialects {
        classes: true,
        ..Dialects::default()
    };
    let reading = crate::workload::Reading::new(dialects, []);
    let stateful_set = crate::object::Object::into_workload(
        object,
        WorkloadKind::STATEFUL_SET,
        &reading,
        &Default::default(),
    );
    stateful_set.unwrap()
}

/// Returns a pod of the StatefulSet that has taken over the status of its predecessor, which was changed at this time.
fn taken_over(version: &str, at: &str) -> Mount {
    let mut mount = started_with(version).rotated(version, 7, at);
    mount.status["metadata"]["creationTimestamp"] = json!("2026-11-20T08:00:00Z");
    mount
        .pod("/metadata/ownerReferences/0/kind", json!("StatefulSet"))
        .pod("/metadata/ownerReferences/0/name", json!("web"))
}

#[test]
fn a_status_that_a_stateful_set_pod_takes_over_is_judged_by_its_last_change() {
    let stateful_set = stateful_set();
    let is_due = |mounts: &[Mount]| !of(&stateful_set, mounts).is_empty();
    let at_the_start = taken_over("1", "2026-11-23T10:00:05Z");
    assert!(!is_due(&[at_the_start.clone(), at_the_start.clone()]));
    // By a clock that is ahead of the node's.
    assert!(!is_due(&[taken_over("1", "2026-11-23T10:00:12Z")]));
    assert!(is_due(&[taken_over("2", "2026-11-23T10:05:00Z")]));
    // Soon after its start, but after it had become ready by the same clock.
    let ready_at = |mount: Mount, at: &str| {
        let managed = json!([{"manager": "kubelet", "subresource": "status", "time": at}]);
        mount.pod("/metadata/managedFields", managed)
    };
    let soon = || taken_over("2", "2026-11-23T10:00:14Z");
    assert!(is_due(&[ready_at(soon(), "2026-11-23T10:00:11Z")]));
    assert!(!is_due(&[ready_at(soon(), "2026-11-23T10:00:14Z")]));
    assert!(!is_due(&[ready_at(
        soon().not_ready(),
        "2026-11-23T10:00:11Z"
    )]));
    let not_started = at_the_start.pod("/status/containerStatuses", json!(null));
    assert!(!is_due(&[not_started]));
}

#[test]
fn a_pod_has_started_when_its_first_init_container_has() {
    let init = json!([{"state": {"terminated": {"startedAt": "2026-11-23T10:00:09Z"}}}]);
    let main = json!([{"state": {"running": {"startedAt": "2026-11-23T10:06:00Z"}}}]);
    let pod = |at: &str| {
        taken_over("2", at)
            .pod("/status/initContainerStatuses", init.clone())
            .pod("/status/containerStatuses", main.clone())
    };
    let is_due = |mount: Mount| !of(&stateful_set(), &[mount]).is_empty();
    assert!(!is_due(pod("2026-11-23T10:00:05Z")));
    // The init container may have read what was mounted before.
    assert!(is_due(pod("2026-11-23T10:05:00Z")));
}

#[test]
fn one_rotation_is_one_restart() {
    let keys = keyring(&[1]);
    let objects = objects(&[]);
    let decide = |workload: &Workload, mounts: &[Mount]| {
        let decision = decide(workload, &objects, &keys, FirstStamp::Rollout);
        with_rotation(decision, workload, &objects, &keys, &of(workload, mounts))
    };
    let web = |hash: Option<&str>| {
        read(match hash {
            Some(hash) => web().stamped(hash),
            None => web(),
        })
    };
    assert_eq!(
        decide(&web(None), &[started_with("1")]),
        Decision::Unchanged
    );
    let due = |hash: Option<&str>, mounts: &[Mount]| match decide(&web(hash), mounts) {
        Decision::Set {
            config_hash,
            cause: Cause::Rotated,
        } => config_hash,
        other => panic!("{other:?}"),
    };
    let second = due(None, &[rotated_to("2")]);
    // The patch is written, and no pod has been replaced yet.
    assert_eq!(
        decide(&web(Some(&second)), &[rotated_to("2")]),
        Decision::Unchanged
    );
    let third = due(Some(&second), &[rotated_to("3")]);
    assert_ne!(second, third);
    let back = due(Some(&third), &[rotated_to("2")]);
    assert_eq!(second, back);
}

#[test]
fn a_rotation_and_a_change_of_config_are_one_restart_and_neither_takes_the_other_back() {
    let keys = keyring(&[1]);
    let tracking = || web().lists("app");
    let decided = |builder: Builder, value: &str, mounts: &[Mount]| {
        let workload = read(builder);
        let objects = objects(&[("app", holding(value))]);
        let decision = decide(&workload, &objects, &keys, FirstStamp::Rollout);
        let rotated = of(&workload, mounts);
        with_rotation(decision, &workload, &objects, &keys, &rotated)
    };
    let set = |decision| match decision {
        Decision::Set { config_hash, cause } => (config_hash, cause),
        other => panic!("{other:?}"),
    };
    let (first, _) = set(decided(tracking(), "1", &[]));
    let (both, cause) = set(decided(tracking().stamped(&first), "2", &[rotated_to("2")]));
    assert_eq!(cause, Cause::Changed);
    let quiet = decided(tracking().stamped(&both), "2", &[rotated_to("2")]);
    assert_eq!(quiet, Decision::Unchanged);
    let (next, _) = set(decided(
        tracking().stamped(&both),
        "3",
        &[started_with("2")],
    ));
    let mark = |hash: &str| hash.rsplit('.').next().unwrap().to_owned();
    assert_eq!(mark(&next), mark(&both));
    assert_ne!(next, both);
    // Users approve each of them by other digits.
    let digits = crate::gate::digits;
    assert_ne!(digits(&next), digits(&both));
    let (rotated_again, cause) = set(decided(tracking().stamped(&next), "3", &[rotated_to("4")]));
    assert_eq!(cause, Cause::Rotated);
    assert_ne!(digits(&rotated_again), digits(&next));
}

#[test]
fn no_pod_is_restarted_into_missing_config() {
    let workload = read(web().lists("app").requires("app", None));
    let objects = objects(&[("app", None)]);
    let keys = keyring(&[1]);
    let decision = decide(&workload, &objects, &keys, FirstStamp::Rollout);
    let rotated = of(&workload, &[rotated_to("2")]);
    assert!(!rotated.is_empty());
    let decision = with_rotation(decision, &workload, &objects, &keys, &rotated);
    assert!(matches!(decision, Decision::MissingConfig(_)));
}

#[test]
fn the_mark_of_a_rotation_is_known_under_every_key() {
    let rotated = of(&read(web()), &[rotated_to("2")]);
    let workload = read(web());
    let namespace = &workload.id.namespace;
    let none = objects(&[]);
    let contents = workload.references.contents(&none);
    let (old, new) = (keyring(&[1]), keyring(&[2, 1]));
    let hash = old.hash(&contents).rotated(&old, namespace, &rotated);
    let carried = new
        .hash(&contents)
        .carrying(Some(&hash.to_string()))
        .to_string();
    assert!(new.stands_for_rotation(&carried, namespace, &rotated));
    assert!(!keyring(&[3]).stands_for_rotation(&carried, namespace, &rotated));
    assert!(!new.stands_for_rotation(&carried, namespace, &Rotated::new()));
}
