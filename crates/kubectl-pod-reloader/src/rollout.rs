//! Tells if the rollout of a workload is done, as `kubectl rollout status` does.

use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::words;
use pod_reloader_core::workload::{Restart, Stall, Workload};
use serde_json::Value;

use crate::workloads::Seen;

/// What one pod does, and what others do.
const ARE: [&str; 2] = ["is", "are"];

/// The progress of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rollout {
    /// Every pod runs the newest template.
    Done(String),
    /// The rollout continues.
    Running(String),
    /// The rollout continues only if somebody acts.
    Stopped(String),
    /// The progress is not known.
    Unknown(String),
}

impl Rollout {
    /// Returns the progress of a workload that is stored as `object`.
    pub(crate) fn of(workload: &Workload, object: &Value) -> Self {
        let kind = workload.id.kind;
        let (spec, status) = (&object["spec"], &object["status"]);
        let number = |place: &Value| place.as_i64().unwrap_or(0);
        let observed = number(&status["observedGeneration"]);
        if kind.is("batch", "CronJob") {
            return Self::Done("its next run reads the current objects".to_owned());
        }
        if !kind.is_built_in() {
            return match (Self::of_custom(object), unobserved(workload)) {
                (Self::Done(text), Some(field)) => Self::Unknown(format!(
                    "not known: {text}, but it does not report whether its controller has acted on {field}"
                )),
                (other, _) => other,
            };
        }
        if observed < number(&object["metadata"]["generation"]) {
            return Self::Running("the controller has not seen the newest template yet".to_owned());
        }
        let (wanted, updated, available) = if kind == WorkloadKind::DAEMON_SET {
            (
                number(&status["desiredNumberScheduled"]),
                number(&status["updatedNumberScheduled"]),
                number(&status["numberAvailable"]),
            )
        } else {
            (
                spec["replicas"].as_i64().unwrap_or(1),
                number(&status["updatedReplicas"]),
                number(&status["availableReplicas"]),
            )
        };
        let old = match kind == WorkloadKind::DEPLOYMENT {
            true => number(&status["replicas"]) - updated,
            false => 0,
        };
        let partition = number(&spec["updateStrategy"]["rollingUpdate"]["partition"]);
        let is_to_be_updated = wanted - partition.clamp(0, wanted);
        if spec["paused"] == true && updated < wanted {
            Self::Stopped("the workload is paused".to_owned())
        } else if spec["updateStrategy"]["type"] == "OnDelete" && updated < wanted {
            let pods = have_newest(updated, wanted);
            Self::Stopped(format!(
                "{pods}; with OnDelete, the others get it when they are deleted"
            ))
        } else if has_given_up(status) {
            Self::Stopped("it has made no progress within its progressDeadlineSeconds".to_owned())
        } else if updated < is_to_be_updated {
            Self::Running(have_newest(updated, is_to_be_updated))
        } else if old > 0 {
            let are = words::either(&old, ARE);
            let pods = words::count(old, "old pod");
            Self::Running(format!("{pods} {are} still there"))
        } else if available < wanted {
            let pods = words::part(available, wanted, "pod", ARE);
            Self::Running(format!("{pods} available"))
        } else {
            Self::Done(have_newest(updated, wanted))
        }
    }

    /// Returns the progress of a custom resource, by conventions that many follow: `observedGeneration`, the
    /// condition `Ready`, and the phases of Argo Rollouts.
    fn of_custom(object: &Value) -> Self {
        let status = &object["status"];
        // Argo writes a string.
        let observed = &status["observedGeneration"];
        let observed = observed
            .as_i64()
            .or_else(|| observed.as_str()?.parse().ok());
        let generation = object["metadata"]["generation"].as_i64();
        if observed.is_some() && observed < generation {
            return Self::Running(
                "its controller has not seen its newest generation yet".to_owned(),
            );
        }
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let ready = conditions.find(|it| it["type"] == "Ready");
        let ready = ready.and_then(|it| it["status"].as_str());
        match (status["phase"].as_str(), ready) {
            (Some("Healthy"), _) => Self::Done("it is healthy".to_owned()),
            (Some("Degraded"), _) => Self::Stopped("it is degraded".to_owned()),
            (Some("Progressing"), _) => Self::Running("it is progressing".to_owned()),
            (Some("Paused"), _) => Self::Running("it is paused".to_owned()),
            (_, Some("True")) => Self::Done("it is ready".to_owned()),
            (_, Some(_)) => Self::Running("it is not ready".to_owned()),
            _ => Self::Unknown("not known for this kind".to_owned()),
        }
    }

