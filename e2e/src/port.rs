//! Finds ports on which nobody listens.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    net::TcpListener,
    process,
    sync::{Mutex, PoisonError},
};

/// The ports that this process has given out.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns free ports of 127.0.0.1. Each differs from all that were given out before, because it may take
/// seconds until somebody listens on a port. They lie below the range of the ports of outgoing connections,
/// so that none of those can take one in between. Another process that runs a control plane takes others, unless
/// the remainder of its ID is the same.
pub(crate) fn free_ports() -> impl Iterator<Item = u16> {
    const FIRST: u64 = 12_000;
    const COUNT: u64 = 20_000;
    const PROCESSES: u64 = 8;
    let own = u64::from(process::id()) % PROCESSES;
    let start = RandomState::new().hash_one(0);
    (0..COUNT)
        .filter(move |n| start.wrapping_add(*n) % COUNT % PROCESSES == own)
        .filter_map(move |n| u16::try_from(FIRST + start.wrapping_add(n) % COUNT).ok())
        .filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .filter(|port| {
            let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
            given.insert(*port)
        })
}
