//! The names and descriptions under which the metrics are shown.

use prometheus_client::registry::{Registry, Unit};

use super::Metrics;
use super::process::Process;

/// Registers all `metrics`.
pub(super) fn register(registry: &mut Registry, metrics: &Metrics, version: &'static str) {
    registry.register_collector(Box::new(Process {
        since: std::time::SystemTime::now(),
    }));
    let ours = ours(registry);
    counters(ours, metrics);
    workloads(ours, metrics);
    others(ours, metrics, version);
}

/// Returns a place for metrics with our prefix.
pub(super) fn ours(registry: &mut Registry) -> &mut Registry {
    registry.sub_registry_with_prefix("pod_reloader")
}

fn counters(registry: &mut Registry, metrics: &Metrics) {
    registry.register(
        "admissions",
        "Admission reviews, by the outcome for the config hash",
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
        "Config hashes that the reconcile loop would have set if it did not only observe",
        metrics.would_restart.clone(),
    );
    registry.register(
        "stalled_restarts",
        "Config hashes set on workloads that restart no pods by themselves, by the reason",
        metrics.stalled.clone(),
    );
    registry.register(
        "reloads",
        "Changes of config that pods were asked to reload, by outcome: reloaded, or failed, after which they are restarted",
        metrics.reloads.family(),
    );
    registry.register(
        "saved_restarts",
        "Restarts that were due, and were no longer needed when the settle period was over",
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
        "Patches that were not applied because the workload had changed in the meantime. This is normal: it is reconciled again",
        metrics.patch_conflicts.clone(),
    );
    registry.register(
        "release_waits",
        "Restarts that waited for a release",
        metrics.release_waits.clone(),
    );
    registry.register(
        "release_timeouts",
        "Waits for a release that had not ended in time",
        metrics.release_timeouts.clone(),
    );
    registry.register(
        "reconcile_errors",
        "Reconciliations that failed and are retried, by reason",
        metrics.errors.family(),
    );
    registry.register(
        "notifications",
        "Notifications, by outcome: sent, failed, or dropped before sending",
        metrics.notifications.family(),
    );
    registry.register(
        "config_reads",
        "Calls to the apiserver that read ConfigMaps and Secrets, or list their names",
        metrics.config_reads.family(),
    );
}

fn workloads(registry: &mut Registry, metrics: &Metrics) {
    registry.register(
        "workloads",
        "Workloads that are managed",
        metrics.workloads.clone(),
    );
    registry.register(
        "left_out_workloads",
        "Workloads that are not managed because the workloads of their namespace take more memory than its share",
        metrics.left_out.clone(),
    );
    registry.register(
        "invalid_reference_workloads",
        "Workloads with items in their lists that are not references, which are left out",
        metrics.invalid_references.clone(),
    );
    registry.register(
        "foreign_hash_workloads",
        "Workloads whose config hash cannot be verified: their baseline is used",
        metrics.foreign.clone(),
    );
    registry.register(
        "undone_workloads",
        "Workloads that keep earlier content of a ConfigMap, because its change was undone",
        metrics.undone.clone(),
    );
    registry.register(
        "copies",
        "Copies of ConfigMaps that revisions of workloads keep",
        metrics.copies.clone(),
    );
    registry.register(
        "lost_copies",
        "Copies of ConfigMaps that pods are to use, and whose content nobody knows any more",
        metrics.lost_copies.clone(),
    );
    registry.register(
        "uncopied_workloads",
        "Workloads that pin, and were rolled out without copies because these could not be made",
        metrics.without_copies.clone(),
    );
    registry.register(
        "unpinned_pods",
        "Pods that use ConfigMaps themselves although their workload pins copies",
        metrics.unpinned_pods.clone(),
    );
    registry.register(
        "reverts",
        "Earlier configurations that were put back because pods did not become healthy",
        metrics.reverts.clone(),
    );
    registry.register(
        "stuck_pods_deleted",
        "Pods that were deleted because they kept a StatefulSet from rolling out corrected config",
        metrics.unstuck.clone(),
    );
    registry.register(
        "hashes",
        "Workloads by the key of their config hash or baseline",
        metrics.hashes.clone(),
    );
}

fn others(registry: &mut Registry, metrics: &Metrics, version: &'static str) {
    registry.register(
        "config_objects",
        "ConfigMaps and Secrets that workloads reference, existing or not",
        metrics.config_objects.clone(),
    );
    registry.register(
        "references",
        "References of workloads to ConfigMaps and Secrets by name",
        metrics.references.clone(),
    );
    registry.register(
        "digests",
        "ConfigMaps and Secrets whose last state the loop remembers",
        metrics.digests.clone(),
    );
    registry.register(
        "leading",
        "1 while this replica runs the reconcile loop",
        metrics.leading.clone(),
    );
    registry.register(
        "reconcile_mode",
        "1 for the mode of the reconcile loop",
        metrics.mode.clone(),
    );
    registry.register_with_unit(
        "loop_heartbeat_timestamp",
        "Time of the last heartbeat of the reconcile loop, in seconds since 1970; 0 while this replica does not run it",
        Unit::Seconds,
        metrics.heartbeat.clone(),
    );
    registry.register_collector(Box::new(metrics.watches.clone()));
    registry.register_with_unit(
        "webhook_certificate_not_after",
        "Expiry of the webhook's certificate, in seconds since 1970",
        Unit::Seconds,
        metrics.certificate_not_after.clone(),
    );
    registry.register(
        "build",
        "The version of the operator",
        prometheus_client::metrics::info::Info::new([("version", version)]),
    );
}
