//! Config objects as the user may see them. Of their values, nothing is kept.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt};
use pod_reloader_core::digest::{Aspects, ConfigObject, Objects, Presence};
use pod_reloader_core::discovery::Requirement;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, ConfigMetadata, Reference};

use crate::cluster::{Cluster, Place, Unseen};
use crate::workloads::Seen;

/// How many are read at once.
const READS_AT_ONCE: usize = 8;
/// What the operator leaves out.
const NO_RELEASES: &str = "fieldSelector=type%21%3Dhelm.sh%2Frelease.v1";

/// What can be seen of config objects.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Those that could be read, or are not there.
    pub(crate) objects: Objects,
    /// Those that could not.
    pub(crate) unseen: BTreeMap<Reference, Unseen>,
}

impl Found {
    /// Whether an object is there, where that could be seen.
    pub(crate) fn exists(&self, reference: &Reference) -> Option<bool> {
        let presence = self.objects.get(reference)?;
        Some(matches!(presence, Presence::Present(_)))
    }
}

/// Everything that may count for a workload, and the objects in `besides`; what names could not be listed
/// is told beside them.
pub(crate) async fn of_workload(
    cluster: &Cluster,
    seen: &Seen<'_>,
    besides: impl Iterator<Item = &Reference>,
) -> (Found, Vec<String>) {
    let references = &seen.workload.references;
    let namespace = &seen.workload.id.namespace;
    let mut there = Vec::new();
    let mut unlisted = Vec::new();
    for kind in references.pattern_kinds() {
        match names(cluster, kind, Some(namespace)).await {
            Ok(names) => there.extend(names),
            Err(error) => unlisted.push(format!("what regular expressions match: {error}")),
        }
    }
    let (mut all, _) = references.with_matches(there);
    all.extend(besides.cloned());
    let selector = seen.operator.and_then(|it| it.scope.config_selector());
    let keys = None;
    let found = read(cluster, &all, Aspects { selector, keys });
    (found.await, unlisted)
}

/// Reads objects one by one.
pub(crate) async fn read(
    cluster: &Cluster,
    references: &BTreeSet<Reference>,
    aspects: Aspects<'_>,
) -> Found {
    let mut found = Found::default();
    let reads = references.iter().map(|reference| async move {
        let namespace = Some(reference.namespace.as_str());
        let place = Place::new("v1", reference.kind.plural(), namespace);
        (
            reference,
            cluster.get_raw(place, reference.name.as_str()).await,
        )
    });
    let mut reads = stream::iter(reads).buffer_unordered(READS_AT_ONCE);
    while let Some((reference, body)) = reads.next().await {
        let presence = match body {
            Ok(body) => ConfigObject::parse(&body, aspects)
                .map(Presence::Present)
                .map_err(|error| Unseen::Refused {
                    what: format!("read {} {}", reference.kind, reference.name),
                    message: error.to_string(),
                }),
            Err(error) if error.is_absent() => Ok(Presence::Absent),
            Err(error) => Err(error),
        };
        match presence {
            Ok(presence) => drop(found.objects.insert(reference.clone(), presence)),
            Err(error) => drop(found.unseen.insert(reference.clone(), error)),
        }
    }
    found
}

/// Without what the pods of a workload could not start, and what is not there, by what was found.
pub(crate) fn missing(seen: &Seen<'_>, found: &Found) -> Vec<String> {
    let missing = seen.workload.missing(&found.objects);
    missing
        .map(|Requirement { reference, key }| match key {
            Some(key) => format!("key {key} of {} {}", reference.kind, reference.name),
            None => format!("{} {}", reference.kind, reference.name),
        })
        .collect()
}

/// The objects of a kind, in a namespace or in all.
pub(crate) async fn names(
    cluster: &Cluster,
    kind: ConfigKind,
    namespace: Option<&Name>,
) -> Result<Vec<Reference>, Unseen> {
    let query = match kind {
        ConfigKind::ConfigMap => "",
        ConfigKind::Secret => NO_RELEASES,
    };
    let place = Place::new("v1", kind.plural(), namespace.map(Name::as_str));
    let metadata: Vec<ConfigMetadata> = cluster.list_metadata(place, query).await?;
    Ok(metadata
        .iter()
        .filter_map(|object| object.reference(kind))
        .collect())
}
