//! The keys of the contract between a user and pod-reloader.

/// On a workload: comma-separated names of ConfigMaps in its namespace.
pub const CONFIG_MAPS: &str = "pod-reloader.cs.sap.com/configmaps";

/// On a workload: comma-separated names of Secrets in its namespace.
pub const SECRETS: &str = "pod-reloader.cs.sap.com/secrets";

/// On a pod template: the config hash. Written by us alone.
///
/// The same key on the workload's own metadata is a message of SAP's controller to its webhook:
/// we neither obey nor touch it.
pub const CONFIG_HASH: &str = "pod-reloader.cs.sap.com/config-hash";

/// On a workload: `<KEY value>=<config hash>`. Written by us alone.
///
/// Says which content a KEY that we cannot verify stands for.
pub const BASELINE: &str = "pod-reloader.cs.sap.com/baseline";

/// On a workload: how long its config must have been quiet before it is restarted, such as `10s`.
pub const SETTLE_PERIOD: &str = "pod-reloader.cs.sap.com/settle-period";

/// Label of a workload: `"true"` leaves it alone.
pub const IGNORED: &str = "pod-reloader.cs.sap.com/ignored";

/// Label of a workload: `"true"` leaves it alone.
pub const DISABLED: &str = "pod-reloader.cs.sap.com/disabled";

/// The field manager of all our writes.
///
/// It must not begin with `kubectl`: Flux strips the fields of such managers.
pub const FIELD_MANAGER: &str = "pod-reloader";
