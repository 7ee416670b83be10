//! Config objects, as far as the user may see them. No values are retained.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt};
use pod_reloader_core::config_sync::source_of;
use pod_reloader_core::digest::{Aspects, ConfigObject, Objects, Presence};
use pod_reloader_core::mark::is_hold;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use serde::Deserialize;

use crate::cluster::{Cluster, Place, Unseen, with_labels};
use crate::workloads::Seen;

/// Number of objects read at once.
const READS_AT_ONCE: usize = 8;
/// Query that leaves out Helm releases, as the operator does.
const NO_RELEASES: &str = "fieldSelector=type%21%3Dhelm.sh%2Frelease.v1";

/// Config objects, as far as they can be seen.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Objects that were read, or do not exist.
    pub(crate) objects: Objects,
    /// Objects that could not be read.
    pub(crate) unseen: BTreeMap<Reference, Unseen>,
    /// The tags of those objects that have some.
    pub(crate) tags: BTreeMap<Reference, Tags>,
}

/// The label and the annotation of an object that matter to somebody who wants to change it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tags {
    /// The value of the label that protects it.
    pub(crate) protect: Option<String>,
    /// The source that it is a copy of.
    pub(crate) copy_of: Option<Reference>,
}

impl Tags {
    /// Returns the tags of an object as serialised.
    pub(crate) fn of(reference: &Reference, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Tagged {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        struct Metadata {
            labels: Option<Labels>,
            annotations: Option<Annotations>,
        }
        #[derive(Deserialize)]
        struct Labels {
            #[serde(rename = "pod-reloader.cs.sap.com/protect")]
            protect: Option<String>,
        }
        /// The mark alone: another annotation may hold a copy of a Secret.
        #[derive(Deserialize)]
        struct Annotations {
            #[serde(rename = "pod-reloader.cs.sap.com/copy-of")]
            copy_of: Option<String>,
        }
        let Ok(Tagged { metadata }) = serde_json::from_slice(body) else {
            return Self::default();
        };
        let mark = metadata.annotations.and_then(|it| it.copy_of);
        Self {
            protect: metadata.labels.and_then(|it| it.protect),
            copy_of: mark.and_then(|mark| source_of(reference, &mark)),
        }
    }
}

impl Found {
    /// Returns true if an object exists; `None` if that could not be seen.
    pub(crate) fn exists(&self, reference: &Reference) -> Option<bool> {
        let presence = self.objects.get(reference)?;
        Some(matches!(presence, Presence::Present(_)))
    }
}

/// Reads everything that may be tracked for a workload, and the objects in `besides`. Also returns a note for
/// each kind of which the names could not be listed.
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
        match names(cluster, kind, Some(namespace), None).await {
            Ok(names) => there.extend(names),
            Err(error) => unlisted.push(format!("what regular expressions match: {error}")),
        }
    }
    let (mut all, _) = references.with_matches(there);
    all.extend(besides.cloned());
    let selector = seen.operator.and_then(|it| it.scope.config_selector());
    let aspects = Aspects {
        selector,
        ..Aspects::default()
    };
    let found = read(cluster, &all, aspects);
    (found.await, unlisted)
}

/// Reads objects one by one, several at a time.
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
        let tags = body.as_deref().map(|body| Tags::of(reference, body));
        let tags = tags.ok().filter(|tags| *tags != Tags::default());
        found.tags.extend(tags.map(|it| (reference.clone(), it)));
        let presence = match body {
            Ok(body) => ConfigObject::parse(&body, aspects)
                .map(Presence::Present)
                .map_err(|error| {
                    let what = format!("read {} {}", reference.kind, reference.name);
                    Unseen::refused(what, error.to_string())
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

/// Describes what is missing without which the pods of a workload could not start.
pub(crate) fn missing(seen: &Seen<'_>, objects: &Objects) -> Vec<String> {
    let missing = seen.workload.missing(objects);
    missing.map(|unmet| unmet.to_string()).collect()
}

/// Returns references to the objects of a kind whose labels match `selector`, in one namespace or in all.
pub(crate) async fn names(
    cluster: &Cluster,
    kind: ConfigKind,
    namespace: Option<&Name>,
    selector: Option<&str>,
) -> Result<Vec<Reference>, Unseen> {
    let listed = listed(cluster, kind, namespace, selector).await?;
    Ok(listed.into_iter().map(|(reference, _)| reference).collect())
}

/// Returns references to such objects, as [`names`] does, and whether each is on hold.
pub(crate) async fn listed(
    cluster: &Cluster,
    kind: ConfigKind,
    namespace: Option<&Name>,
    selector: Option<&str>,
) -> Result<Vec<(Reference, bool)>, Unseen> {
    let labels = with_labels(selector);
    let query = match kind {
        ConfigKind::ConfigMap => labels,
        ConfigKind::Secret => format!("{NO_RELEASES}&{labels}"),
    };
    let place = Place::new("v1", kind.plural(), namespace.map(Name::as_str));
    let objects: Vec<Listed> = cluster.metadata_pages(place, &query).all().await?;
    let listed = objects.iter().filter_map(|object| object.named(kind));
    Ok(listed.collect())
}

/// The metadata of a config object. Only these parts are stored: the rest may be large.
#[derive(Deserialize)]
struct Listed {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "pod-reloader.cs.sap.com/hold")]
    hold: Option<String>,
}

impl Listed {
    fn named(&self, kind: ConfigKind) -> Option<(Reference, bool)> {
        let Metadata {
            name,
            namespace,
            annotations,
        } = &self.metadata;
        let reference = Reference {
            kind,
            namespace: Name::parse(namespace).ok()?,
            name: Name::parse(name).ok()?,
        };
        let hold = annotations.as_ref().and_then(|it| it.hold.as_deref());
        Some((reference, hold.is_some_and(is_hold)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_reloader_core::annotations::HOLD;
    use pod_reloader_core::protect::PROTECT;
    use pod_reloader_core::seal::COPY_OF;
    use serde_json::json;

    #[test]
    fn a_list_says_which_objects_are_on_hold() {
        for (annotations, expected) in [
            (json!(null), false),
            (json!({"other": "true"}), false),
            (json!({HOLD: "true"}), true),
            (json!({HOLD: "false"}), false),
        ] {
            let metadata = json!({"name": "app", "namespace": "shop", "annotations": annotations});
            let object: Listed = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            let (_, is_held) = object.named(ConfigKind::Secret).unwrap();
            assert_eq!(is_held, expected, "{annotations}");
        }
    }

    #[test]
    fn an_object_has_a_label_that_protects_it_and_an_annotation_that_names_its_source() {
        let pull = |namespace: &str| Reference {
            kind: ConfigKind::Secret,
            namespace: Name::parse(namespace).unwrap(),
            name: Name::parse("pull").unwrap(),
        };
        let tags = |metadata: serde_json::Value| {
            let body = json!({"metadata": metadata, "data": {}}).to_string();
            Tags::of(&pull("shop"), body.as_bytes())
        };
        let all = tags(json!({
            "labels": {PROTECT: "always", "other": "x"},
            "annotations": {COPY_OF: "platform/pull@shop", "other": "x"},
        }));
        let expected = Tags {
            protect: Some("always".to_owned()),
            copy_of: Some(pull("platform")),
        };
        assert_eq!(all, expected);
        let cloned = json!({COPY_OF: "platform/pull@elsewhere"});
        for metadata in [
            json!({}),
            json!({"labels": null, "annotations": null}),
            json!({"annotations": cloned}),
        ] {
            assert_eq!(tags(metadata.clone()), Tags::default(), "{metadata}");
        }
    }
}
