//! Reads in the aggregated discovery of a cluster which kinds it serves.

use serde::Deserialize;

/// The path of the aggregated discovery. It is no resource, so [`Resource::url_path`](kube_core::Resource) does not make
/// it.
pub const PATH: &str = "/apis";

/// The API groups that a cluster serves.
#[derive(Debug, Default, Deserialize)]
pub struct Groups {
    items: Option<Vec<Group>>,
}

impl FromIterator<Group> for Groups {
    fn from_iter<I: IntoIterator<Item = Group>>(groups: I) -> Self {
        Self {
            items: Some(groups.into_iter().collect()),
        }
    }
}

/// An API group, with what is asked about it. An apiserver writes `null` for an empty list, which the types of kube do
/// not read.
#[derive(Debug, Deserialize)]
pub struct Group {
    metadata: GroupMetadata,
    versions: Option<Vec<Version>>,
}

#[derive(Debug, Deserialize)]
struct GroupMetadata {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: String,
    freshness: Option<String>,
    resources: Option<Vec<ServedResource>>,
}

#[derive(Debug, Deserialize)]
struct ServedResource {
    /// The plural.
    resource: String,
}

impl Group {
    /// Returns the name of the group.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}

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

impl Groups {
    /// Returns what the cluster says about the kind with this API group and plural.
    pub fn state(&self, group: &str, plural: &str) -> State<'_> {
        let mut groups = self.items.iter().flatten();
        let Some(group) = groups.find(|it| it.name() == group) else {
            return State::Missing;
        };
        for version in group.versions.iter().flatten() {
            if version.freshness.as_deref() == Some("Stale") {
                return State::Unknown;
            }
            let mut resources = version.resources.iter().flatten();
            if resources.any(|it| it.resource == plural) {
                return State::Served(&version.version);
            }
        }
        State::Missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rollouts(groups: &Groups) -> State<'_> {
        groups.state("argoproj.io", "rollouts")
    }

    fn groups(versions: serde_json::Value) -> Groups {
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

    #[test]
    fn an_empty_list_may_be_null() {
        let groups = groups(json!([
            {"version": "v1", "resources": null},
            {"version": "v1alpha1", "resources": [{"resource": "rollouts", "verbs": null}]},
        ]));
        assert_eq!(rollouts(&groups), State::Served("v1alpha1"));
        for none in [
            json!({"items": [{"metadata": {"name": "argoproj.io"}, "versions": null}]}),
            json!({"items": null}),
        ] {
            let groups = serde_json::from_value(none).unwrap();
            assert_eq!(rollouts(&groups), State::Missing);
        }
    }
}
