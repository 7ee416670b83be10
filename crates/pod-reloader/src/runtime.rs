//! The general parts of an operator. They know nothing about workloads.

pub(crate) mod admin;
pub(crate) mod budget;
pub(crate) mod calls;
pub(crate) mod client;
pub(crate) mod controller;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod follower;
pub(crate) mod heartbeat;
pub(crate) mod keyed;
pub(crate) mod kit;
pub(crate) mod leader;
pub(crate) mod logging;
pub(crate) mod objects;
pub(crate) mod pause;
pub(crate) mod queue;
pub(crate) mod resources;
pub(crate) mod server;
pub(crate) mod share;
pub(crate) mod status;
pub(crate) mod tasks;
pub(crate) mod watch_age;
pub(crate) mod worker;

#[cfg(test)]
pub(crate) mod mock;
