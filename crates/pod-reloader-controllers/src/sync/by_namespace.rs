//! A map by namespace that takes little more memory than what is in it.

use std::mem;

use pod_reloader_core::name::Name;

/// What is known of each of many namespaces, sorted by name.
///
/// All of it is in one allocation, which grows by a quarter. Hash maps and trees take up to twice as much as their
/// entries, and there may be thousands of namespaces with a copy in each. They are listed in the order of their names,
/// so most of them are added at the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ByNamespace<T>(Vec<(Name, T)>);

impl<T> ByNamespace<T> {
    pub(super) fn get(&self, namespace: &Name) -> Option<&T> {
        let at = self.position(namespace).ok()?;
        Some(&self.0[at].1)
    }

    pub(super) fn get_mut(&mut self, namespace: &Name) -> Option<&mut T> {
        let at = self.position(namespace).ok()?;
        Some(&mut self.0[at].1)
    }

    pub(super) fn contains(&self, namespace: &Name) -> bool {
        self.position(namespace).is_ok()
    }

    /// Puts in what is known of a namespace, and returns what was there.
    pub(super) fn insert(&mut self, namespace: Name, known: T) -> Option<T> {
        match self.position(&namespace) {
            Ok(at) => Some(mem::replace(&mut self.0[at].1, known)),
            Err(at) => {
                self.add(at, namespace, known);
                None
            }
        }
    }

    pub(super) fn remove(&mut self, namespace: &Name) -> Option<T> {
        let at = self.position(namespace).ok()?;
        Some(self.0.remove(at).1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Name, &T)> {
        self.0.iter().map(|(namespace, known)| (namespace, known))
    }

    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Name> {
        self.0.iter().map(|(namespace, _)| namespace)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, known)| known)
    }

    fn position(&self, namespace: &Name) -> Result<usize, usize> {
        match self.0.last() {
            Some((last, _)) if last < namespace => Err(self.0.len()),
            _ => self.0.binary_search_by(|(own, _)| own.cmp(namespace)),
        }
    }

    fn add(&mut self, at: usize, namespace: Name, known: T) {
        if self.0.len() == self.0.capacity() {
            self.0.reserve_exact(self.0.len() / 4 + 1);
        }
        self.0.insert(at, (namespace, known));
    }
}

impl<T: Default> ByNamespace<T> {
    /// Returns what is known of a namespace, to change it.
    pub(super) fn or_default(&mut self, namespace: &Name) -> &mut T {
        let at = self.position(namespace).unwrap_or_else(|at| {
            self.add(at, namespace.clone(), T::default());
            at
        });
        &mut self.0[at].1
    }
}

impl<T> Default for ByNamespace<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Extend<(Name, T)> for ByNamespace<T> {
    fn extend<I: IntoIterator<Item = (Name, T)>>(&mut self, all: I) {
        for (namespace, known) in all {
            self.insert(namespace, known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::name;

    impl<T> FromIterator<(Name, T)> for ByNamespace<T> {
        fn from_iter<I: IntoIterator<Item = (Name, T)>>(all: I) -> Self {
            let mut map = Self::default();
            map.extend(all);
            map
        }
    }

    #[test]
    fn it_is_sorted_in_whichever_order_it_is_filled() {
        let mut map: ByNamespace<u8> = [("b", 1), ("d", 2), ("a", 3), ("c", 4)]
            .map(|(namespace, known)| (name(namespace), known))
            .into_iter()
            .collect();
        assert_eq!(map.insert(name("c"), 5), Some(4));
        *map.or_default(&name("aa")) += 6;
        *map.or_default(&name("b")) += 6;
        assert_eq!(map.remove(&name("d")), Some(2));
        assert_eq!(map.remove(&name("d")), None);
        let all: Vec<_> = map
            .iter()
            .map(|(it, known)| (it.as_str(), *known))
            .collect();
        assert_eq!(all, [("a", 3), ("aa", 6), ("b", 7), ("c", 5)]);
        assert_eq!((map.get(&name("b")), map.get(&name("d"))), (Some(&7), None));
        assert!(map.contains(&name("aa")) && !map.contains(&name("z")));
    }

    #[test]
    fn it_has_room_for_a_quarter_more_at_most() {
        let mut map = ByNamespace::default();
        for number in 0..1_000 {
            map.insert(name(&format!("team-{number}")), ());
            assert!(map.0.capacity() <= map.0.len() + map.0.len() / 4 + 1);
        }
    }
}
