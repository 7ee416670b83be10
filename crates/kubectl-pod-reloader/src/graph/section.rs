//! What of a graph is in one namespace: objects restart workloads of their own namespace alone.

use std::collections::{BTreeMap, BTreeSet};

use super::{Edge, Graph};

/// One namespace of a graph.
#[derive(Debug, Default)]
pub(super) struct Section<'a> {
    /// Its name; empty for what is in no namespace.
    pub(super) namespace: &'a str,
    /// Where its objects are in [`Graph::objects`], sorted.
    pub(super) objects: Vec<usize>,
    /// Where its workloads are in [`Graph::workloads`], sorted.
    pub(super) workloads: Vec<usize>,
    /// Where its edges are in [`Graph::edges`].
    pub(super) edges: Vec<usize>,
}

/// The namespaces of `graph`, by name.
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
    /// The workloads that no edge leads to, with an object to which they can be tied without a line, so
    /// that they stand in the same column as the others.
    pub(super) fn untied(&self, edges: &[Edge]) -> impl Iterator<Item = (usize, usize)> {
        let tied = self.edges.iter().map(|&edge| edges[edge].workload);
        let tied: BTreeSet<_> = tied.collect();
        let object = self.objects.first().copied();
        let workloads = self.workloads.iter().copied();
        let untied = workloads.filter(move |workload| !tied.contains(workload));
        untied.filter_map(move |workload| Some((object?, workload)))
    }
}
