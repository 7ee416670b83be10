//! Checks that the modules of a crate use each other in one direction, as `make lint` does:
//!
//! ```sh
//! layers crates/pod-reloader webhook-certs
//! ```
//!
//! The modules that `lib.rs` declares without a blank line between them are a layer. A module may use its own
//! layer and those above it in `lib.rs`. There is no cycle between modules of one folder, at any depth.
//! A module and those inside it are one thing to the rest, and may use each other. Tests may use everything.

mod arrows;
mod order;
mod source;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

fn main() -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for directory in env::args_os().skip(1).map(PathBuf::from) {
        for fault in order::faults(&source::Crate::read(&directory)?) {
            eprintln!("layers: {fault}");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}
