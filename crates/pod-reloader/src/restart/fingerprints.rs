//! Remembers the entries that a workload tracks by key, as they were when its config hash was right.

use std::collections::HashSet;

use pod_reloader_core::reference::Reference;

/// Fingerprints of the tracked entries, sorted by the objects of which single keys are tracked.
#[derive(Default)]
pub(crate) struct Fingerprints(Box<[(Reference, u64)]>);

impl Fingerprints {
    /// Takes in the fingerprints as they are now. If the hash is right, they replace the stored ones; otherwise only
    /// those of unknown objects are added. Returns the objects whose fingerprints are the same as when the hash was
    /// right.
    pub(crate) fn unchanged(
        &mut self,
        mut now: Vec<(Reference, u64)>,
        is_right: bool,
    ) -> HashSet<Reference> {
        let mut unchanged = HashSet::new();
        for (reference, fingerprint) in &mut now {
            let known = self.of(reference).unwrap_or(*fingerprint);
            if known == *fingerprint {
                unchanged.insert(reference.clone());
            } else if !is_right {
                *fingerprint = known;
            }
        }
        now.sort_unstable();
        self.0 = now.into();
        unchanged
    }

    /// Returns true if no keys are tracked individually.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, reference: &Reference) -> Option<u64> {
        let at = self.0.binary_search_by(|(known, _)| known.cmp(reference));
        at.ok().map(|at| self.0[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_reloader_core::name::Name;

    #[test]
    fn entries_are_unchanged_until_they_differ_from_when_the_hash_was_right() {
        let object = |name: &str| {
            let [namespace, name] = ["ns", name].map(|it| Name::parse(it).unwrap());
            Reference::config_map(&namespace, &name)
        };
        let mut fingerprints = Fingerprints::default();
        let mut unchanged = |now: &[(&str, u64)], is_right| {
            let now = now.iter().map(|&(name, print)| (object(name), print));
            fingerprints.unchanged(now.collect(), is_right)
        };
        let [a, b] = ["a", "b"].map(object);
        let both = HashSet::from([a.clone(), b.clone()]);
        assert_eq!(unchanged(&[("b", 1), ("a", 1)], true), both);
        let only_a = HashSet::from([a]);
        assert_eq!(unchanged(&[("a", 1), ("b", 2)], false), only_a);
        assert_eq!(unchanged(&[("a", 1), ("b", 2)], false), only_a);
        assert_eq!(unchanged(&[("a", 1), ("b", 2)], true), only_a);
        assert_eq!(unchanged(&[("a", 1), ("b", 2)], false), both);
        assert_eq!(unchanged(&[("b", 2)], false), HashSet::from([b]));
        assert_eq!(unchanged(&[], false), HashSet::new());
        assert!(fingerprints.is_empty());
    }
}
