//! Tests on a real node: pods run, and answer with what they have read. `make test-real` runs them, one after the other.
//! Where there is no real node, they do nothing.

mod attack;
mod cert_manager;
mod contents;
mod node;
mod protect;
mod replicas;
mod smoke;
mod staged;
mod stuck;
mod undo;
mod upgrade;
