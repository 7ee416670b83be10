//! Finds out what a real node lacks on this machine, and says how to get it.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result};
use tokio::process::Command;

use super::room;

/// Returns what is missing, a line each.
pub(super) async fn missing(temporary: &Path) -> Result<Vec<String>> {
    if !cfg!(target_os = "linux") {
        return Ok(vec!["Linux: containers need its kernel".to_owned()]);
    }
    if !rustix::process::geteuid().is_root() {
        return Ok(vec![
            "root: namespaces, mounts and cgroups need it, so run this with sudo".to_owned(),
        ]);
    }
    // Links count as what they name, such as /var/run.
    if let Some(covered) = room::covering(&temporary.canonicalize()?) {
        return Ok(vec![format!(
            "a temporary directory outside of {covered}, which is another one inside: TMPDIR=/tmp names one"
        )]);
    }
    let lacking = PROGRAMS.iter().filter(|(name, _)| !is_installed(name));
    let lacking = lacking.map(|(name, package)| format!("{name}: 'apt-get install {package}'"));
    let lacking: Vec<_> = lacking.collect();
    if !lacking.is_empty() {
        return Ok(lacking);
    }
    Ok(missing_in_kernel(temporary).await?.into_iter().collect())
}

/// Tries in namespaces of their own what a node does, and returns the first thing that fails.
async fn missing_in_kernel(temporary: &Path) -> Result<Option<String>> {
    let output = Command::new("unshare")
        .args(NAMESPACES)
        .args(["--", "sh", "-c", PROBE, "sh"])
        .arg(temporary)
        .stdin(Stdio::null())
        // Ctrl-C would end a part of the probe, and look like something that is missing.
        .process_group(0)
        .output()
        .await
        .context("running unshare")?;
    if output.status.success() {
        return Ok(None);
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let lacking = stdout.lines().last().unwrap_or(
        "namespaces for network, mounts and processes: is this a container? Then it must be a privileged one",
    );
    Ok(Some(format!("{lacking}. The error: {}", said.trim())))
}

fn is_installed(program: &str) -> bool {
    let own = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    let mut folders = env::split_paths(&own).chain(system);
    folders.any(|folder| folder.join(program).is_file())
}

/// The namespaces of a cluster, as `unshare` takes them.
pub(super) const NAMESPACES: [&str; 9] = [
    "--net",
    "--mount",
    "--pid",
    "--ipc",
    "--fork",
    "--kill-child=KILL",
    "--mount-proc",
    "--propagation",
    "private",
];

/// Programs that a node runs, and the package of Debian that has each of them.
const PROGRAMS: [(&str, &str); 9] = [
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("tar", "tar"),
    ("ldd", "libc-bin"),
];

/// Does the same as a node, in short. It prints what is missing before it ends with 1.
const PROBE: &str = r#"
PATH=$PATH:/usr/sbin:/sbin
lacks() { echo "$*"; exit 1; }
(: </dev/kmsg) || lacks "/dev/kmsg, which the kubelet reads: is this a container? Then it must be a privileged one"
ip link set lo up || lacks "the right to set up a network"
ip link add node0 type bridge || lacks "bridges in the kernel: 'modprobe bridge'"
ip link add left type veth peer name right || lacks "veth in the kernel: 'modprobe veth'"
nft add table ip probe && nft 'add chain ip probe nat { type nat hook output priority -100; }' ||
  lacks "nf_tables with NAT in the kernel: 'modprobe nf_tables nft_chain_nat'"
mkdir "$1/upper" "$1/work" "$1/lower" "$1/merged" || lacks "the right to write to $1"
mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/merged" ||
  lacks "overlayfs on the file system of $1: 'modprobe overlay', or TMPDIR on another disk"
umount "$1/merged"
rm -rf "$1/upper" "$1/work" "$1/lower" "$1/merged"
"#;
