//! Reports to users: Events, and notifications outside of the cluster.

pub(crate) mod notice;
pub(crate) mod notify;
