//! Limits: how many rollouts may be in progress when a restart begins, and which waiting one begins next.

mod line;
mod slots;

use std::collections::{HashMap, VecDeque};

pub use self::slots::Slots;
use crate::name::Name;

/// The maximum numbers of rollouts that are in progress at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The maximum in the cluster. 0 stands for no limit.
    pub cluster: usize,
    /// The maximum in each namespace. 0 stands for no limit.
    pub namespace: usize,
}

impl Limits {
    /// Returns true if anything is limited.
    pub fn are_set(self) -> bool {
        self != Self::default()
    }

    /// Returns the part of the cluster's limit that one namespace has: its own limit, or else half of the
    /// cluster's.
    fn part(self) -> usize {
        match (self.namespace, self.cluster) {
            (0, 0) => usize::MAX,
            (0, cluster) => (cluster / 2).max(1),
            (namespace, _) => namespace,
        }
    }
}

/// A limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// So many rollouts are in progress in the cluster.
    Cluster(usize),
    /// So many rollouts are in progress in the namespace, which is its limit.
    Namespace(usize),
    /// So many rollouts are in progress in the namespace, which is its part of the cluster's limit.
    Part(usize),
}

/// The rollouts that are in progress, by namespace.
///
/// # Guarantees
///
/// - A namespace in which no rollout is in progress is never full. So it can restart one workload whatever happens
///   in others, and restarts exceed the limit of the cluster by at most one for each namespace.
/// - The rollouts of one namespace fill no more than its part of the cluster's limit, no matter who began them.
#[derive(Clone, Debug)]
pub struct Rollouts {
    limits: Limits,
    by_namespace: HashMap<Name, usize>,
    /// The number of rollouts that count against the limit of the cluster.
    counted: usize,
}

