//! `graph`: fills the picture with everything that the user may see.

use std::collections::BTreeMap;

use pod_reloader_core::extent::Extent;
use pod_reloader_core::hash::ConfigHash;
use pod_reloader_core::name::Name;
use pod_reloader_core::reference::{ConfigKind, Reference};
use pod_reloader_core::workload::Workload;

use crate::cluster::{Cluster, Unseen};
use crate::objects;
use crate::operators::{NONE_FOUND, Operators};
use crate::picture::{ConfigNode, Edge, Graph, Hash, WorkloadNode};
use crate::print::Verdict;
use crate::workloads::{self, Seen};

/// Draws a namespace, or all. Also returns notes on what is missing, and the verdict.
pub(crate) async fn draw(
    cluster: &Cluster,
    operators: &Operators,
    namespace: Option<&Name>,
) -> Result<(Graph, Vec<String>, Verdict), Unseen> {
    let (managed, left_out, unlisted) =
        workloads::managed(cluster, operators, namespace, None, Managed::of).await;
    let mut unseen = unlisted.words;
    if managed.is_empty() {
        cluster.check_namespace(namespace).await?;
    }
    let mut there = There::new();
    for kind in ConfigKind::ALL {
        match objects::listed(cluster, kind, namespace, None).await {
            Ok(listed) => drop(there.insert(kind, listed.into_iter().collect())),
            Err(error) => unseen.push(format!("which {} are there: {error}", kind.plural())),
        }
    }
    let verdict = operators.verdict(unseen.is_empty());
    let unseen = operators.unseen.iter().chain(&unseen);
    let mut notes: Vec<_> = unseen.map(|error| format!("not seen: {error}")).collect();
    notes.extend(left_out);
    if operators.are_none() {
        notes.push(NONE_FOUND.to_owned());
    }
    Ok((graph(&managed, &there), notes, verdict))
}

/// The config objects that exist, and whether each is on hold. Kinds that cannot be seen are left out.
type There = BTreeMap<ConfigKind, BTreeMap<Reference, bool>>;

/// The part of a managed workload that is drawn.
struct Managed {
    workload: Workload,
    pods: Option<i64>,
}

impl Managed {
    fn of(seen: Seen<'_>) -> Self {
        Self {
            pods: seen.pods(),
            workload: seen.workload,
        }
    }
}

fn graph(managed: &[Managed], there: &There) -> Graph {
    let hold_of = |reference: &Reference| there.get(&reference.kind)?.get(reference).copied();
    let mut by_namespace: BTreeMap<_, Vec<&Reference>> = BTreeMap::new();
    for reference in there.values().flat_map(BTreeMap::keys) {
        let place = (reference.kind, &reference.namespace);
        by_namespace.entry(place).or_default().push(reference);
    }
    let mut edges = BTreeMap::new();
    for (at, Managed { workload, .. }) in managed.iter().enumerate() {
        let references = &workload.references;
        let in_namespace = references
            .pattern_kinds()
            .filter_map(|kind| by_namespace.get(&(kind, &workload.id.namespace)));
        let matching = in_namespace.flatten().filter(|it| references.matches(it));
        let (all, _) = references.with_matches(matching.map(|it| (*it).clone()));
        for reference in all {
            let keys: Option<Vec<String>> = match references.extent(&reference) {
                Some(Extent::Named(keys)) => Some(keys.iter().map(|key| key.to_string()).collect()),
                Some(Extent::All) | None => None,
            };
            let mut requirements = workload.requirements.iter();
            let is_required = requirements.any(|it| *it.reference == reference);
            edges.insert((reference, at), (keys, is_required));
        }
    }
    let mut objects: Vec<_> = edges.keys().map(|(object, _)| object.clone()).collect();
    objects.dedup();
    let at = |reference: &Reference| objects.binary_search(reference).expect("it was put there");
    Graph {
        edges: edges
            .into_iter()
            .map(|((reference, workload), (keys, is_required))| Edge {
                object: at(&reference),
                workload,
                keys,
                is_required,
            })
            .collect(),
        objects: objects
            .iter()
            .map(|reference| ConfigNode {
                kind: reference.kind,
                namespace: reference.namespace.to_string(),
                name: reference.name.to_string(),
                exists: (there.get(&reference.kind)).map(|it| it.contains_key(reference)),
                is_held: hold_of(reference).unwrap_or_default(),
            })
            .collect(),
        workloads: managed.iter().map(node).collect(),
    }
}

