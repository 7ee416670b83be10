//! `kubectl pod-reloader`: tells what restarts which pods, and why. It only reads.

mod graph;

fn main() {}
