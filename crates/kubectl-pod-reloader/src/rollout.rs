//! Whether the rollout of a workload is done, as `kubectl rollout status` sees it.

use pod_reloader_core::kind::WorkloadKind;
use serde_json::Value;

use crate::workloads::{BuiltIn, built_in};

/// How far a rollout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rollout {
    /// Every pod is of the newest template.
    Done(String),
    /// It goes on.
    Running(String),
    /// It goes on only when somebody does something.
    Stopped(String),
    /// What it is like is not known for this kind.
    Unknown,
}

impl Rollout {
    /// That of a stored workload.
    pub(crate) fn of(kind: WorkloadKind, object: &Value) -> Self {
        let (spec, status) = (&object["spec"], &object["status"]);
        let number = |place: &Value| place.as_i64().unwrap_or(0);
        let observed = number(&status["observedGeneration"]);
        let Some(kind) = built_in(kind) else {
            return Self::of_custom(object);
        };
        if observed < number(&object["metadata"]["generation"]) {
            return Self::Running("the controller has not seen the newest template yet".to_owned());
        }
        let (wanted, updated, available) = match kind {
            BuiltIn::DaemonSet => (
                number(&status["desiredNumberScheduled"]),
                number(&status["updatedNumberScheduled"]),
                number(&status["numberAvailable"]),
            ),
            BuiltIn::Deployment | BuiltIn::StatefulSet => (
                spec["replicas"].as_i64().unwrap_or(1),
                number(&status["updatedReplicas"]),
                number(&status["availableReplicas"]),
            ),
        };
        let old = match kind {
            BuiltIn::Deployment => number(&status["replicas"]) - updated,
            _ => 0,
        };
        let partition = number(&spec["updateStrategy"]["rollingUpdate"]["partition"]);
        let is_to_be_updated = wanted - partition.clamp(0, wanted);
        if spec["paused"] == true && updated < wanted {
            Self::Stopped("the workload is paused".to_owned())
        } else if spec["updateStrategy"]["type"] == "OnDelete" && updated < wanted {
            Self::Stopped(format!(
                "{updated} of {wanted} pods are of the newest template; with OnDelete the others are when they are deleted"
            ))
        } else if has_given_up(status) {
            Self::Stopped("it has not come on within its progressDeadlineSeconds".to_owned())
        } else if updated < is_to_be_updated {
            Self::Running(format!(
                "{updated} of {is_to_be_updated} pods are of the newest template"
            ))
        } else if old > 0 {
            Self::Running(format!("{old} old pods are still there"))
        } else if available < wanted {
            Self::Running(format!("{available} of {wanted} pods are available"))
        } else {
            Self::Done(format!(
                "{updated} of {wanted} pods are of the newest template"
            ))
        }
    }

    /// That of a custom resource, by the conventions that many keep: `observedGeneration`, the condition
    /// `Ready`, and the phases of Argo Rollouts.
    fn of_custom(object: &Value) -> Self {
        let status = &object["status"];
        // Argo writes it as text.
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
            _ => Self::Unknown,
        }
    }

    /// What it is like, in words.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Done(text) | Self::Running(text) | Self::Stopped(text) => text,
            Self::Unknown => "not known for this kind",
        }
    }
}

/// Whether a Deployment says of itself that it has.
fn has_given_up(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| it["type"] == "Progressing" && it["reason"] == "ProgressDeadlineExceeded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_reloader_core::kind::CustomResource;
    use serde::Deserialize;
    use serde_json::json;

    fn deployment(status: Value) -> Rollout {
        let object =
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": status});
        Rollout::of(WorkloadKind::DEPLOYMENT, &object)
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
        let rollout = |updated| Rollout::of(WorkloadKind::STATEFUL_SET, &object(updated));
        assert!(matches!(rollout(0), Rollout::Running(_)));
        assert!(matches!(rollout(1), Rollout::Done(_)));
    }

    #[test]
    fn a_custom_resource_is_done_when_it_says_so_in_one_of_the_usual_ways() {
        let kind = CustomResource::deserialize(json!({
            "group": "example.com", "resource": "apps", "kind": "App", "podTemplates": ["spec.template"],
        }));
        let kind = kind.unwrap().into_kind().unwrap();
        let rollout = |status: Value| {
            Rollout::of(
                kind,
                &json!({"metadata": {"generation": 2}, "status": status}),
            )
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
        assert_eq!(rollout(json!({})), Rollout::Unknown);
    }

    #[test]
    fn what_waits_for_somebody_is_stopped() {
        let object = json!({
            "spec": {"updateStrategy": {"type": "OnDelete"}},
            "status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 2},
        });
        let rollout = Rollout::of(WorkloadKind::DAEMON_SET, &object);
        assert!(matches!(rollout, Rollout::Stopped(_)));
        let paused = json!({"spec": {"paused": true}, "status": {}});
        let rollout = Rollout::of(WorkloadKind::DEPLOYMENT, &paused);
        assert!(matches!(rollout, Rollout::Stopped(_)));
    }
}
