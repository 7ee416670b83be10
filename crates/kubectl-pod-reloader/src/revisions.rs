//! The revisions of a workload: its earlier pod templates, as its controller keeps them.

use jiff::Timestamp;
use pod_reloader_core::annotations::{CONFIG_HASH, PINS};
use pod_reloader_core::revision::{
    self, ControllerRevision, KeptIn, NamesCopies, ReplicaSet, kept_in,
};
use pod_reloader_core::workload::Restart;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster::{Cluster, Place, Unseen, with_labels};
use crate::workloads::{Seen, at};

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
        let path = template_path(seen);
        path.map_or_else(Self::default, |path| Self::of(at(&seen.object, path)))
    }
}

/// Returns the path of the workload's pod template. `None` if it has no template of its own, or is not restarted
/// by it.
pub(crate) fn template_path(seen: &Seen<'_>) -> Option<&'static [&'static str]> {
    let [template, ..] = seen.workload.id.kind.shape().templates else {
        return None;
    };
    let stored = at(&seen.object, template.path);
    (stored.is_object() && matches!(seen.workload.restart, Restart::Template))
        .then_some(template.path)
}

/// Lists the revisions of a workload, newest first. `None` if nobody keeps revisions of its kind.
pub(crate) async fn revisions(
    cluster: &Cluster,
    seen: &Seen<'_>,
) -> Result<Option<Vec<Revision>>, Unseen> {
    let Some(kept_in) = kept_in(seen.workload.id.kind) else {
        return Ok(None);
    };
    let namespace = Some(seen.workload.id.namespace.as_str());
    let labels = seen.object["spec"]["selector"]["matchLabels"].as_object();
    let labels = labels.into_iter().flatten();
    let labels: Vec<_> = labels
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)))
        .collect();
    let query = with_labels(Some(&labels.join(",")));
    let place = |plural| Place::new("apps/v1", plural, namespace);
    let uid = &seen.workload.uid;
    let mut revisions = match kept_in {
        KeptIn::ReplicaSets => {
            own::<ReplicaSet>(cluster, place("replicasets"), &query, uid).await?
        }
        KeptIn::ControllerRevisions => {
            own::<ControllerRevision>(cluster, place("controllerrevisions"), &query, uid).await?
        }
    };
    revisions.sort_by_key(|revision| std::cmp::Reverse(revision.number));
    Ok(Some(revisions))
}

/// Returns the time since when the pods of a workload have its config hash: the creation of the oldest of its
/// newest revisions that carry it. `None` if no revision does.
///
/// Revisions outlive Events, which an apiserver retains for an hour only.
pub(crate) async fn hash_since(
    cluster: &Cluster,
    seen: &Seen<'_>,
) -> Result<Option<Timestamp>, Unseen> {
    let revisions = revisions(cluster, seen).await?.unwrap_or_default();
    Ok(since(&revisions, seen.workload.config_hash()))
}

/// Expects the newest revision first.
fn since(revisions: &[Revision], hash: Option<&str>) -> Option<Timestamp> {
    let revisions = revisions.iter();
    let carrying = revisions.take_while(|it| it.stamps.config_hash.as_deref() == hash);
    carrying.last()?.created
}

/// Lists the revisions among these objects that belong to the workload with this UID.
async fn own<K: NamesCopies + DeserializeOwned>(
    cluster: &Cluster,
    place: Place<'_>,
    query: &str,
    uid: &str,
) -> Result<Vec<Revision>, Unseen> {
    let mut revisions = Vec::new();
    let mut pages = cluster.pages(place, query);
    while let Some(page) = pages.next::<K>().await? {
        let all = page.iter().filter_map(NamesCopies::revision);
        let own = all.filter(|it| *it.owner == *uid);
        revisions.extend(own.map(Revision::from));
    }
    Ok(revisions)
}

impl From<revision::Revision> for Revision {
    fn from(revision: revision::Revision) -> Self {
        Self {
            number: revision.number,
            created: revision.created,
            stamps: Stamps {
                config_hash: revision.config_hash.map(Into::into),
                pins: revision.pins.map(Into::into),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;

    #[test]
    fn the_age_of_a_hash_is_that_of_its_oldest_consecutive_revision() {
        let revision = |number: i64, hash: &str| Revision {
            number,
            created: Some(at(&format!("2026-01-01T00:{number:02}:00Z"))),
            stamps: Stamps {
                config_hash: Some(hash.to_owned()),
                pins: None,
            },
        };
        let revisions = [
            revision(10, "new"),
            revision(9, "new"),
            revision(8, "old"),
            revision(2, "new"),
        ];
        let oldest = Some(at("2026-01-01T00:09:00Z"));
        assert_eq!(since(&revisions, Some("new")), oldest);
        assert_eq!(since(&revisions, Some("other")), None);
        assert_eq!(since(&revisions, None), None);
    }
}
