//! Names what belongs to a cluster outside of its namespaces, and removes what killed clusters have left.

use std::{env, fs, process};

use anyhow::Result;

use super::cgroup;

/// A file in the directory of a cluster that is to be left behind.
pub(super) const KEPT: &str = "kept";

/// Returns the name of cgroup and directory of the cluster of this process.
pub(super) fn own_name() -> String {
    format!("{PREFIX}{}", process::id())
}

/// Removes cgroups and directories of clusters whose process has ended.
pub(super) async fn remove() -> Result<()> {
    for name in cgroup::names()?.iter().filter(|name| is_left(name)) {
        tracing::info!("removing the cgroup of an earlier cluster, {name}");
        if let Err(error) = cgroup::remove(name).await {
            tracing::warn!("{error:#}");
        }
    }
    for entry in fs::read_dir(env::temp_dir())?.filter_map(Result::ok) {
        let path = entry.path();
        let is_left = entry.file_name().to_str().is_some_and(is_left);
        if is_left && !path.join(KEPT).exists() {
            tracing::info!(
                "removing the directory of an earlier cluster, {}",
                path.display()
            );
            if let Err(error) = fs::remove_dir_all(&path) {
                tracing::warn!("removing {}: {error}", path.display());
            }
        }
    }
    Ok(())
}

/// Tells whether a name is that of a cluster that no longer runs.
fn is_left(name: &str) -> bool {
    let pid = name.strip_prefix(PREFIX);
    let pid: Option<u32> = pid.and_then(|pid| pid.parse().ok());
    pid.is_some_and(|pid| !is_cluster(pid))
}

/// Tells whether a process is a cluster, and not a later one with the same id.
fn is_cluster(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm"));
    name.is_ok_and(|name| name.trim_end() == "cluster")
}

const PREFIX: &str = "pod-reloader-cluster-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_the_id_of_another_process_are_left() {
        // No process has this id: it is beyond what the kernel gives out.
        assert!(is_left("pod-reloader-cluster-4294967295"));
        assert!(!is_left("pod-reloader-cluster-x"));
        assert!(!is_left("pod-reloader-control-plane-4294967295"));
    }
}
