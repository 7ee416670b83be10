//! Restarts pods when the ConfigMaps and Secrets that they read change.

fn main() {}
