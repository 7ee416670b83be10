//! The scope: which workloads are ours to keep.

use std::collections::{BTreeMap, BTreeSet};

use kube_core::{Expression, Selector, SelectorExt};

use crate::name::Name;
use crate::workload::{SelectingLabels, Workload};

/// The namespaces and the workloads that an operator looks after.
///
/// Never `kube-system` and never its own: what keeps the cluster, or us, alive must not depend on us.
#[derive(Clone, Debug)]
pub struct Scope {
    namespaces: Option<BTreeSet<Name>>,
    own: Name,
    labels: Labels,
    /// The keys that the selector of workloads asks for.
    selecting_keys: Vec<String>,
}

/// Labels that are asked for. The default asks for none.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// Of the namespaces.
    pub namespace: Option<Selector>,
    /// Of the workloads themselves.
    pub workload: Option<Selector>,
}

impl Scope {
    /// The given namespaces, or all of them without any; `own` is that of the operator.
    pub fn new(namespaces: impl IntoIterator<Item = Name>, own: Name) -> Self {
        let namespaces: BTreeSet<_> = namespaces.into_iter().collect();
        Self {
            namespaces: (!namespaces.is_empty()).then_some(namespaces),
            own,
            labels: Labels::default(),
            selecting_keys: Vec::new(),
        }
    }

    /// The same, for those with `labels` alone.
    #[must_use]
    pub fn with_labels(self, labels: Labels) -> Self {
        let key = |expression| match expression {
            Expression::In(key, _)
            | Expression::NotIn(key, _)
            | Expression::Equal(key, _)
            | Expression::NotEqual(key, _)
            | Expression::Exists(key)
            | Expression::DoesNotExist(key) => key,
        };
        let expressions = labels.workload.iter().cloned().flatten();
        Self {
            selecting_keys: expressions.map(key).collect(),
            labels,
            ..self
        }
    }

    /// The labels of a workload by which it is selected, out of all of its `labels`: where one of them
    /// changes, it may no longer be.
    pub fn selecting_labels(&self, labels: &BTreeMap<String, String>) -> SelectingLabels {
        let value = |key| labels.get(key).map(|value| value.as_str().into());
        let keys = self.selecting_keys.iter();
        keys.map(|key| (key.as_str().into(), value(key))).collect()
    }

    /// The labels that a namespace must have, if any. Whether it has them is for the caller to know.
    pub fn namespace_selector(&self) -> Option<&Selector> {
        self.labels.namespace.as_ref()
    }

    /// Whether `namespace` is looked after.
    pub fn covers(&self, namespace: &Name) -> bool {
        namespace.as_str() != KUBE_SYSTEM
            && *namespace != self.own
            && self
                .namespaces
                .as_ref()
                .is_none_or(|namespaces| namespaces.contains(namespace))
    }

    /// Whether `workload` is kept: in a namespace that is looked after, subscribed, and selected by its
    /// [`Scope::selecting_labels`].
    pub fn keeps(&self, workload: &Workload) -> bool {
        self.covers(&workload.id.namespace)
            && workload.is_subscribed()
            && self.selects(&workload.markers.selecting)
    }

    fn selects(&self, labels: &SelectingLabels) -> bool {
        let Some(selector) = &self.labels.workload else {
            return true;
        };
        let present = labels
            .iter()
            .filter_map(|(key, value)| Some((key.to_string(), value.as_deref()?.to_owned())))
            .collect();
        selector.matches(&present)
    }

    /// The namespaces to watch one by one. `None` stands for all of them at once.
    pub fn namespaces(&self) -> Option<impl Iterator<Item = &Name>> {
        self.namespaces
            .as_ref()
            .map(|namespaces| namespaces.iter().filter(|name| self.covers(name)))
    }
}

const KUBE_SYSTEM: &str = "kube-system";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::deployment;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    #[test]
    fn kube_system_and_our_own_namespace_are_never_ours() {
        for scope in [
            Scope::new([], name("operator")),
            Scope::new(
                ["kube-system", "operator", "ns"].map(name),
                name("operator"),
            ),
        ] {
            assert!(!scope.covers(&name("kube-system")));
            assert!(!scope.covers(&name("operator")));
            assert!(scope.covers(&name("ns")));
            assert!(scope.keeps(&deployment("web").lists("a").build()));
            assert!(!scope.keeps(&deployment("web").build()));
        }
    }

    #[test]
    fn with_a_selector_only_workloads_with_its_labels_are_ours() {
        let selector = Selector::from_iter([("team".to_owned(), "shop".to_owned())]);
        let scope = Scope::new([], name("operator")).with_labels(Labels {
            workload: Some(selector),
            namespace: None,
        });
        let keeps = |labels: &[(&str, &str)]| {
            let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            let mut workload = deployment("web").lists("a").build();
            workload.markers.selecting =
                scope.selecting_labels(&labels.iter().map(owned).collect());
            scope.keeps(&workload)
        };
        assert!(keeps(&[("team", "shop"), ("tier", "front")]));
        assert!(!keeps(&[("team", "billing")]));
        assert!(!keeps(&[]));
    }

    #[test]
    fn with_a_list_of_namespaces_only_those_are_ours() {
        let scope = Scope::new([name("other")], name("operator"));
        assert!(!scope.covers(&name("ns")));
        assert!(!scope.keeps(&deployment("web").lists("a").build()));
    }
}
