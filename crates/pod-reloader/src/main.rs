//! Restarts pods when the ConfigMaps and Secrets that they read change.

use std::process::ExitCode;

fn main() -> ExitCode {
    pod_reloader::main()
}
