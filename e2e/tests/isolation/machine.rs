//! Looks at the whole machine for what belongs to a cluster, and for what a cluster must not change.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// Returns the processes of a cluster, a line each. The name of the cluster is in the cgroup of each pod, in the mounts of
/// each other process inside, and in the arguments of what starts them. No other cluster ever has this name, so nothing
/// depends on numbers that the kernel uses again. As long as a namespace has no process, only a mount can hold it:
/// [`facts`] has those of the machine, and others end with their own namespace.
pub(crate) fn processes_of(cluster: &str) -> Result<Vec<String>> {
    let mut pids = names_in(Path::new("/proc"))?;
    pids.retain(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let found = pids.into_iter().filter_map(|pid| {
        let folder = Path::new("/proc").join(&pid);
        // A process may end meanwhile.
        let read = |name: &str| fs::read(folder.join(name)).unwrap_or_default();
        let text = |name: &str| String::from_utf8_lossy(&read(name)).replace('\0', " ");
        let belongs = ["cgroup", "mountinfo", "cmdline"].map(text);
        let arguments = &belongs[2];
        let is_of_cluster = belongs.iter().any(|text| text.contains(cluster));
        is_of_cluster.then(|| format!("process {pid}: {arguments}"))
    });
    Ok(found.collect())
}

/// Returns the folders of a cluster's cgroups, one for each hierarchy.
pub(crate) fn cgroups_of(cluster: &str) -> Result<Vec<String>> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("reading /proc/self/mounts")?;
    let roots = mounts.lines().filter_map(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        let kind = *fields.get(2)?;
        ["cgroup", "cgroup2"]
            .contains(&kind)
            .then(|| PathBuf::from(fields[1]))
    });
    let folders = roots.map(|root| root.join(cluster));
    let there = folders.filter(|folder| folder.is_dir());
    Ok(there.map(|folder| folder.display().to_string()).collect())
}

/// Returns what a cluster must leave as it is, a line each: mounts, network interfaces, folders of the programs of a node,
/// and settings that the kubelet changes.
pub(crate) fn facts() -> Result<BTreeSet<String>> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("reading /proc/self/mounts")?;
    let mut facts: BTreeSet<_> = mounts.lines().map(|it| format!("mount {it}")).collect();
    let interfaces = names_in(Path::new("/sys/class/net"))?;
    facts.extend(interfaces.into_iter().map(|it| format!("interface {it}")));
    let folders = FOLDERS.iter().filter(|folder| Path::new(folder).exists());
    facts.extend(folders.map(|folder| format!("folder {folder}")));
    facts.extend(SETTINGS.iter().map(|setting| {
        let value = fs::read_to_string(Path::new("/proc/sys").join(setting));
        format!("{setting} = {}", value.unwrap_or_default().trim())
    }));
    Ok(facts)
}

/// Returns the TCP ports at which something listens in the network namespace of a process.
pub(crate) fn ports(pid: &str) -> Result<BTreeSet<u16>> {
    let mut ports = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let path = format!("/proc/{pid}/net/{table}");
        let table = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        ports.extend(table.lines().filter_map(listening));
    }
    Ok(ports)
}

/// Returns the names of everything in a folder.
pub(crate) fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.collect())
}

/// Returns the port in a line of such a table, if something listens there.
fn listening(line: &str) -> Option<u16> {
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next()?;
    let state = fields.nth(1)?;
    let (_, port) = local.rsplit_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    (state == LISTEN).then_some(port)
}

/// The state of a socket that listens, as the kernel prints it.
const LISTEN: &str = "0A";

const FOLDERS: [&str; 8] = [
    "/run/containerd",
    "/run/flannel",
    "/run/netns",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
];

const SETTINGS: [&str; 7] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

#[test]
fn only_sockets_that_listen_have_a_port() {
    let [listens, is_connected] = ["0A", "01"].map(|state| {
        format!("   0: 0100007F:1388 00000000:0000 {state} 00000000:00000000 00:00000000")
    });
    assert_eq!(listening(&listens), Some(5000));
    assert_eq!(listening(&is_connected), None);
    let heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
    assert_eq!(listening(heading), None);
}
