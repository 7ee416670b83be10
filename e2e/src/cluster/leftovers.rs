//! Names what belongs to a cluster outside of its namespaces, and removes what killed clusters have left.

use std::{env, fs, process};

use anyhow::Result;

use super::cgroup;
use crate::credentials::random_hex;

/// A file in the directory of a cluster that is to be left behind.
pub(super) const KEPT: &str = "kept";

/// Returns a new name for cgroup and directory of the cluster of this process. An earlier cluster whose process had the
/// same id, as in a container that starts again, has another one.
///
/// # Errors
/// When there are no random numbers.
pub(super) fn new_name() -> Result<String> {
    Ok(format!("{PREFIX}{}-{}", process::id(), &random_hex()?[..8]))
}

/// Removes cgroups and directories of clusters whose process has ended. `own` is the name of the cluster of this
/// process.
pub(super) async fn remove(own: &str) -> Result<()> {
    let is_left = |name: &str| is_left(name, own, is_cluster);
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

/// Tells whether a name is that of a cluster that no longer runs. `runs` tells whether a process is a cluster.
fn is_left(name: &str, own: &str, runs: impl Fn(u32) -> bool) -> bool {
    let parts = name.strip_prefix(PREFIX).and_then(|it| it.split_once('-'));
    let pid: Option<u32> = parts.and_then(|(pid, _)| pid.parse().ok());
    // An earlier cluster may have had the id that this process has now.
    pid.is_some_and(|pid| name != own && (pid == process::id() || !runs(pid)))
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
    fn only_names_of_clusters_whose_process_has_ended_are_left() {
        let is_left = |name| is_left(name, "pod-reloader-cluster-1-own", |pid| pid == 2);
        assert!(!is_left("pod-reloader-cluster-2-0123abcd"));
        assert!(is_left("pod-reloader-cluster-3-0123abcd"));
        assert!(!is_left("pod-reloader-cluster-x-0123abcd"));
        assert!(!is_left("pod-reloader-cluster-3"));
        assert!(!is_left("pod-reloader-control-plane-3-0123abcd"));
    }

    #[test]
    fn an_earlier_cluster_with_the_same_process_id_is_left_and_has_another_name() -> Result<()> {
        let (earlier, own) = (new_name()?, new_name()?);
        assert_ne!(earlier, own);
        assert!(is_left(&earlier, &own, |_| true));
        assert!(!is_left(&own, &own, |_| true));
        Ok(())
    }
}
