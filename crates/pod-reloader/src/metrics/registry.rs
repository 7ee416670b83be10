//! The names and descriptions under which the metrics are shown.

use prometheus_client::registry::{Registry, Unit};

use super::Metrics;
use super::process::Process;

/// Returns a registry of all `metrics`.
pub(super) fn registry(metrics: &Metrics, version: &'static str) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Process {
        since: std::time::SystemTime::now(),
    }));
    let ours = registry.sub_registry_with_prefix("pod_reloader");
    counters(ours, metrics);
    workloads(ours, metrics);
    others(ours, metrics, version);
    registry
}

fn counters(registry: &mut Registry, metrics: &Metrics) {
    registry.register(
        "admissions",
        "Admission reviews, by what became of the config hash",
        metrics.admissions.clone(),
    );
    registry.register_with_unit(
        "admission_duration",
        "Time from the head of an admission review to its answer",
        Unit::Seconds,
        metrics.admission_duration.clone(),
    );
    registry.register(
        "restarts",
        "Config hashes set by the reconcile loop, each of which restarts pods",
        metrics.restarts.clone(),
    );
    registry.register(
        "would_restart",
        "Config hashes that the reconcile loop would have set, had it not only observed",
        metrics.would_restart.clone(),
    );
    registry.register(
        "stalled_restarts",
        "Config hashes set on workloads that restart no pods by themselves, by what keeps them from it",
        metrics.stalled.clone(),
    );
    registry.register(
        "saved_restarts",
        "Restarts that were due, and were needed no more when the settle period was over",
        metrics.saved.clone(),
    );
    registry.register_with_unit(
        "change_to_patch",
        "Time from the first event about a change to the answer to the patch that restarts pods for it",
        Unit::Seconds,
        metrics.change_to_patch.clone(),
    );
    registry.register(
        "baselines",
        "Baselines written, which restart nothing",
        metrics.baselines.clone(),
    );
    registry.register(
        "patch_conflicts",
        "Patches that were not applied because the workload had moved meanwhile, as happens: it is looked at again",
        metrics.patch_conflicts.clone(),
    );
    registry.register(
        "reconcile_errors",
        "Reconciliations that failed and are tried again, by reason",
        metrics.errors.family(),
    );
    registry.register(
        "notifications",
        "Messages sent, or not, to the receiver of notifications, and what was dropped before",
        metrics.notifications.clone(),
    );
    registry.register(
        "config_reads",
        "Calls of the apiserver for the content of a ConfigMap or Secret, or for the names of those of a namespace",
        metrics.config_reads.clone(),
    );
}

fn workloads(registry: &mut Registry, metrics: &Metrics) {
    registry.register(
        "workloads",
        "Workloads that are kept",
        metrics.workloads.clone(),
    );
    registry.register(
        "waiting_workloads",
        "Workloads whose restart waits for an object that their pods need",
        metrics.waiting.clone(),
    );
    registry.register(
        "braked_workloads",
        "Workloads whose restart waits because they were restarted too often",
        metrics.braked.clone(),
    );
    registry.register(
        "reverted_workloads",
        "Workloads whose config hash somebody takes back again and again",
        metrics.reverted.clone(),
    );
    registry.register(
        "refused_workloads",
        "Workloads that the apiserver, or a policy in it, does not let us patch",
        metrics.refused.clone(),
    );
    registry.register(
        "unreadable_workloads",
        "Workloads of whose ConfigMaps and Secrets one may not be read",
        metrics.unreadable.clone(),
    );
    registry.register(
        "left_out_workloads",
        "Workloads that are not managed because those of their namespace take more memory than its share",
        metrics.left_out.clone(),
    );
    registry.register(
        "foreign_hash_workloads",
        "Workloads whose config hash cannot be verified: they rely on their baseline",
        metrics.foreign.clone(),
    );
    registry.register(
        "hashes",
        "Workloads whose config hash, or baseline, was made under a key",
        metrics.hashes.clone(),
    );
}

fn others(registry: &mut Registry, metrics: &Metrics, version: &'static str) {
    registry.register(
        "config_objects",
        "ConfigMaps and Secrets that workloads name, whether they are there or not",
        metrics.config_objects.clone(),
    );
    registry.register(
        "references",
        "References of workloads to ConfigMaps and Secrets by their names",
        metrics.references.clone(),
    );
    registry.register(
        "digests",
        "ConfigMaps and Secrets of which the loop remembers what was last read",
        metrics.digests.clone(),
    );
    registry.register(
        "leading",
        "1 while this replica runs the reconcile loop",
        metrics.leading.clone(),
    );
    registry.register(
        "reconcile_mode",
        "1 for what the reconcile loop is told to do",
        metrics.mode.clone(),
    );
    registry.register_with_unit(
        "loop_heartbeat_timestamp",
        "When the reconcile loop last said that it turns, in seconds since 1970; 0 while this replica does not run it",
        Unit::Seconds,
        metrics.heartbeat.clone(),
    );
    registry.register_collector(Box::new(metrics.watches.clone()));
    registry.register_with_unit(
        "webhook_certificate_not_after",
        "When the webhook's certificate expires, in seconds since 1970",
        Unit::Seconds,
        metrics.certificate_not_after.clone(),
    );
    registry.register(
        "build",
        "The version of the operator",
        prometheus_client::metrics::info::Info::new([("version", version)]),
    );
}
