//! The gauges of workloads that are held up, each with its name and its description.

use prometheus_client::metrics::gauge::Gauge;

/// The numbers of workloads that are held up, by the reason. A notice says in which of them its workload is counted. Cloning
/// is cheap.
#[derive(Clone)]
pub(crate) struct HeldUp {
    pub(crate) missing_config: Gauge,
    pub(crate) gated: Gauge,
    pub(crate) together: Gauge,
    pub(crate) halted: Gauge,
    pub(crate) braked: Gauge,
    pub(crate) reverted: Gauge,
    pub(crate) refused: Gauge,
    pub(crate) unreadable: Gauge,
}

impl HeldUp {
    /// Returns gauges that are shown. `shown` makes one of a name and a description, that ends with a term of
    /// reconciling.
    pub(super) fn registered(mut shown: impl FnMut(&str, &str) -> Gauge) -> Self {
        Self {
            missing_config: shown(
                "missing_config_workloads",
                "Workloads whose restart waits for an object that their pods need",
            ),
            gated: shown(
                "pending_workloads",
                "Workloads whose restart waits for an approval, or until a hold ends",
            ),
            together: shown(
                "together_workloads",
                "Workloads whose restart waits for other objects to change, too",
            ),
            halted: shown(
                "halted_workloads",
                "Workloads that failed with changed config, and those that are not restarted because of that",
            ),
            braked: shown(
                "braked_workloads",
                "Workloads whose restart waits because they were restarted too often",
            ),
            reverted: shown(
                "reverted_workloads",
                "Workloads whose config hash somebody reverts again and again",
            ),
            refused: shown(
                "refused_workloads",
                "Workloads that the apiserver, or a policy in it, does not allow us to patch",
            ),
            unreadable: shown(
                "unreadable_workloads",
                "Workloads that track a ConfigMap or Secret that cannot be read",
            ),
        }
    }
}
