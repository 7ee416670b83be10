//! `graph`: fills the picture with what the user may see.

use std::collections::{BTreeMap, BTreeSet};

use pod_reloader_core::claim::Keys;
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};

use crate::cluster::Cluster;
use crate::graph::{ConfigNode, Edge, Graph, Hash, WorkloadNode};
use crate::objects;
use crate::operators::{NONE_FOUND, Operators};
use crate::print::Verdict;
use crate::workloads::{self, Seen};

/// The graph of a namespace, or of all; with what is missing in it, and how good it is.
pub(crate) async fn draw(
    cluster: &Cluster,
    operators: &Operators,
    namespace: Option<&Name>,
) -> (Graph, Vec<String>, Verdict) {
    let (all, mut unseen) = workloads::list(cluster, operators, namespace).await;
    let kept: Vec<_> = all.iter().filter(|seen| seen.is_kept()).collect();
    let mut there: BTreeMap<ConfigKind, BTreeSet<Reference>> = BTreeMap::new();
    for kind in ConfigKind::ALL {
        match objects::names(cluster, kind, namespace).await {
            Ok(names) => drop(there.insert(kind, names.into_iter().collect())),
            Err(error) => unseen.push(format!("which {} are there: {error}", kind.plural())),
        }
    }
    let verdict = operators.verdict(unseen.is_empty());
    let unseen = operators.unseen.iter().chain(&unseen);
    let mut notes: Vec<_> = unseen.map(|error| format!("not seen: {error}")).collect();
    notes.extend(workloads::left_out(&all));
    if operators.are_none() {
        notes.push(NONE_FOUND.to_owned());
    }
    (graph(&kept, &there), notes, verdict)
}

fn graph(kept: &[&Seen<'_>], there: &BTreeMap<ConfigKind, BTreeSet<Reference>>) -> Graph {
    let exists = |reference: &Reference| Some(there.get(&reference.kind)?.contains(reference));
    let mut edges = Vec::new();
    let mut objects = BTreeSet::new();
    for (workload, seen) in kept.iter().enumerate() {
        let workload_namespace = &seen.workload.id.namespace;
        let in_namespace = there.values().flatten();
        let in_namespace = in_namespace.filter(|it| it.namespace == *workload_namespace);
        let references = &seen.workload.references;
        let (all, _) = references.with_matches(in_namespace.cloned());
        for reference in all {
            let keys = match references.keys(&reference) {
                Some(Keys::Named(keys)) => Some(keys.iter().map(|key| key.to_string()).collect()),
                Some(Keys::All) | None => None,
            };
            let mut requirements = seen.workload.requirements.iter();
            let is_required = requirements.any(|it| it.reference == reference);
            objects.insert(reference.clone());
            edges.push((reference, workload, keys, is_required));
        }
    }
    let objects: Vec<_> = objects.into_iter().collect();
    let at = |reference: &Reference| objects.binary_search(reference).expect("it was put there");
    let mut edges: Vec<_> = edges
        .into_iter()
        .map(|(reference, workload, keys, is_required)| Edge {
            object: at(&reference),
            workload,
            keys,
            is_required,
        })
        .collect();
    edges.sort_by_key(|edge| (edge.object, edge.workload));
    Graph {
        edges,
        objects: objects
            .iter()
            .map(|reference| ConfigNode {
                kind: reference.kind,
                namespace: reference.namespace.to_string(),
                name: reference.name.to_string(),
                exists: exists(reference),
            })
            .collect(),
        workloads: kept.iter().map(|seen| node(seen)).collect(),
    }
}

fn node(seen: &Seen<'_>) -> WorkloadNode {
    let workload = &seen.workload;
    WorkloadNode {
        kind: workload.id.kind.to_string(),
        namespace: workload.id.namespace.to_string(),
        name: workload.id.name.to_string(),
        pods: seen.pods(),
        hash: match workload.config_hash() {
            Some(value) if ConfigHash::parse(value).is_some() => Hash::Own,
            Some(_) if workload.markers.baseline.is_some() => Hash::Baseline,
            Some(_) => Hash::Foreign,
            None if workload.markers.baseline.is_some() => Hash::Baseline,
            None => Hash::None,
        },
    }
}

/// What the page is called.
pub(crate) fn title(namespace: Option<&Name>) -> String {
    match namespace {
        Some(namespace) => format!("What restarts what in namespace {namespace}"),
        None => "What restarts what".to_owned(),
    }
}
