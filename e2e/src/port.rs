//! Finds ports that nobody listens on.

use std::{
    hash::{BuildHasher, RandomState},
    net::TcpListener,
};

/// Free ports of 127.0.0.1, each different. They lie below the range that outgoing connections take
/// theirs from, so that none of those can get in between.
pub(crate) fn free_ports() -> impl Iterator<Item = u16> {
    const FIRST: u64 = 20_000;
    const COUNT: u64 = 10_000;
    let start = RandomState::new().hash_one(0);
    (0..COUNT)
        .filter_map(move |n| u16::try_from(FIRST + start.wrapping_add(n) % COUNT).ok())
        .filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
}
