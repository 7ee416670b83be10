//! The revisions of a workload: its earlier pod templates, as its controller keeps them.

use jiff::Timestamp;
use pod_reloader_core::annotations::{CONFIG_HASH, PINS};
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::workload::Restart;
use serde_json::Value;

use crate::cluster::{Cluster, Place, Unseen, encoded};
use crate::workloads::{BuiltIn, Seen, built_in};

/// A revision of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Revision {
    /// Its number. An undo gives an earlier revision a new one.
    pub(crate) number: i64,
    /// Time at which it was first rolled out.
    pub(crate) created: Option<Timestamp>,
    /// Our annotations of its pod template.
    pub(crate) stamps: Stamps,
}

/// Our annotations of a pod template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamps {
    pub(crate) config_hash: Option<String>,
    pub(crate) pins: Option<String>,
}

impl Stamps {
    /// Reads them from a pod template.
    pub(crate) fn of(template: &Value) -> Self {
        let annotations = &template["metadata"]["annotations"];
        let own = |key: &str| annotations[key].as_str().map(ToOwned::to_owned);
        Self {
            config_hash: own(CONFIG_HASH),
            pins: own(PINS),
        }
    }

    /// Reads them from the pod template that a workload has now.
    pub(crate) fn present(seen: &Seen<'_>) -> Self {
        template_path(seen).map_or_else(Self::default, |path| {
            Self::of(path.iter().fold(&seen.object, |it, field| &it[*field]))
        })
    }
}

/// Returns the path of the workload's pod template. `None` if it has no template of its own, or is not restarted
/// by it.
pub(crate) fn template_path(seen: &Seen<'_>) -> Option<&'static [&'static str]> {
    let [template, ..] = seen.workload.id.kind.shape().templates else {
        return None;
    };
    let stored = template
        .path
        .iter()
        .fold(&seen.object, |it, field| &it[*field]);
    (stored.is_object() && matches!(seen.workload.restart, Restart::Template))
        .then_some(template.path)
}

/// Lists the revisions of a workload, newest first. `None` if nobody keeps revisions of its kind.
pub(crate) async fn revisions(
    cluster: &Cluster,
    seen: &Seen<'_>,
) -> Result<Option<Vec<Revision>>, Unseen> {
    let Some(plural) = kept_as(seen.workload.id.kind) else {
        return Ok(None);
    };
    let namespace = Some(seen.workload.id.namespace.as_str());
    let labels = seen.object["spec"]["selector"]["matchLabels"].as_object();
    let labels = labels.into_iter().flatten();
    let labels: Vec<_> = labels
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    let query = format!("labelSelector={}", encoded(&labels.join(",")));
    let place = Place::new("apps/v1", plural, namespace);
    let mut revisions = Vec::new();
    let mut pages = cluster.pages(place, &query);
    while let Some(page) = pages.next::<Value>().await? {
        let own = page.iter().filter(|it| is_owned_by(it, &seen.workload.uid));
        revisions.extend(own.map(Revision::of));
    }
    revisions.sort_by_key(|revision| std::cmp::Reverse(revision.number));
    Ok(Some(revisions))
}

/// Returns the type of the objects that keep the revisions of a kind.
fn kept_as(kind: WorkloadKind) -> Option<&'static str> {
    match built_in(kind) {
        Some(BuiltIn::Deployment) => Some("replicasets"),
        Some(BuiltIn::StatefulSet | BuiltIn::DaemonSet) => Some("controllerrevisions"),
        None => kind.is("argoproj.io", "Rollout").then_some("replicasets"),
    }
}

fn is_owned_by(revision: &Value, uid: &str) -> bool {
    let owners = revision["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|it| it["uid"] == *uid)
}

impl Revision {
    /// Reads a ReplicaSet or a ControllerRevision.
    fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let annotated = || {
            let annotations = &metadata["annotations"];
            let mut numbers = NUMBERS.iter();
            numbers.find_map(|key| annotations[*key].as_str()?.parse().ok())
        };
        let template = match object.get("data") {
            Some(data) => &data["spec"]["template"],
            None => &object["spec"]["template"],
        };
        let created = metadata["creationTimestamp"].as_str();
        Self {
            number: object["revision"].as_i64().or_else(annotated).unwrap_or(0),
            created: created.and_then(|at| at.parse().ok()),
            stamps: Stamps::of(template),
        }
    }
}

/// The annotations of a ReplicaSet that give its number.
const NUMBERS: [&str; 2] = [
    "deployment.kubernetes.io/revision",
    "rollout.argoproj.io/revision",
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template() -> Value {
        json!({"metadata": {"annotations": {CONFIG_HASH: "it", PINS: "app=app-0123456789"}}})
    }

    #[test]
    fn every_kind_of_revision_is_read() {
        let replica_set = |key: &str| {
            let annotations = json!({key: "3"});
            json!({"metadata": {"annotations": annotations}, "spec": {"template": template()}})
        };
        let controller_revision =
            json!({"metadata": {}, "data": {"spec": {"template": template()}}, "revision": 3});
        for object in [
            replica_set("deployment.kubernetes.io/revision"),
            replica_set("rollout.argoproj.io/revision"),
            controller_revision,
        ] {
            let Revision { number, stamps, .. } = Revision::of(&object);
            assert_eq!(number, 3, "{object}");
            assert_eq!(stamps.config_hash.as_deref(), Some("it"), "{object}");
            assert_eq!(stamps.pins.as_deref(), Some("app=app-0123456789"));
        }
    }

    #[test]
    fn the_revisions_of_others_are_left_out() {
        let owned = json!({"metadata": {"ownerReferences": [{"uid": "a"}, {"uid": "b"}]}});
        assert!(is_owned_by(&owned, "b"));
        assert!(!is_owned_by(&owned, "c"));
        assert!(!is_owned_by(&json!({"metadata": {}}), "c"));
    }
}