impl Rollouts {
    /// Counts the rollouts that are in progress. Each is given by its namespace.
    pub fn new<'a>(limits: Limits, in_progress: impl IntoIterator<Item = &'a Name>) -> Self {
        let mut rollouts = Self {
            limits,
            by_namespace: HashMap::new(),
            counted: 0,
        };
        for namespace in in_progress {
            rollouts.add(namespace);
        }
        rollouts
    }

    /// Returns the limit that keeps the workloads of a namespace from being restarted.
    pub fn full(&self, namespace: &Name) -> Option<Full> {
        let (part, cluster) = (self.limits.part(), self.limits.cluster);
        match self.by_namespace.get(namespace) {
            None => None,
            Some(own) if *own >= part && self.limits.namespace == 0 => Some(Full::Part(part)),
            Some(own) if *own >= part => Some(Full::Namespace(part)),
            Some(_) if cluster > 0 && self.counted >= cluster => Some(Full::Cluster(cluster)),
            Some(_) => None,
        }
    }

    /// Lets waiting workloads begin until the limits are reached, and returns them in that order. Namespaces take
    /// turns in the order of `lines`. Each line begins with the workload that has waited longest.
    pub fn begin<'a, T, L: IntoIterator<Item = T>>(
        &mut self,
        lines: impl IntoIterator<Item = (&'a Name, L)>,
    ) -> Vec<T> {
        let lines = lines.into_iter();
        let mut turns: VecDeque<_> = lines
            .map(|(namespace, line)| (namespace, line.into_iter()))
            .collect();
        let mut begun = Vec::new();
        while let Some((namespace, mut line)) = turns.pop_front() {
            // A namespace that is full stays so, because no rollout ends here.
            if self.full(namespace).is_none()
                && let Some(next) = line.next()
            {
                self.add(namespace);
                begun.push(next);
                turns.push_back((namespace, line));
            }
        }
        begun
    }

    fn add(&mut self, namespace: &Name) {
        let own = self.by_namespace.entry(namespace.clone()).or_default();
        self.counted += usize::from(*own < self.limits.part());
        *own += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::name;

    const fn limits(cluster: usize, namespace: usize) -> Limits {
        Limits { cluster, namespace }
    }

    /// Returns the limit that a namespace has reached, if rollouts are in progress in these namespaces.
    fn full(limits: Limits, in_progress: &[&str], namespace: &str) -> Option<Full> {
        let in_progress: Vec<_> = in_progress.iter().map(|it| name(it)).collect();
        Rollouts::new(limits, &in_progress).full(&name(namespace))
    }

    /// Returns the workloads that begin, of those that wait in these namespaces.
    fn begun<const N: usize>(
        limits: Limits,
        in_progress: &[&str],
        lines: [(&str, &[&'static str]); N],
    ) -> Vec<&'static str> {
        let in_progress: Vec<_> = in_progress.iter().map(|it| name(it)).collect();
        let lines = lines.map(|(namespace, line)| (name(namespace), line.to_vec()));
        let lines = lines
            .iter()
            .map(|(namespace, line)| (namespace, line.clone()));
        Rollouts::new(limits, &in_progress).begin(lines)
    }

    #[test]
    fn without_limits_nothing_waits() {
        assert_eq!(full(limits(0, 0), &["a"; 100], "a"), None);
        assert_eq!(
            begun(limits(0, 0), &["a"], [("a", &["1", "2"][..])]),
            ["1", "2"]
        );
    }

    #[test]
    fn the_limit_of_the_cluster_is_reached_by_the_rollouts_of_all_namespaces() {
        let in_progress = ["a", "b", "b", "c"];
        assert_eq!(full(limits(5, 0), &in_progress, "a"), None);
        assert_eq!(
            full(limits(4, 0), &in_progress, "a"),
            Some(Full::Cluster(4))
        );
        assert_eq!(
            full(limits(4, 9), &in_progress, "b"),
            Some(Full::Cluster(4))
        );
    }

    #[test]
    fn a_namespace_has_its_own_limit_or_half_of_the_one_of_the_cluster() {
        let full = |cluster, namespace, own| full(limits(cluster, namespace), &vec!["a"; own], "a");
        assert_eq!(full(0, 2, 1), None);
        assert_eq!(full(0, 2, 2), Some(Full::Namespace(2)));
        assert_eq!(full(9, 2, 2), Some(Full::Namespace(2)));
        assert_eq!(full(5, 0, 1), None);
        assert_eq!(full(5, 0, 2), Some(Full::Part(2)));
        assert_eq!(full(1, 0, 1), Some(Full::Part(1)));
        assert_eq!(full(5, 5, 4), None);
    }

    #[test]
    fn rollouts_of_one_namespace_leave_the_rest_of_the_limit_to_others() {
        let in_progress = ["eve", "eve", "eve", "eve", "eve", "eve", "shop", "shop"];
        assert_eq!(full(limits(6, 0), &in_progress, "shop"), None);
        assert_eq!(full(limits(6, 3), &in_progress, "shop"), None);
        assert_eq!(
            full(limits(6, 1), &in_progress, "eve"),
            Some(Full::Namespace(1))
        );
        // Half of the limit is taken by each.
        let in_progress = ["eve", "eve", "eve", "eve", "shop", "shop"];
        let more = [&in_progress[..], &["bank"]].concat();
        assert_eq!(full(limits(4, 0), &more, "bank"), Some(Full::Cluster(4)));
    }

    #[test]
    fn a_namespace_without_a_rollout_always_begins_one_and_no_more_beyond_the_limit() {
        let in_progress = ["a", "a", "b", "b"];
        assert_eq!(full(limits(4, 0), &in_progress, "c"), None);
        let lines = [("c", &["c1", "c2"][..]), ("d", &["d1", "d2"][..])];
        assert_eq!(begun(limits(4, 0), &in_progress, lines), ["c1", "d1"]);
    }

    #[test]
    fn namespaces_take_turns_and_within_one_the_longest_waiting_begins() {
        let lines = [
            ("b", &["b1", "b2", "b3"][..]),
            ("a", &["a1"][..]),
            ("c", &["c1", "c2"][..]),
        ];
        let begun = |cluster, in_progress: &[&str]| begun(limits(cluster, 0), in_progress, lines);
        assert_eq!(begun(6, &[]), ["b1", "a1", "c1", "b2", "c2", "b3"]);
        assert_eq!(begun(4, &[]), ["b1", "a1", "c1", "b2"]);
        assert_eq!(begun(4, &["a", "b", "c"]), ["b1"]);
        assert_eq!(begun(4, &["b", "b", "c"]), ["a1"]);
    }

    #[test]
    fn a_full_namespace_loses_its_turn_and_holds_up_nobody() {
        let lines = [("eve", &["e1", "e2"][..]), ("shop", &["s1", "s2"][..])];
        assert_eq!(begun(limits(6, 0), &["eve"; 9], lines), ["s1", "s2"]);
    }
}
