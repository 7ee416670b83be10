//! What controllers handle, in turns for namespaces.

use std::fmt::Display;
use std::hash::Hash;

use crate::name::Name;

/// An object that a controller handles again and again, identified by its name.
pub trait Item: Clone + Ord + Hash + Display + Send + Sync + 'static {
    /// Returns the namespace in whose turn the item is handled.
    fn namespace(&self) -> &Name;
}

/// A namespace that is handled as a whole.
impl Item for Name {
    fn namespace(&self) -> &Name {
        self
    }
}
