//! Makes and removes the cgroup of a cluster, in each hierarchy of this machine.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::wait::{Attempt, PATIENCE, wait_for};

/// Makes a cgroup of this name at the root of each hierarchy: of version 1, one for each controller.
pub(super) fn create(name: &str) -> Result<()> {
    for root in hierarchies()? {
        let folder = root.join(name);
        delegate(&root);
        // A hierarchy that is mounted twice has it already.
        fs::create_dir_all(&folder)
            .with_context(|| format!("making the cgroup {}", folder.display()))?;
        // In version 1, a cgroup without them can hold no process.
        for setting in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(value) = fs::read(root.join(setting)) {
                fs::write(folder.join(setting), value)
                    .with_context(|| format!("writing {setting} of {}", folder.display()))?;
            }
        }
    }
    Ok(())
}

/// Lets cgroups below the root have all controllers, in version 2. The kubelet says which of them it misses.
fn delegate(root: &Path) {
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    for controller in controllers.split_whitespace() {
        let _ = fs::write(
            root.join("cgroup.subtree_control"),
            format!("+{controller}"),
        );
    }
}

/// Returns the controllers that the kubelet needs and the cgroup of this name does not have.
pub(super) fn lacking(name: &str) -> Result<Vec<&'static str>> {
    let folders = hierarchies()?.into_iter().map(|root| root.join(name));
    let folders: Vec<_> = folders.collect();
    let lacking = NEEDED.into_iter().filter(|(controller, setting)| {
        !folders.iter().any(|folder| {
            let delegated = fs::read_to_string(folder.join("cgroup.controllers"));
            let mut delegated = delegated.iter().flat_map(|it| it.split_whitespace());
            folder.join(setting).exists() || delegated.any(|it| it == *controller)
        })
    });
    Ok(lacking.map(|(controller, _)| controller).collect())
}

/// Removes the cgroup of this name and all below it, once no process is in there any more.
pub(super) async fn remove(name: &str) -> Result<()> {
    for root in hierarchies()? {
        let folder = root.join(name);
        // A process that was killed may take a moment to leave.
        wait_for("the processes of the cgroup to end", PATIENCE, async || {
            let removed = remove_tree(&folder);
            let removed = removed.with_context(|| format!("removing {}", folder.display()));
            Ok(Attempt::from(removed))
        })
        .await?;
    }
    Ok(())
}

/// Returns the names of all cgroups at the root of a hierarchy.
pub(super) fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for root in hierarchies()? {
        let entries = fs::read_dir(&root).with_context(|| format!("reading {}", root.display()))?;
        let entries = entries.filter_map(Result::ok);
        names.extend(entries.filter_map(|entry| entry.file_name().into_string().ok()));
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// Removes a folder of cgroups, if it is there, the deepest first.
fn remove_tree(folder: &Path) -> io::Result<()> {
    match remove_with_children(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn remove_with_children(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Its files are the kernel's.
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

/// Returns where the hierarchies are mounted.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("reading /proc/self/mounts")?;
    let roots = mounts.lines().filter_map(root_of_hierarchy);
    Ok(roots.map(PathBuf::from).collect())
}

/// Returns the mount point in a line of mounts, if cgroups are mounted there.
fn root_of_hierarchy(line: &str) -> Option<&str> {
    let mut fields = line.split(' ');
    let (_, point, kind) = (fields.next()?, fields.next()?, fields.next()?);
    ["cgroup", "cgroup2"].contains(&kind).then_some(point)
}

/// The controllers that the kubelet needs, and a setting that each has in version 1.
const NEEDED: [(&str, &str); 4] = [
    ("cpu", "cpu.shares"),
    ("cpuset", "cpuset.cpus"),
    ("memory", "memory.limit_in_bytes"),
    ("pids", "pids.max"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_of_cgroups_are_hierarchies() {
        let mounts = [
            "tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0",
            "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0",
            "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0",
            "/dev/vda / ext4 rw 0 0",
        ];
        let roots: Vec<_> = mounts.into_iter().filter_map(root_of_hierarchy).collect();
        assert_eq!(roots, ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"]);
    }
}
