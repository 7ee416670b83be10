//! Which workloads are kept, and which of them reference a config object.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::name::Name;
use crate::reference::{ConfigKind, Reference};
use crate::workload::{Workload, WorkloadId};

/// The kept workloads and their references, both ways. Knows neither network nor time.
#[derive(Debug, Default)]
pub struct Index {
    workloads: HashMap<WorkloadId, Arc<Workload>>,
    consumers: HashMap<Reference, BTreeSet<WorkloadId>>,
    /// The workloads with regular expressions for names of a kind, by namespace.
    with_patterns: HashMap<(ConfigKind, Name), BTreeSet<WorkloadId>>,
}

/// For which objects a change of the index matters: what is remembered of them may have missed events.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Turned {
    /// Those that nobody names any more, or nobody named before.
    pub references: Vec<Reference>,
    /// All of a kind in a namespace: a regular expression was added there, or taken away.
    pub namespaces: Vec<(ConfigKind, Name)>,
}

impl Index {
    /// Takes in a workload that is kept, as it is now. Where that is news, says for which objects it
    /// matters.
    pub fn apply(&mut self, workload: Workload) -> Option<Turned> {
        let known = self.workloads.get(&workload.id);
        if known.is_some_and(|known| **known == workload) {
            return None;
        }
        let keeps_patterns =
            known.is_some_and(|it| it.references.same_patterns(&workload.references));
        let is_new = |reference: &&Reference| !self.consumers.contains_key(reference);
        let new = workload.references.named().filter(is_new);
        let mut turned = Turned {
            references: new.cloned().collect(),
            namespaces: Vec::new(),
        };
        let orphaned = self.delete(&workload.id).unwrap_or_default();
        for reference in workload.references.named() {
            let consumers = self.consumers.entry(reference.clone()).or_default();
            consumers.insert(workload.id.clone());
        }
        for place in places(&workload) {
            let workloads = self.with_patterns.entry(place).or_default();
            workloads.insert(workload.id.clone());
        }
        let is_orphaned = |reference: &Reference| !self.consumers.contains_key(reference);
        let orphans = orphaned.references.into_iter().filter(is_orphaned);
        turned.references.extend(orphans);
        if !keeps_patterns {
            turned.namespaces = orphaned.namespaces;
            turned.namespaces.extend(places(&workload));
        }
        self.workloads
            .insert(workload.id.clone(), Arc::new(workload));
        Some(turned)
    }

    /// Forgets a workload: it is gone, or no longer kept. Where it was known, says for which objects it
    /// matters.
    pub fn delete(&mut self, id: &WorkloadId) -> Option<Turned> {
        let workload = self.workloads.remove(id)?;
        let mut turned = Turned::default();
        for reference in workload.references.named() {
            if let Some(consumers) = self.consumers.get_mut(reference) {
                consumers.remove(id);
                if consumers.is_empty() {
                    self.consumers.remove(reference);
                    turned.references.push(reference.clone());
                }
            }
        }
        for place in places(&workload) {
            if let Some(workloads) = self.with_patterns.get_mut(&place) {
                workloads.remove(id);
                if workloads.is_empty() {
                    self.with_patterns.remove(&place);
                }
            }
            turned.namespaces.push(place);
        }
        Some(turned)
    }

    /// The workload, if it is kept.
    pub fn workload(&self, id: &WorkloadId) -> Option<Arc<Workload>> {
        self.workloads.get(id).cloned()
    }

    /// All that are kept.
    pub fn workloads(&self) -> impl Iterator<Item = &WorkloadId> {
        self.workloads.keys()
    }

