//! Limits: how many rollouts may be under way when a restart begins.

use crate::name::Name;
use crate::workload::WorkloadId;

/// The maximum numbers of rollouts that are under way at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The maximum in the cluster. 0 stands for no limit.
    pub cluster: usize,
    /// The maximum in each namespace. 0 stands for no limit.
    pub namespace: usize,
}

/// A limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// So many rollouts are under way in the cluster.
    Cluster(usize),
    /// So many rollouts are under way in the namespace.
    Namespace(usize),
}

/// Returns the limit that keeps a workload of a namespace from being restarted, given the workloads whose
/// rollouts are under way.
pub fn full<'a>(
    limits: Limits,
    namespace: &Name,
    under_way: impl Iterator<Item = &'a WorkloadId>,
) -> Option<Full> {
    let (mut in_cluster, mut in_namespace) = (0, 0);
    for id in under_way {
        in_cluster += 1;
        in_namespace += usize::from(id.namespace == *namespace);
    }
    let is_reached = |limit: usize, count: usize| limit > 0 && count >= limit;
    if is_reached(limits.cluster, in_cluster) {
        return Some(Full::Cluster(limits.cluster));
    }
    is_reached(limits.namespace, in_namespace).then_some(Full::Namespace(limits.namespace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::WorkloadKind;

    fn id(namespace: &str, name: &str) -> WorkloadId {
        WorkloadId {
            kind: WorkloadKind::DEPLOYMENT,
            namespace: Name::parse(namespace).unwrap(),
            name: name.into(),
        }
    }

    #[test]
    fn a_limit_is_reached_by_what_is_under_way_in_its_place() {
        let ids = [id("a", "1"), id("a", "2"), id("b", "3")];
        let full = |cluster, namespace, place: &str| {
            let limits = Limits { cluster, namespace };
            full(limits, &Name::parse(place).unwrap(), ids.iter())
        };
        assert_eq!(full(0, 0, "a"), None);
        assert_eq!(full(4, 3, "a"), None);
        assert_eq!(full(3, 0, "c"), Some(Full::Cluster(3)));
        assert_eq!(full(2, 0, "c"), Some(Full::Cluster(2)));
        assert_eq!(full(0, 2, "a"), Some(Full::Namespace(2)));
        assert_eq!(full(0, 2, "b"), None);
        assert_eq!(full(0, 1, "c"), None);
    }
}