fn node(Managed { workload, pods }: &Managed) -> WorkloadNode {
    WorkloadNode {
        kind: workload.id.kind.to_string(),
        namespace: workload.id.namespace.to_string(),
        name: workload.id.name.to_string(),
        pods: *pods,
        hash: match workload.config_hash() {
            Some(value) if ConfigHash::parse(value).is_some() => Hash::Own,
            Some(_) if workload.markers.baseline.is_some() => Hash::Baseline,
            Some(_) => Hash::Foreign,
            None if workload.markers.baseline.is_some() => Hash::Baseline,
            None => Hash::None,
        },
        is_held: workload
            .rare()
            .gates
            .as_deref()
            .is_some_and(|it| it.hold.is_some()),
        stage: workload.staged().map(|it| it.stage),
    }
}

/// Returns the title of the page.
pub(crate) fn title(namespace: Option<&Name>) -> String {
    match namespace {
        Some(namespace) => format!("What restarts what in namespace {namespace}"),
        None => "What restarts what".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::read;
    use pod_reloader_core::kind::WorkloadKind;
    use pod_reloader_core::scope::Scope;
    use pod_reloader_settings::Args;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    fn name(name: impl AsRef<str>) -> Name {
        Name::parse(name.as_ref()).unwrap()
    }

    fn scope() -> Scope {
        let args = Args::of_container(["--dialects=pod-reloader,stakater"], |_| None);
        args.unwrap().scope(name("operator"))
    }

    fn managed(scope: &Scope, namespace: &str, name: &str, annotation: (&str, &str)) -> Managed {
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": name, "namespace": namespace, "uid": "1",
                "annotations": {annotation.0: annotation.1},
            },
            "spec": {"selector": {}, "template": {}},
        });
        let object = to_raw_value(&object).unwrap();
        Managed {
            workload: read(scope, WorkloadKind::DEPLOYMENT, &object).unwrap(),
            pods: Some(1),
        }
    }

    fn there(namespaces: usize, each: usize) -> There {
        let of_kind = |kind| {
            let all = (0..namespaces * each).map(|at| Reference {
                kind,
                namespace: name(format!("ns-{}", at / each)),
                name: name(format!("app-{}", at % each)),
            });
            (kind, all.map(|it| (it, false)).collect())
        };
        ConfigKind::ALL.map(of_kind).into()
    }

    #[test]
    fn a_regular_expression_matches_in_its_own_namespace_alone() {
        let list = ("configmap.reloader.stakater.com/reload", "app-[01]");
        let managed = [managed(&scope(), "ns-1", "web", list)];
        let graph = graph(&managed, &there(3, 4));
        let objects = graph.objects.iter();
        let objects: Vec<_> = objects
            .map(|it| format!("{}/{}/{}", it.kind, it.namespace, it.name))
            .collect();
        assert_eq!(objects, ["ConfigMap/ns-1/app-0", "ConfigMap/ns-1/app-1"]);
        assert_eq!(graph.edges.len(), 2);
    }

    #[test]
    fn objects_and_workloads_on_hold_are_drawn_as_such() {
        let list = ("pod-reloader.cs.sap.com/configmaps", "app-0,app-1");
        let mut web = managed(&scope(), "ns-0", "web", list);
        let held = ("pod-reloader.cs.sap.com/hold", "true");
        web.workload.rare = managed(&scope(), "ns-0", "web", held).workload.rare;
        let mut there = there(1, 2);
        let config_maps = there.get_mut(&ConfigKind::ConfigMap).unwrap();
        *config_maps.values_mut().next().unwrap() = true;
        let graph = graph(&[web], &there);
        let held = |it: &ConfigNode| (it.name.clone(), it.is_held);
        let objects = Vec::from_iter(graph.objects.iter().map(held));
        assert_eq!(
            objects,
            [("app-0".to_owned(), true), ("app-1".to_owned(), false)]
        );
        assert!(graph.workloads[0].is_held);
    }

    /// Never ends in reasonable time if each workload is compared with all objects.
    #[test]
    fn thousands_of_workloads_are_drawn_beside_many_objects() {
        let scope = scope();
        let list = ("pod-reloader.cs.sap.com/configmaps", "app-7");
        let managed: Vec<_> = (0..5000)
            .map(|at| managed(&scope, &format!("ns-{}", at % 100), "web", list))
            .collect();
        let there = there(100, 150);
        let graph = graph(&managed, &there);
        assert_eq!((graph.edges.len(), graph.objects.len()), (5000, 100));
    }
}
