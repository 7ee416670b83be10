//! Tests of what comes into force, what is issued, and what a client then sees.

#![allow(clippy::unwrap_used)]

mod authority;
mod broken;
mod handshakes;
mod issuing;
mod life;
mod pairs;
mod rotation;
mod trusting;
