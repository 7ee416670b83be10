//! The controller of ClusterConfigSyncs: copies ConfigMaps and Secrets to namespaces, and keeps the copies exact.

mod by_namespace;
mod calls;
pub mod controller;
mod copy;
mod metrics;
mod state;
mod status;
mod syncer;
mod watch;

#[cfg(test)]
mod tests;
