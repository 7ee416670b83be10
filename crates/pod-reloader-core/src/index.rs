//! Which workloads are kept, and which of them reference a config object.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::reference::Reference;
use crate::workload::{Workload, WorkloadId};

/// The kept workloads and their references, both ways. Knows neither network nor time.
#[derive(Debug, Default)]
pub struct Index {
    workloads: HashMap<WorkloadId, Arc<Workload>>,
    consumers: HashMap<Reference, BTreeSet<WorkloadId>>,
}

impl Index {
    /// Takes in a workload that is kept, as it is now. Where that is news, says for which objects it
    /// matters: those that nobody references any more, and those that nobody referenced before.
    pub fn apply(&mut self, workload: Workload) -> Option<Vec<Reference>> {
        if self
            .workloads
            .get(&workload.id)
            .is_some_and(|known| **known == workload)
        {
            return None;
        }
        let accepted = &workload.references.accepted;
        let is_new = |reference: &&Reference| !self.is_referenced(reference);
        let mut turned: Vec<_> = accepted.iter().filter(is_new).cloned().collect();
        let mut orphaned = self.delete(&workload.id).unwrap_or_default();
        orphaned.retain(|reference| !accepted.contains(reference));
        turned.append(&mut orphaned);
        for reference in accepted {
            self.consumers
                .entry(reference.clone())
                .or_default()
                .insert(workload.id.clone());
        }
        self.workloads
            .insert(workload.id.clone(), Arc::new(workload));
        Some(turned)
    }

    /// Forgets a workload: it is gone, or no longer kept. Where it was known, says which objects nobody
    /// references any more.
    pub fn delete(&mut self, id: &WorkloadId) -> Option<Vec<Reference>> {
        let workload = self.workloads.remove(id)?;
        let mut orphaned = Vec::new();
        for reference in &workload.references.accepted {
            if let Some(consumers) = self.consumers.get_mut(reference) {
                consumers.remove(id);
                if consumers.is_empty() {
                    self.consumers.remove(reference);
                    orphaned.push(reference.clone());
                }
            }
        }
        Some(orphaned)
    }

    /// The workload, if it is kept.
    pub fn workload(&self, id: &WorkloadId) -> Option<Arc<Workload>> {
        self.workloads.get(id).cloned()
    }

    /// All that are kept.
    pub fn workloads(&self) -> impl Iterator<Item = &WorkloadId> {
        self.workloads.keys()
    }

    /// The workloads that list the object.
    pub fn workloads_of(&self, reference: &Reference) -> impl Iterator<Item = &WorkloadId> {
        self.consumers.get(reference).into_iter().flatten()
    }

    /// Whether any workload lists the object.
    pub fn is_referenced(&self, reference: &Reference) -> bool {
        self.consumers.contains_key(reference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{deployment, reference};
    use proptest::prelude::*;

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
        assert_eq!(new, Some(vec![reference("a"), reference("b")]));
        assert_eq!(
            index.apply(deployment("api").lists("b").build()),
            Some(vec![])
        );
        assert_eq!(names_of(&index, "b"), ["api", "web"]);

        let turned = index.apply(deployment("web").lists("c").build());
        assert_eq!(turned, Some(vec![reference("c"), reference("a")]));
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
