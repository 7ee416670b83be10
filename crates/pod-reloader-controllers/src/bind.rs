//! The controller of FieldBindings: keeps fields of custom resources equal to keys of ConfigMaps and Secrets.

mod binder;
mod calls;
pub mod controller;
mod look;
mod metrics;
mod state;
mod status;
mod turns;
mod watch;

#[cfg(test)]
mod tests;
