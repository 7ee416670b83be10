//! Splits a graph by namespace: objects restart workloads of their own namespace only.

use std::collections::{BTreeMap, BTreeSet};

use super::{Edge, Graph};

/// One namespace of a graph.
#[derive(Debug, Default)]
pub(super) struct Section<'a> {
    /// Name of the namespace; empty for objects without one.
    pub(super) namespace: &'a str,
    /// Indices of its objects in [`Graph::objects`], sorted.
    pub(super) objects: Vec<usize>,
    /// Indices of its workloads in [`Graph::workloads`], sorted.
    pub(super) workloads: Vec<usize>,
    /// Indices of its edges in [`Graph::edges`].
    pub(super) edges: Vec<usize>,
}

/// Returns the namespaces of `graph`, sorted by name.
pub(super) fn sections(graph: &Graph) -> Vec<Section<'_>> {
    let mut sections: BTreeMap<&str, Section<'_>> = BTreeMap::new();
    for (index, object) in graph.objects.iter().enumerate() {
        let section = sections.entry(&object.namespace).or_default();
        section.objects.push(index);
    }
    for (index, workload) in graph.workloads.iter().enumerate() {
        let section = sections.entry(&workload.namespace).or_default();
        section.workloads.push(index);
    }
    for (index, edge) in graph.edges.iter().enumerate() {
        let namespace = graph.workloads[edge.workload].namespace.as_str();
        sections.entry(namespace).or_default().edges.push(index);
    }
    let named = |(namespace, section)| Section {
        namespace,
        ..section
    };
    sections.into_iter().map(named).collect()
}

impl Section<'_> {
    /// Returns the workloads that no edge leads to. Each comes with an object to tie it to by an invisible
    /// line, so that it stands in the same column as the others.
    pub(super) fn untied(&self, edges: &[Edge]) -> impl Iterator<Item = (usize, usize)> {
        let tied = self.edges.iter().map(|&edge| edges[edge].workload);
        let tied: BTreeSet<_> = tied.collect();
        let object = self.objects.first().copied();
        let workloads = self.workloads.iter().copied();
        let untied = workloads.filter(move |workload| !tied.contains(workload));
        untied.filter_map(move |workload| Some((object?, workload)))
    }
}
