//! Defines how the parts of a real node are run: containerd, the kubelet and kube-proxy.

use std::{env, ffi::OsString, fs, path::PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::Launch;
use crate::{
    components::{DNS_SERVICE, PODS, RealNode},
    credentials::User,
};

/// Where the kubelet tells its health.
pub(super) const KUBELET_HEALTH: &str = "127.0.0.1:10248";
/// Where kube-proxy tells its health.
pub(super) const KUBE_PROXY_HEALTH: &str = "127.0.0.1:10256";

impl Launch {
    /// Writes the files that the parts of a real node start from.
    pub(super) fn write_real_node(&self, node: &RealNode) -> Result<()> {
        let networks = self.directory.join(NETWORKS);
        let registry = self.directory.join(REGISTRIES).join(REGISTRY);
        for folder in [&networks, &registry, &self.directory.join(TEMPORARY)] {
            fs::create_dir_all(folder)?;
        }
        fs::create_dir_all(self.logs.join(POD_LOGS))?;
        fs::write(networks.join("10-pods.conflist"), network().to_string())?;
        fs::write(registry.join("hosts.toml"), hosts())?;
        fs::write(self.path(CONTAINERD), self.containerd_config(node))?;
        fs::write(self.path(KUBELET), self.kubelet_config(node).to_string())?;
        fs::write(self.path(KUBE_PROXY), self.kube_proxy_config().to_string())?;
        // Nobody answers there. Without any, the kubelet would take the file of the machine.
        let resolve = format!("nameserver {}\n", RealNode::ADDRESS);
        Ok(fs::write(self.path(RESOLVE), resolve)?)
    }

    /// Returns what the apiserver is to have beside its other arguments.
    pub(super) fn apiserver_of_real_node(&self) -> Vec<String> {
        let credentials = &self.credentials;
        vec![
            "--bind-address=0.0.0.0".to_owned(),
            format!("--advertise-address={}", RealNode::ADDRESS),
            // Pods reach the apiserver through the Service `kubernetes`.
            "--endpoint-reconciler-type=lease".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!(
                "--kubelet-client-certificate={}",
                credentials.kubelet_client_certificate.display()
            ),
            format!(
                "--kubelet-client-key={}",
                credentials.kubelet_client_key.display()
            ),
        ]
    }

    pub(super) fn containerd(&self) -> Vec<String> {
        vec![format!("--config={}", self.path(CONTAINERD))]
    }

    pub(super) fn kubelet(&self) -> Vec<String> {
        vec![
            format!("--config={}", self.path(KUBELET)),
            format!("--kubeconfig={}", self.kubeconfig(User::Kubelet).display()),
            format!("--hostname-override={}", RealNode::NAME),
            format!("--node-ip={}", RealNode::ADDRESS),
            "--v=2".to_owned(),
        ]
    }

    pub(super) fn kube_proxy(&self) -> Vec<String> {
        vec![format!("--config={}", self.path(KUBE_PROXY))]
    }

    /// Returns the environment in which they find each other, and the programs of this machine: nft, mount.
    pub(super) fn env_of_real_node(&self) -> [(OsString, OsString); 2] {
        let own = env::var_os("PATH").unwrap_or_default();
        let mut folders = vec![self.programs.directory().to_owned()];
        folders.extend(env::split_paths(&own));
        folders.extend(SYSTEM_FOLDERS.map(PathBuf::from));
        let path = env::join_paths(folders).unwrap_or(own);
        [
            ("PATH".into(), path),
            ("TMPDIR".into(), self.path(TEMPORARY).into()),
        ]
    }

    fn containerd_config(&self, node: &RealNode) -> String {
        let pause = &node.pause_image;
        let programs = self.programs.directory().display();
        let networks = self.path(NETWORKS);
        let registries = self.path(REGISTRIES);
        // Paths as on every node: they are those of namespaces of our own.
        format!(
            r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[ttrpc]
  address = "{CONTAINERD_SOCKET}.ttrpc"
[plugins.'io.containerd.internal.v1.opt']
  path = "/var/lib/containerd/opt"
[plugins.'io.containerd.nri.v1.nri']
  disable = true
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{pause}"
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = "{registries}"
[plugins.'io.containerd.cri.v1.runtime']
  enable_selinux = false
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{programs}"]
    conf_dir = "{networks}"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "{programs}/runc"
        SystemdCgroup = false
"#
        )
    }

    fn kubelet_config(&self, node: &RealNode) -> Value {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": false},
                "x509": {"clientCAFile": self.credentials.ca},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": node.cgroup,
            "cgroupsPerQOS": true,
            // Only the pods are limited, not the machine.
            "enforceNodeAllocatable": [],
            "failCgroupV1": false,
            "failSwapOn": false,
            "evictionHard": {
                "nodefs.available": "1%",
                "nodefs.inodesFree": "1%",
                "imagefs.available": "1%",
                "memory.available": "50Mi",
            },
            "imageMinimumGCAge": "24h",
            "nodeStatusUpdateFrequency": "5s",
            // How soon a changed object is in the files of a volume.
            "syncFrequency": "10s",
            "podLogsDir": self.logs.join(POD_LOGS),
            "volumePluginDir": self.path("volume-plugins"),
            "clusterDNS": [DNS_SERVICE],
            "clusterDomain": "cluster.local",
            "resolvConf": self.path(RESOLVE),
        })
    }

    fn kube_proxy_config(&self) -> Value {
        json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": self.kubeconfig(User::KubeProxy)},
            "mode": "nftables",
            // So that a pod's answer to another one goes back through the node, whether or not the kernel shows
            // what bridges forward to its filters.
            "nftables": {"masqueradeAll": true},
            "clusterCIDR": PODS,
            "hostnameOverride": RealNode::NAME,
            "healthzBindAddress": KUBE_PROXY_HEALTH,
            "metricsBindAddress": "127.0.0.1:10249",
            // In a network namespace, these settings of the machine cannot be written.
            "conntrack": {"maxPerCore": 0, "min": 0},
        })
    }
}

/// Returns the network of the pods: a bridge of its own.
fn network() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": false,
                // So that a pod reaches itself through its Service.
                "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": PODS}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {
                "type": "portmap",
                "capabilities": {"portMappings": true},
                "backend": "nftables",
            },
        ],
    })
}

/// Returns how containerd reaches the registry: without TLS.
fn hosts() -> String {
    format!(
        "server = \"http://{REGISTRY}\"\n[host.\"http://{REGISTRY}\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
    )
}

/// Where the registry of a real node listens.
pub(crate) const REGISTRY: &str = "127.0.0.1:5000";
/// The socket of containerd.
pub(crate) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// What may be missing in PATH.
const SYSTEM_FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

const CONTAINERD: &str = "containerd.toml";
const KUBELET: &str = "kubelet.json";
const KUBE_PROXY: &str = "kube-proxy.json";
const NETWORKS: &str = "networks";
const REGISTRIES: &str = "registries";
const RESOLVE: &str = "resolv.conf";
const TEMPORARY: &str = "temporary";
/// Folder of the containers' logs, beside the logs of processes.
const POD_LOGS: &str = "pods";
