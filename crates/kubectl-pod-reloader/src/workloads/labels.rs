//! Reads the labels of namespaces, by which operators may select them.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Unseen};
use crate::operators::{self, Operators};
use crate::print::some;

/// The labels of namespaces, if they matter. Each namespace is read once.
#[derive(Default)]
pub(super) struct Labels(BTreeMap<String, Result<BTreeMap<String, String>, Unseen>>);

impl Labels {
    /// Returns the labels of a namespace. `None` if no operator selects by them, or if they cannot be read.
    pub(super) async fn of(
        &mut self,
        cluster: &Cluster,
        operators: &Operators,
        namespace: &str,
    ) -> Option<&BTreeMap<String, String>> {
        if !operators.select_namespaces() {
            return None;
        }
        if !self.0.contains_key(namespace) {
            let labels = operators::labels(cluster, namespace).await;
            self.0.insert(namespace.to_owned(), labels);
        }
        self.0.get(namespace)?.as_ref().ok()
    }

    /// Describes everything that could not be read.
    pub(super) fn unseen(&self) -> Option<String> {
        const NAMED: usize = 3;
        let mut namespaces = Vec::new();
        let mut first = None;
        for (namespace, labels) in &self.0 {
            if let Err(error) = labels {
                namespaces.push(namespace.as_str());
                first = first.or(Some(error));
            }
        }
        let error = first?;
        let of = some(&namespaces, NAMED);
        Some(format!(
            "whether the operator selects namespace {of}: {error}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_of_which_the_labels_cannot_be_read_are_told_in_one_line() {
        let forbidden = || Err(Unseen::Forbidden("get namespaces".to_owned()));
        let mut labels = Labels::default();
        labels.0.insert("seen".to_owned(), Ok(BTreeMap::new()));
        assert_eq!(labels.unseen(), None);
        for namespace in ["a", "b", "c", "d", "e"] {
            labels.0.insert(namespace.to_owned(), forbidden());
        }
        let told = labels.unseen().unwrap();
        let expected = "namespace a, b, c and 2 more: you may not get namespaces";
        assert!(told.ends_with(expected), "{told}");
    }
}
