//! The scope: which workloads are ours to keep.

use std::collections::BTreeSet;

use crate::name::Name;
use crate::workload::Workload;

/// The namespaces that an operator looks after.
///
/// Never `kube-system` and never its own: what keeps the cluster, or us, alive must not depend on us.
#[derive(Clone, Debug)]
pub struct Scope {
    namespaces: Option<BTreeSet<Name>>,
    own: Name,
}

impl Scope {
    /// The given namespaces, or all of them without any; `own` is that of the operator.
    pub fn new(namespaces: impl IntoIterator<Item = Name>, own: Name) -> Self {
        let namespaces: BTreeSet<_> = namespaces.into_iter().collect();
        Self {
            namespaces: (!namespaces.is_empty()).then_some(namespaces),
            own,
        }
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

    /// Whether `workload` is kept: in a namespace that is looked after, and subscribed.
    pub fn keeps(&self, workload: &Workload) -> bool {
        self.covers(&workload.id.namespace) && workload.is_subscribed()
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
    fn with_a_list_of_namespaces_only_those_are_ours() {
        let scope = Scope::new([name("other")], name("operator"));
        assert!(!scope.covers(&name("ns")));
        assert!(!scope.keeps(&deployment("web").lists("a").build()));
    }
}
