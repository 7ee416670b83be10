//! Remembers what the last look at the copies of each namespace has found.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pod_reloader_core::name::Name;
use tokio::time::Instant;

use crate::runtime::share::{Charge, Shares};

/// The memory that the looks at one namespace may take, in bytes: several times what most namespaces need.
const NAMESPACE_MEMORY: usize = 4 << 20;
/// The memory that the looks at all namespaces may take, in bytes.
const MEMORY: usize = 32 << 20;
/// The memory that a look takes in any case, in bytes.
const LOOK: usize = 512;
/// The memory that an entry of it takes, apart from texts, in bytes.
const ENTRY: usize = 96;

/// What is known of copies.
pub(super) struct Known {
    /// The namespaces that may have copies. True if the watch has shown one since the last look began.
    namespaces: HashMap<Name, bool>,
    looks: HashMap<Name, Remembered>,
    shares: Shares,
    /// The namespaces that have too many copies.
    too_large: BTreeSet<Name>,
    /// The UIDs of the copies that we have deleted and whose deletion the watch has not shown yet.
    pub(super) deleted: BTreeSet<Box<str>>,
    /// The namespaces in which we have deleted some, with the time to look again: somebody may have named one in
    /// that moment.
    pub(super) look_again: HashMap<Name, Instant>,
}

/// What a look at a namespace has found.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// The number of copies.
    pub(super) copies: usize,
    /// The UIDs of those that nobody used.
    pub(super) unused: BTreeSet<Box<str>>,
    /// The UIDs of those that are neither looked at nor deleted any more: they only look like ours, or the apiserver
    /// does not let us delete them.
    pub(super) left_alone: BTreeSet<Box<str>>,
    /// The copies that were in use and gone for good.
    pub(super) lost: BTreeSet<Name>,
    /// The number of objects that stand in for such copies, for the pods of workloads that still name them.
    pub(super) stand_ins: usize,
    /// The last copy that it tried to bring back, if there may be more.
    pub(super) reached: Option<Name>,
    /// The numbers of pods that were created without regard to their pins, by the UID of their workload.
    pub(super) unpinned: HashMap<Arc<str>, usize>,
}

/// What all looks together have found, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// The number of copies.
    pub(super) copies: usize,
    /// The number of copies in use whose content nobody knows any more.
    pub(super) lost: usize,
    /// The number of pods that were created without regard to their pins.
    pub(super) unpinned: usize,
}

/// A look for which its namespace is charged.
struct Remembered {
    look: Arc<Look>,
    _charge: Charge,
}

impl Default for Known {
    fn default() -> Self {
        Self {
            namespaces: HashMap::new(),
            looks: HashMap::new(),
            shares: Shares::new(NAMESPACE_MEMORY, MEMORY),
            too_large: BTreeSet::new(),
            deleted: BTreeSet::new(),
            look_again: HashMap::new(),
        }
    }
}

impl Known {
    /// Takes in that a namespace has a copy.
    pub(super) fn has_copies(&mut self, namespace: Name) {
        self.namespaces.insert(namespace, true);
    }

    /// Returns the namespaces that may have copies.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Name> {
        self.namespaces.keys()
    }

    /// Takes in that a look at a namespace begins. Returns the one before.
    pub(super) fn begins(&mut self, namespace: &Name) -> Arc<Look> {
        if let Some(is_news) = self.namespaces.get_mut(namespace) {
            *is_news = false;
        }
        let before = self.looks.get(namespace);
        before.map(|it| it.look.clone()).unwrap_or_default()
    }

    /// Remembers a look at a namespace in place of the one before. Returns false if there is no room for it.
    pub(super) fn remember(&mut self, namespace: &Name, look: &Arc<Look>) -> bool {
        if look.copies == 0 && self.namespaces.get(namespace) == Some(&false) {
            self.namespaces.remove(namespace);
        }
        // The one before makes room.
        self.looks.remove(namespace);
        let Ok(charge) = self.shares.charge(namespace, look.weight()) else {
            return false;
        };
        let remembered = Remembered {
            look: look.clone(),
            _charge: charge,
        };
        self.looks.insert(namespace.clone(), remembered);
        true
    }

    /// Notes whether a namespace has too many copies. Returns true if that is news, and so is to be told.
    pub(super) fn notes_size(&mut self, namespace: &Name, is_too_large: bool) -> bool {
        if is_too_large {
            self.too_large.insert(namespace.clone())
        } else {
            self.too_large.remove(namespace);
            false
        }
    }

    /// Returns when to look again at a namespace that was last looked at from `began` on.
    pub(super) fn next_look(&mut self, namespace: &Name, began: Instant) -> Option<Instant> {
        let at = self.look_again.get(namespace).copied();
        let next = at.filter(|at| began < *at);
        if next.is_none() {
            self.look_again.remove(namespace);
        }
        next
    }

    /// Forgets the looks at all other namespaces than these.
    pub(super) fn retain(&mut self, namespaces: &BTreeSet<Name>) {
        self.looks.retain(|it, _| namespaces.contains(it));
        self.too_large.retain(|it| namespaces.contains(it));
        self.deleted.clear();
    }

    /// Returns what all looks together have found.
    pub(super) fn counts(&self) -> Counts {
        let looks = || self.looks.values().map(|it| &it.look);
        let unpinned = looks().flat_map(|look| look.unpinned.values());
        Counts {
            copies: looks().map(|look| look.copies).sum(),
            lost: looks().map(|look| look.lost.len() + look.stand_ins).sum(),
            unpinned: unpinned.sum(),
        }
    }
}

