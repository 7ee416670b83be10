//! Finds the processes of this machine, or of the PID namespace of a cluster, whoever started them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// A process that runs.
#[derive(Clone, Debug)]
pub struct MachineProcess {
    /// Its process id.
    pub pid: Pid,
    /// The file that it runs, as it is called in its own mount namespace.
    pub executable: PathBuf,
    /// Its cgroup in each hierarchy, a line each.
    cgroups: String,
}

impl MachineProcess {
    /// Returns all processes. Those that end meanwhile, and the kernel's own ones, are left out.
    ///
    /// # Errors
    /// When there is no `/proc`.
    pub fn all() -> Result<Vec<Self>> {
        let entries = fs::read_dir("/proc").context("reading /proc")?;
        let folders = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        Ok(folders.filter_map(|folder| Self::read(&folder)).collect())
    }

    fn read(folder: &Path) -> Option<Self> {
        let pid = folder.file_name()?.to_str()?.parse().ok()?;
        Some(Self {
            pid: Pid::from_raw(pid)?,
            executable: fs::read_link(folder.join("exe")).ok()?,
            cgroups: fs::read_to_string(folder.join("cgroup")).ok()?,
        })
    }

    /// Tells whether a part of the path of its cgroup contains `name`, in any hierarchy.
    pub fn is_in_cgroup(&self, name: &str) -> bool {
        self.cgroups.lines().any(|line| line.contains(name))
    }

    /// Returns the folder of the cgroup that accounts for its memory.
    ///
    /// # Errors
    /// When its cgroups are not listed as the kernel does.
    pub fn memory_cgroup(&self) -> Result<PathBuf> {
        let path = |marker: &str| {
            self.cgroups
                .lines()
                .find_map(|line| line.split_once(marker))
        };
        let root = Path::new("/sys/fs/cgroup");
        // In version 1, each controller has a hierarchy of its own.
        let (root, (_, path)) = match path(":memory:") {
            Some(found) => (root.join("memory"), found),
            None => (root.to_owned(), path("0::").context("no cgroup")?),
        };
        Ok(root.join(path.trim_start_matches('/')))
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let Self {
            pid, executable, ..
        } = self;
        let executable = executable.display();
        kill_process(*pid, signal)
            .with_context(|| format!("sending {signal:?} to {executable}, process {pid:?}"))
    }
}

/// Kills all processes in a cgroup.
pub(crate) fn kill_cgroup(name: &str) {
    for process in MachineProcess::all().unwrap_or_default() {
        if process.is_in_cgroup(name) {
            // One that has ended is fine.
            let _ = process.signal(Signal::KILL);
        }
    }
}
