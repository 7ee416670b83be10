//! Gives back the room of tables that were much larger once.

use std::collections::HashMap;
use std::hash::Hash;

/// Gives back room of a table that uses less than a quarter of it: as much as leaves it half full.
///
/// Half of the items have to go before it moves the others again, so it can be called after each removal.
pub fn give_back_room<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    if table.len() < table.capacity() / 4 {
        table.shrink_to(2 * table.len());
    }
}
