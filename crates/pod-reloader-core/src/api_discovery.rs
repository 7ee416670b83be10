//! Reads in the aggregated discovery of a cluster which kinds it serves.

use kube_core::discovery::v2::APIGroupDiscoveryList;

/// The state of a kind of object in a cluster.
#[derive(Debug, PartialEq)]
pub enum State<'a> {
    /// The cluster serves the kind, and prefers this version.
    Served(&'a str),
    /// The cluster does not know the kind.
    Missing,
    /// The cluster cannot say at the moment.
    Unknown,
}

/// Returns what `groups` says about the kind with this API group and plural.
pub fn state<'a>(groups: &'a APIGroupDiscoveryList, group: &str, plural: &str) -> State<'a> {
    let name = |metadata: &Option<kube_core::ObjectMeta>| metadata.as_ref()?.name.clone();
    let group = groups
        .items
        .iter()
        .find(|it| name(&it.metadata).as_deref() == Some(group));
    let Some(group) = group else {
        return State::Missing;
    };
    for version in &group.versions {
        if version.freshness.as_deref() == Some("Stale") {
            return State::Unknown;
        }
        let is_it = version
            .resources
            .iter()
            .any(|resource| resource.resource.as_deref() == Some(plural));
        if let (true, Some(version)) = (is_it, &version.version) {
            return State::Served(version);
        }
    }
    State::Missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rollouts(groups: &APIGroupDiscoveryList) -> State<'_> {
        state(groups, "argoproj.io", "rollouts")
    }

    fn groups(versions: serde_json::Value) -> APIGroupDiscoveryList {
        serde_json::from_value(json!({"items": [
            {"metadata": {"name": "other"}, "versions": [{"version": "v9", "resources": [{"resource": "rollouts"}]}]},
            {"metadata": {"name": "argoproj.io"}, "versions": versions},
        ]}))
        .unwrap()
    }

    #[test]
    fn the_first_version_that_has_the_kind_is_used() {
        let groups = groups(json!([
            {"version": "v2", "resources": [{"resource": "workflows"}]},
            {"version": "v1alpha1", "resources": [{"resource": "rollouts"}]},
            {"version": "v1alpha0", "resources": [{"resource": "rollouts"}]},
        ]));
        assert_eq!(rollouts(&groups), State::Served("v1alpha1"));
    }

    #[test]
    fn a_kind_that_is_not_served_is_missing_and_a_stale_one_is_unknown() {
        let none = groups(json!([{"version": "v1", "resources": []}]));
        assert_eq!(rollouts(&none), State::Missing);
        let other = serde_json::from_value(json!({"items": []})).unwrap();
        assert_eq!(rollouts(&other), State::Missing);
        let stale = groups(json!([{"version": "v1", "freshness": "Stale"}]));
        assert_eq!(rollouts(&stale), State::Unknown);
    }
}
