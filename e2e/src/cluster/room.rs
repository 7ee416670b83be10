//! Furnishes the namespaces of a cluster: what is mounted, and the network.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::components::RealNode;

/// Mounts what a node writes to, so that nothing of it gets onto the machine, and makes the network.
pub(super) async fn furnish(directory: &Path) -> Result<()> {
    mount_folders(directory).await?;
    shadow_settings(directory).await?;
    make_network().await
}

/// Returns the folder above `directory` that is mounted over. The directory of a cluster cannot be in there.
pub(super) fn covering(directory: &Path) -> Option<&'static str> {
    let mut covered = EMPTY.into_iter().chain([OVERLAID]);
    covered.find(|folder| directory.starts_with(folder))
}

/// Mounts folders in which containerd, kubelet and plugins write, wherever else their files are.
async fn mount_folders(directory: &Path) -> Result<()> {
    for folder in EMPTY {
        run("mount", ["-t", "tmpfs", "tmpfs", folder]).await?;
    }
    let [upper, work] = ["var-lib", "var-lib-work"].map(|name| directory.join(name));
    fs::create_dir(&upper)?;
    fs::create_dir(&work)?;
    let options = format!(
        "lowerdir={OVERLAID},upperdir={},workdir={}",
        upper.display(),
        work.display()
    );
    run(
        "mount",
        ["-t", "overlay", "overlay", "-o", &options, OVERLAID],
    )
    .await?;
    // There is no overlay on an overlay, and containers need one.
    for name in ["containerd", "kubelet"] {
        let own = directory.join(name);
        let at = Path::new(OVERLAID).join(name);
        fs::create_dir(&own)?;
        fs::create_dir_all(&at)?;
        bind(&own, &at).await?;
    }
    Ok(())
}

/// Covers the settings of the whole machine that the kubelet would change with files that have its values.
async fn shadow_settings(directory: &Path) -> Result<()> {
    let folder = directory.join("settings");
    fs::create_dir(&folder)?;
    for (setting, value) in KUBELETS_SETTINGS {
        let own = folder.join(setting.replace('/', "."));
        fs::write(&own, value)?;
        bind(&own, &Path::new("/proc/sys").join(setting)).await?;
    }
    Ok(())
}

async fn make_network() -> Result<()> {
    let address = format!("{}/24", RealNode::ADDRESS);
    let ip = async |args: &str| run("ip", args.split(' ')).await;
    ip("link set lo up").await?;
    ip("link add node0 type bridge").await?;
    ip(&format!("addr add {address} dev node0")).await?;
    ip("link set node0 up").await?;
    // Nothing is behind it: without any, the apiserver finds no address to be reached at.
    ip("route add default dev node0").await?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("switching forwarding on")?;
    // Only ports of Services on the node itself need it.
    let _ = fs::write("/proc/sys/net/ipv4/conf/all/route_localnet", "1");
    Ok(())
}

async fn bind(from: &Path, to: &Path) -> Result<()> {
    run(
        "mount",
        [OsStr::new("--bind"), from.as_os_str(), to.as_os_str()],
    )
    .await
}

/// Runs a program of the system. Ctrl-C does not reach it: the start would fail, and leave the directory behind.
pub(super) async fn run(
    program: &str,
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Result<()> {
    let args: Vec<OsString> = args.into_iter().map(|it| it.as_ref().to_owned()).collect();
    let own = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let output = Command::new(program)
        .args(&args)
        .env(
            "PATH",
            env::join_paths(env::split_paths(&own).chain(system))?,
        )
        .process_group(0)
        .output()
        .await
        .with_context(|| format!("running {program}"))?;
    if !output.status.success() {
        bail!(
            "{program} {}: {}",
            args.join(OsStr::new(" ")).display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// The folders that begin empty.
const EMPTY: [&str; 2] = ["/run", "/var/log"];
/// The folder to which a layer of the cluster's own is added.
const OVERLAID: &str = "/var/lib";

/// What the kubelet sets unless it is so: below /proc/sys, and for all namespaces.
const KUBELETS_SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_a_folder_that_is_mounted_over_is_covered() {
        let of = |directory: &str| covering(Path::new(directory));
        assert_eq!(of("/run/user/0/cluster"), Some("/run"));
        assert_eq!(of("/var/log/cluster"), Some("/var/log"));
        assert_eq!(of("/var/lib/ci/tmp/cluster"), Some("/var/lib"));
        assert_eq!(of("/tmp/run/cluster"), None);
        assert_eq!(of("/var/library/cluster"), None);
    }
}
