//! Charges what is remembered to the namespace that causes it, so that none can take the memory of all.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::name::Name;

/// The memory that namespaces may take for what is remembered of them. Clones share it.
#[derive(Clone, Debug)]
pub struct Shares(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    of_namespace: usize,
    of_all: usize,
    charged: Mutex<Charged>,
}

/// The bytes that are charged.
#[derive(Debug, Default)]
struct Charged {
    by_namespace: HashMap<Name, usize>,
    to_all: usize,
}

/// The charge for something that is remembered, in which it is kept. Dropping it gives it back.
#[derive(Debug)]
pub struct Charge {
    shares: Shares,
    namespace: Name,
    bytes: usize,
}

/// The error of a namespace, or of all of them, that would take more than its share.
#[derive(Debug, PartialEq, Eq)]
pub struct NamespaceTooLarge;

impl Shares {
    /// Creates shares of which one namespace may take so many bytes, and all of them together so many.
    pub fn new(of_namespace: usize, of_all: usize) -> Self {
        Self(Arc::new(Inner {
            of_namespace,
            of_all,
            charged: Mutex::default(),
        }))
    }

    /// Charges a namespace for something that takes so many bytes.
    ///
    /// # Errors
    ///
    /// There is no room for it, so it must not be remembered.
    pub fn charge(&self, namespace: &Name, bytes: usize) -> Result<Charge, NamespaceTooLarge> {
        let mut charged = self.0.charged.lock();
        let its_own = charged.by_namespace.get(namespace).copied();
        let its_own = its_own.unwrap_or_default().saturating_add(bytes);
        let to_all = charged.to_all.saturating_add(bytes);
        if its_own > self.0.of_namespace || to_all > self.0.of_all {
            return Err(NamespaceTooLarge);
        }
        charged.by_namespace.insert(namespace.clone(), its_own);
        charged.to_all = to_all;
        Ok(Charge {
            shares: self.clone(),
            namespace: namespace.clone(),
            bytes,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut charged = self.shares.0.charged.lock();
        charged.to_all -= self.bytes;
        if let Some(its_own) = charged.by_namespace.get_mut(&self.namespace) {
            *its_own -= self.bytes;
            if *its_own == 0 {
                charged.by_namespace.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::name;

    #[test]
    fn a_namespace_takes_no_more_than_its_share_and_leaves_the_others_theirs() {
        let shares = Shares::new(10, 100);
        let _kept = shares.charge(&name("a"), 7).unwrap();
        assert_eq!(shares.charge(&name("a"), 4).unwrap_err(), NamespaceTooLarge);
        let _rest = shares.charge(&name("a"), 3).unwrap();
        assert!(shares.charge(&name("b"), 10).is_ok());
    }

    #[test]
    fn many_namespaces_take_no_more_than_all_may() {
        let shares = Shares::new(10, 25);
        let kept = ["a", "b"].map(|it| shares.charge(&name(it), 10).unwrap());
        assert!(shares.charge(&name("c"), 6).is_err());
        assert!(shares.charge(&name("c"), 5).is_ok());
        drop(kept);
        assert!(shares.charge(&name("c"), 10).is_ok());
    }

    #[test]
    fn what_is_dropped_can_be_charged_again_and_nothing_is_kept_of_its_namespace() {
        let shares = Shares::new(10, 100);
        let kept = [4, 6].map(|it| shares.charge(&name("a"), it).unwrap());
        drop(kept);
        assert!(shares.0.charged.lock().by_namespace.is_empty());
        assert!(shares.charge(&name("a"), 10).is_ok());
    }
}
