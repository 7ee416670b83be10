//! Finds the kind of workload that a user means.

use pod_reloader_core::kind::WorkloadKind;

/// Returns the kind that the user means.
pub(crate) fn kind(kinds: &[WorkloadKind], typed: &str) -> Option<WorkloadKind> {
    let (name, group) = match typed.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (typed, None),
    };
    let is_meant = |kind: &&WorkloadKind| {
        let short = match built_in(**kind) {
            Some(BuiltIn::Deployment) => Some("deploy"),
            Some(BuiltIn::StatefulSet) => Some("sts"),
            Some(BuiltIn::DaemonSet) => Some("ds"),
            None => short_name(**kind),
        };
        let shape = kind.shape();
        (short == Some(name) || name == shape.plural || name == shape.kind.to_ascii_lowercase())
            && group.is_none_or(|group| group == shape.group)
    };
    kinds.iter().find(is_meant).copied()
}

/// Returns the short name that the authors of a kind have given it.
fn short_name(kind: WorkloadKind) -> Option<&'static str> {
    let shape = kind.shape();
    Some(match (shape.group, shape.plural) {
        ("apps.kruise.io", "clonesets") => "clone",
        ("apps.kruise.io", "daemonsets") => "ads",
        ("apps.kruise.io", "statefulsets") => "asts",
        ("apps.openshift.io", "deploymentconfigs") => "dc",
        ("argoproj.io", "rollouts") => "ro",
        ("batch", "cronjobs") => "cj",
        ("serving.knative.dev", "services") => "ksvc",
        _ => return None,
    })
}

/// The kinds that exist in every cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuiltIn {
    Deployment,
    StatefulSet,
    DaemonSet,
}

/// Returns the built-in kind that `kind` is, if it is one.
pub(crate) fn built_in(kind: WorkloadKind) -> Option<BuiltIn> {
    let all = [
        BuiltIn::Deployment,
        BuiltIn::StatefulSet,
        BuiltIn::DaemonSet,
    ];
    let at = WorkloadKind::BUILT_IN.iter().position(|it| *it == kind)?;
    Some(all[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_reloader_core::kind::CustomResource;

    #[test]
    fn a_kind_is_found_by_every_name_that_kubectl_takes() {
        let kinds = WorkloadKind::BUILT_IN;
        for typed in [
            "deploy",
            "deployment",
            "deployments",
            "deployments.apps",
            "deployment.apps",
        ] {
            assert_eq!(
                kind(&kinds, typed),
                Some(WorkloadKind::DEPLOYMENT),
                "{typed}"
            );
        }
        assert_eq!(kind(&kinds, "sts"), Some(WorkloadKind::STATEFUL_SET));
        let rollout: CustomResource = serde_json::from_value(serde_json::json!({
            "group": "argoproj.io", "resource": "rollouts", "kind": "Rollout", "podTemplates": ["spec.template"],
        }))
        .unwrap();
        let rollout = rollout.into_kind().unwrap();
        for typed in ["ro", "rollout", "rollouts.argoproj.io"] {
            assert_eq!(kind(&[rollout], typed), Some(rollout), "{typed}");
        }
        assert_eq!(kind(&[rollout], ""), None);
        for typed in ["", "pod", "deployments.extensions", "sts.apps.x"] {
            assert_eq!(kind(&kinds, typed), None, "{typed}");
        }
    }
}
