//! Keeps and prints what explains a failed test.

use std::{env, fs, path::PathBuf};

use anyhow::{Context, Result};

use crate::control_plane::ControlPlane;

/// Copies the logs of a control plane to a folder of this name in cargo's build folder, and returns that folder.
pub(crate) fn keep_logs(control_plane: &ControlPlane, name: &str) -> Result<PathBuf> {
    let own = env::current_exe()?;
    let built = own
        .ancestors()
        .nth(2)
        .context("the test program is in no folder of cargo's")?;
    let kept = built.join("test-logs").join(name);
    fs::create_dir_all(&kept)?;
    for log in fs::read_dir(control_plane.logs_dir())? {
        let log = log?;
        // The audit log is left out: all tests share it, and it has gigabytes.
        if log.path().extension().is_some_and(|it| it == "log") {
            fs::copy(log.path(), kept.join(log.file_name()))?;
        }
    }
    Ok(kept)
}

/// Prints the arguments of a run of kubectl, and what it said.
pub(crate) fn print(args: &[&str], said: Result<String>) {
    eprintln!("--- kubectl {}", args.join(" "));
    match said {
        Ok(text) => eprintln!("{text}"),
        Err(error) => eprintln!("{error:#}"),
    }
}