    /// The workloads that the object may count for.
    pub fn workloads_of<'a>(
        &'a self,
        reference: &'a Reference,
    ) -> impl Iterator<Item = &'a WorkloadId> {
        let named = self.consumers.get(reference).into_iter().flatten();
        named.chain(
            self.matching(reference)
                .filter(|id| !self.is_named_by(reference, id)),
        )
    }

    /// Whether the object may count for any workload.
    pub fn is_referenced(&self, reference: &Reference) -> bool {
        self.consumers.contains_key(reference) || self.matching(reference).next().is_some()
    }

    /// How many objects are named, and how many references to them there are: one for each object of each
    /// workload. What regular expressions match is no part of it.
    pub fn referenced(&self) -> (usize, usize) {
        let references = self.consumers.values().map(BTreeSet::len).sum();
        (self.consumers.len(), references)
    }

    fn matching<'a>(&'a self, reference: &'a Reference) -> impl Iterator<Item = &'a WorkloadId> {
        let place = || (reference.kind, reference.namespace.clone());
        // Most clusters have none, and this is asked for each event of each object.
        let there = match self.with_patterns.is_empty() {
            true => None,
            false => self.with_patterns.get(&place()),
        };
        there.into_iter().flatten().filter(|id| {
            let workload = self.workloads.get(id);
            workload.is_some_and(|workload| workload.references.matches(reference))
        })
    }

    fn is_named_by(&self, reference: &Reference, id: &WorkloadId) -> bool {
        let consumers = self.consumers.get(reference);
        consumers.is_some_and(|consumers| consumers.contains(id))
    }
}

fn places(workload: &Workload) -> impl Iterator<Item = (ConfigKind, Name)> {
    let kinds = workload.references.pattern_kinds();
    kinds.map(|kind| (kind, workload.id.namespace.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{deployment, reference};
    use proptest::prelude::*;

    fn references(turned: Option<Turned>) -> Option<Vec<Reference>> {
        turned.map(|turned| turned.references)
    }

    fn names_of(index: &Index, config_map: &str) -> Vec<String> {
        index
            .workloads_of(&reference(config_map))
            .map(|id| id.name.to_string())
            .collect()
    }

    #[test]
    fn a_workload_is_found_by_what_it_lists_now() {
        let mut index = Index::default();
        let new = index.apply(deployment("web").lists("a,b").build());
        assert_eq!(references(new), Some(vec![reference("a"), reference("b")]));
        assert_eq!(
            references(index.apply(deployment("api").lists("b").build())),
            Some(vec![])
        );
        assert_eq!(names_of(&index, "b"), ["api", "web"]);
        assert_eq!(index.referenced(), (2, 3));

        let turned = index.apply(deployment("web").lists("c").build());
        assert_eq!(
            references(turned),
            Some(vec![reference("c"), reference("a")])
        );
        assert_eq!(names_of(&index, "b"), ["api"]);
        assert_eq!(names_of(&index, "c"), ["web"]);
        assert!(!index.is_referenced(&reference("a")));
    }

    #[test]
    fn the_same_workload_again_is_no_news() {
        let mut index = Index::default();
        assert!(index.apply(deployment("web").lists("a").build()).is_some());
        assert!(index.apply(deployment("web").lists("a").build()).is_none());
        assert!(
            index
                .apply(deployment("web").lists("a").stamped("x").build())
                .is_some()
        );
    }

    proptest! {
        #[test]
        fn both_ways_agree_after_any_history(
            history in prop::collection::vec(("[a-c]", prop::option::of("[a-d](,[a-d]){0,3}")), 0..40)
        ) {
            let mut index = Index::default();
            let mut expected = std::collections::BTreeMap::new();
            for (name, list) in history {
                match list {
                    Some(list) => {
                        index.apply(deployment(&name).lists(&list).build());
                        expected.insert(name, list);
                    }
                    None => {
                        index.delete(&deployment(&name).build().id);
                        expected.remove(&name);
                    }
                }
            }
            for config_map in ["a", "b", "c", "d"] {
                let listing: Vec<_> = expected.iter()
                    .filter(|(_, list)| list.split(',').any(|item| item == config_map))
                    .map(|(name, _)| name.clone())
                    .collect();
                prop_assert_eq!(names_of(&index, config_map), listing);
            }
        }
    }
}