    /// Describes the progress in words.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Done(text) | Self::Running(text) | Self::Stopped(text) | Self::Unknown(text) => {
                text
            }
        }
    }
}

/// Explains, in words, what will hold back the rollout of a workload once it has a new hash.
pub(crate) fn stall(seen: &Seen<'_>) -> Option<&'static str> {
    match (seen.workload.stall?, &seen.workload.restart) {
        (Stall::Paused, _) => Some("paused: when it is resumed"),
        (Stall::OnDelete, Restart::Template) => Some("OnDelete: each pod when it is deleted"),
        (Stall::OnDelete, Restart::At { .. }) => None,
    }
}

/// Returns the annotation through which the pods are restarted, if it holds a time. Writing an annotation
/// makes no new generation that a controller could report as observed.
fn unobserved(workload: &Workload) -> Option<&'static str> {
    match workload.id.kind.shape().restart_at? {
        ["metadata", .., field] if workload.restart.value().is_some() => Some(field),
        _ => None,
    }
}

/// Returns true if a Deployment reports that it has missed its progress deadline.
fn has_given_up(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| it["type"] == "Progressing" && it["reason"] == "ProgressDeadlineExceeded")
}

fn have_newest(updated: i64, wanted: i64) -> String {
    let pods = words::part(updated, wanted, "pod", ["has", "have"]);
    format!("{pods} the newest template")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::read;
    use pod_reloader_core::kind::CustomResource;
    use pod_reloader_core::name::Name;
    use pod_reloader_core::scope::Scope;
    use serde::Deserialize;
    use serde_json::json;
    use serde_json::value::RawValue;

    fn custom(resource: Value) -> WorkloadKind {
        let kind = CustomResource::deserialize(resource).unwrap();
        kind.into_kind().unwrap()
    }

    fn rollout(kind: WorkloadKind, mut object: Value) -> Rollout {
        object["apiVersion"] = json!(format!("{}/v1", kind.shape().group));
        object["metadata"]["name"] = json!("web");
        object["metadata"]["namespace"] = json!("shop");
        object["spec"]["template"] = json!({"spec": {"containers": []}});
        let scope = Scope::new([], Name::parse("ops").unwrap()).and_kinds(vec![kind]);
        let stored = RawValue::from_string(object.to_string()).unwrap();
        Rollout::of(&read(&scope, kind, &stored).unwrap(), &object)
    }

    fn deployment(status: Value) -> Rollout {
        let object =
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": status});
        rollout(WorkloadKind::DEPLOYMENT, object)
    }

    #[test]
    fn a_deployment_is_done_when_all_its_pods_are_new_and_available() {
        let status = |observed: i64, replicas: i64, updated: i64, available: i64| {
            json!({
                "observedGeneration": observed, "replicas": replicas,
                "updatedReplicas": updated, "availableReplicas": available,
            })
        };
        assert!(matches!(deployment(status(2, 3, 3, 3)), Rollout::Done(_)));
        for running in [
            json!({}),
            status(1, 3, 3, 3),
            status(2, 3, 1, 3),
            status(2, 4, 3, 3),
            status(2, 3, 3, 2),
        ] {
            assert!(
                matches!(deployment(running.clone()), Rollout::Running(_)),
                "{running}"
            );
        }
        let mut given_up = status(2, 4, 1, 3);
        given_up["conditions"] =
            json!([{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]);
        assert!(matches!(deployment(given_up), Rollout::Stopped(_)));
    }

    #[test]
    fn a_stateful_set_with_a_partition_is_done_before_it() {
        let object = |updated: i64| {
            json!({
                "spec": {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 2}}},
                "status": {"updatedReplicas": updated, "availableReplicas": 3},
            })
        };
        let rollout = |updated| rollout(WorkloadKind::STATEFUL_SET, object(updated));
        assert!(matches!(rollout(0), Rollout::Running(_)));
        assert!(matches!(rollout(1), Rollout::Done(_)));
    }

    #[test]
    fn a_custom_resource_is_done_when_it_says_so_in_one_of_the_usual_ways() {
        let kind = custom(json!({
            "group": "example.com", "resource": "apps", "kind": "App", "podTemplates": ["spec.template"],
        }));
        let rollout = |status: Value| {
            let object = json!({"metadata": {"generation": 2}, "status": status});
            rollout(kind, object)
        };
        let ready = |ready: &str| json!({"conditions": [{"type": "Ready", "status": ready}]});
        assert!(matches!(
            rollout(json!({"phase": "Healthy"})),
            Rollout::Done(_)
        ));
        assert!(matches!(rollout(ready("True")), Rollout::Done(_)));
        assert!(matches!(rollout(ready("False")), Rollout::Running(_)));
        assert!(matches!(
            rollout(json!({"phase": "Degraded"})),
            Rollout::Stopped(_)
        ));
        let behind = json!({"phase": "Healthy", "observedGeneration": "1"});
        assert!(matches!(rollout(behind), Rollout::Running(_)));
        assert!(matches!(rollout(json!({})), Rollout::Unknown(_)));
    }

    #[test]
    fn a_rollout_that_waits_for_somebody_is_stopped() {
        let object = json!({
            "spec": {"updateStrategy": {"type": "OnDelete"}},
            "status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 2},
        });
        let daemon_set = rollout(WorkloadKind::DAEMON_SET, object);
        assert!(matches!(daemon_set, Rollout::Stopped(_)));
        let paused = json!({"spec": {"paused": true}, "status": {}});
        let paused = rollout(WorkloadKind::DEPLOYMENT, paused);
        assert!(matches!(paused, Rollout::Stopped(_)));
    }

    #[test]
    fn a_restart_by_an_annotation_is_not_done_because_it_was_ready_before() {
        let kind = custom(json!({
            "group": "postgresql.cnpg.io", "resource": "clusters", "kind": "Cluster",
            "restartAt": "metadata.annotations[kubectl.kubernetes.io/restartedAt]",
        }));
        let at = |annotations: Value, ready: &str| {
            let ready = json!({"conditions": [{"type": "Ready", "status": ready}]});
            let object = json!({"metadata": {"annotations": annotations}, "status": ready});
            rollout(kind, object)
        };
        let written = json!({"kubectl.kubernetes.io/restartedAt": "2026-11-22T00:00:00Z"});
        let unknown = at(written.clone(), "True");
        assert!(matches!(unknown, Rollout::Unknown(_)), "{unknown:?}");
        assert!(unknown.text().contains("kubectl.kubernetes.io/restartedAt"));
        assert!(matches!(at(written, "False"), Rollout::Running(_)));
        assert!(matches!(at(json!({}), "True"), Rollout::Done(_)));
    }

    #[test]
    fn a_restart_by_a_field_of_the_spec_is_a_new_generation() {
        let kind = custom(json!({
            "group": "example.com", "resource": "apps", "kind": "App", "restartAt": "spec.restartAt",
        }));
        let object = |observed: i64| {
            json!({
                "metadata": {"generation": 2},
                "spec": {"restartAt": "2026-11-22T00:00:00Z"},
                "status": {"observedGeneration": observed, "phase": "Healthy"},
            })
        };
        assert!(matches!(rollout(kind, object(1)), Rollout::Running(_)));
        assert!(matches!(rollout(kind, object(2)), Rollout::Done(_)));
    }

    #[test]
    fn a_cron_job_needs_no_rollout() {
        let kind = custom(json!({
            "group": "batch", "resource": "cronjobs", "kind": "CronJob",
            "podTemplates": ["spec.jobTemplate.spec.template"],
        }));
        let nightly = rollout(kind, json!({"spec": {"suspend": true}, "status": {}}));
        assert!(matches!(nightly, Rollout::Done(_)));
    }
}
