//! Reports to users: Events, and notifications outside of the cluster.

pub(crate) mod events;
pub(crate) mod notify;
