//! What goes into force, and what a client then sees.

#![allow(clippy::unwrap_used)]

mod handshakes;
mod issuing;
mod pairs;
mod rotation;
