//! Finds the kind of workload that a user means.

use pod_reloader_core::kind::WorkloadKind;

/// Returns the kind that the user means.
pub(crate) fn kind(kinds: &[WorkloadKind], typed: &str) -> Option<WorkloadKind> {
    let is_meant = |kind: &&WorkloadKind| {
        let shape = kind.shape();
        let singular = shape.kind.to_ascii_lowercase();
        let short = short_name(**kind).unwrap_or(shape.plural);
        is_called(typed, &[shape.plural, &singular, short], shape.group)
    };
    kinds.iter().find(is_meant).copied()
}

/// Returns true if the user means a kind with these names, of this group: with or without the group.
pub(crate) fn is_called(typed: &str, names: &[&str], group: &str) -> bool {
    let (name, of_group) = match typed.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (typed, None),
    };
    names.contains(&name) && of_group.is_none_or(|it| it == group)
}

/// Returns the short name that the authors of a kind have given it.
fn short_name(kind: WorkloadKind) -> Option<&'static str> {
    let shape = kind.shape();
    Some(match (shape.group, shape.plural) {
        ("apps", "daemonsets") => "ds",
        ("apps", "deployments") => "deploy",
        ("apps", "statefulsets") => "sts",
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
