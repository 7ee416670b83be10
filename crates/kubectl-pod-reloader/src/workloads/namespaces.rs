//! Reads namespaces, by whose labels and annotations operators may go.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cluster::{Cluster, Place, Unseen};
use crate::operators::{self, Namespace, Operators};
use crate::print::some;

/// The namespaces, if they matter. Each is read once.
#[derive(Default)]
pub(crate) struct Namespaces(BTreeMap<String, Result<Namespace, Unseen>>);

impl Namespaces {
    /// Returns a namespace. `None` if no operator goes by it, or if it cannot be read.
    pub(crate) async fn of(
        &mut self,
        cluster: &Cluster,
        operators: &Operators,
        name: &str,
    ) -> Option<&Namespace> {
        if !operators.read_namespaces() {
            return None;
        }
        if !self.0.contains_key(name) {
            let namespace = match operators::namespace(cluster, name).await {
                // It is yet to be created, and so are its workloads, whatever it will say of them.
                Err(error) if error.is_absent() => Ok(Namespace::default()),
                namespace => namespace,
            };
            self.0.insert(name.to_owned(), namespace);
        }
        self.0.get(name)?.as_ref().ok()
    }

    /// Reads all namespaces, page by page, if they matter. Those that cannot be listed are read one by one later.
    pub(crate) async fn read_all(&mut self, cluster: &Cluster, operators: &Operators) {
        if !operators.read_namespaces() {
            return;
        }
        let mut pages = cluster.metadata_pages(Place::new("v1", "namespaces", None), "");
        while let Ok(Some(page)) = pages.next::<Value>().await {
            for mut namespace in page {
                if let Some(name) = namespace["metadata"]["name"].as_str() {
                    let name = name.to_owned();
                    self.0.insert(name, Ok(Namespace::of(&mut namespace)));
                }
            }
        }
    }

    /// Returns true if one could not be read that may be readable a moment later.
    pub(crate) fn may_be_seen_later(&self) -> bool {
        let mut unseen = self.0.values().filter_map(|it| it.as_ref().err());
        unseen.any(Unseen::is_temporary)
    }

    /// Describes everything that could not be read.
    pub(crate) fn unseen(&self, operators: &Operators) -> Option<String> {
        const NAMED: usize = 3;
        let mut namespaces = Vec::new();
        let mut first = None;
        for (name, namespace) in &self.0 {
            if let Err(error) = namespace {
                namespaces.push(name.as_str());
                first = first.or(Some(error));
            }
        }
        let error = first?;
        let of = some(&namespaces, NAMED);
        Some(match operators.select_namespaces() {
            true => format!("whether the operator selects namespace {of}: {error}"),
            false => format!("what the annotations of namespace {of} say: {error}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_that_cannot_be_read_are_reported_in_one_line() {
        let forbidden = || {
            Err(Unseen::Forbidden {
                what: "get namespaces".to_owned(),
                message: String::new(),
            })
        };
        let operators = Operators::without_any(true);
        let mut namespaces = Namespaces::default();
        namespaces
            .0
            .insert("seen".to_owned(), Ok(Namespace::default()));
        assert_eq!(namespaces.unseen(&operators), None);
        for namespace in ["a", "b", "c", "d", "e"] {
            namespaces.0.insert(namespace.to_owned(), forbidden());
        }
        let told = namespaces.unseen(&operators).unwrap();
        let expected =
            "what the annotations of namespace a, b, c and 2 more say: you may not get namespaces";
        assert_eq!(told, expected);
    }
}