impl Look {
    /// Returns the memory that it takes, in bytes.
    fn weight(&self) -> usize {
        let Self {
            unused,
            left_alone,
            lost,
            reached,
            unpinned,
            copies: _,
            stand_ins: _,
        } = self;
        let unused = unused.iter().chain(left_alone).map(|uid| uid.len());
        let names = lost.iter().chain(reached).map(|name| name.as_str().len());
        let workloads = unpinned.keys().map(|uid| uid.len());
        let texts = unused.chain(names).chain(workloads);
        LOOK + texts.map(|length| ENTRY + length).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::name;

    fn look(copies: usize, unused: usize) -> Arc<Look> {
        let uid = |number: usize| -> Box<str> { format!("{number:036}").into() };
        Arc::new(Look {
            copies,
            unused: (0..unused).map(uid).collect(),
            ..Look::default()
        })
    }

    #[test]
    fn a_namespace_with_too_much_to_remember_leaves_the_others_their_room() {
        let mut known = Known::default();
        let (eve, shop) = (name("eve"), name("shop"));
        assert!(known.remember(&eve, &look(10_000, 10_000)));
        assert!(!known.remember(&eve, &look(100_000, 100_000)));
        assert!(known.begins(&eve).unused.is_empty(), "it is not remembered");
        assert!(known.remember(&shop, &look(10_000, 10_000)));
        assert!(known.remember(&eve, &look(10_000, 10_000)));
        assert_eq!(known.counts().copies, 20_000);
        known.retain(&BTreeSet::from([shop]));
        assert_eq!(known.counts().copies, 10_000);
    }

    #[test]
    fn copies_are_lost_with_and_without_something_in_their_place() {
        let mut known = Known::default();
        let look = Look {
            copies: 3,
            lost: BTreeSet::from([name("app-0123456789")]),
            stand_ins: 2,
            unpinned: HashMap::from([("web".into(), 4), ("api".into(), 1)]),
            ..Look::default()
        };
        known.remember(&name("shop"), &Arc::new(look));
        let expected = Counts {
            copies: 3,
            lost: 3,
            unpinned: 5,
        };
        assert_eq!(known.counts(), expected);
    }

    #[test]
    fn a_namespace_without_copies_is_forgotten_unless_one_has_come_during_the_look() {
        let mut known = Known::default();
        let shop = name("shop");
        known.has_copies(shop.clone());
        known.begins(&shop);
        known.remember(&shop, &look(1, 0));
        assert_eq!(known.namespaces().count(), 1);
        known.begins(&shop);
        known.has_copies(shop.clone());
        known.remember(&shop, &look(0, 0));
        assert_eq!(known.namespaces().count(), 1);
        known.begins(&shop);
        known.remember(&shop, &look(0, 0));
        assert_eq!(known.namespaces().count(), 0);
    }

    #[test]
    fn a_namespace_that_is_too_large_is_told_once_until_it_is_not() {
        let mut known = Known::default();
        let shop = name("shop");
        let told = [true, true, false, true].map(|it| known.notes_size(&shop, it));
        assert_eq!(told, [true, false, false, true]);
    }
}
