//! The names and descriptions under which the metrics are shown.

use std::sync::Arc;
use std::time::SystemTime;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::Metrics;
use super::held_up::HeldUp;
use super::process::Process;
use crate::live::reads::AllReads;
use crate::runtime::controller::Errors;
use crate::runtime::counted::Counted;
use crate::runtime::watch_age::Watches;

/// Buckets for the time that the webhook takes, in seconds. With the chart's defaults, the apiserver waits
/// for 3 s.
const ADMISSION_SECONDS: [f64; 11] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0,
];
/// Buckets, in seconds, for settle periods (5 s unless configured otherwise), fan-outs, and the brake.
const CHANGE_TO_PATCH_SECONDS: [f64; 12] = [
    0.5, 1.0, 2.0, 3.0, 5.0, 6.0, 8.0, 15.0, 30.0, 60.0, 300.0, 1800.0,
];

/// Makes metrics that are shown, with our prefix.
struct Maker<'a> {
    ours: &'a mut Registry,
    /// The gauges that end with a term of reconciling.
    term: Vec<Gauge>,
}

impl Maker<'_> {
    fn make<M: Metric + Clone + Default>(&mut self, name: &str, description: &str) -> M {
        self.counted(name, description, M::clone)
    }

    /// Makes a gauge that only the leader shows: it is reset when a term ends.
    fn of_a_term(&mut self, name: &str, description: &str) -> Gauge {
        let gauge: Gauge = self.make(name, description);
        self.term.push(gauge.clone());
        gauge
    }

    /// Makes counters whose metric is what `family` returns.
    fn counted<C: Default, F: Metric>(
        &mut self,
        name: &str,
        description: &str,
        family: fn(&C) -> F,
    ) -> C {
        let counters = C::default();
        self.ours.register(name, description, family(&counters));
        counters
    }

    fn seconds<M: Metric + Clone>(&mut self, name: &str, description: &str, metric: M) -> M {
        let shown = metric.clone();
        self.ours
            .register_with_unit(name, description, Unit::Seconds, shown);
        metric
    }
}

/// Returns a place for metrics with our prefix.
pub(super) fn ours(registry: &mut Registry) -> &mut Registry {
    registry.sub_registry_with_prefix("pod_reloader")
}

/// Returns all metrics, registered.
pub(super) fn registered() -> Metrics {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Process {
        since: SystemTime::now(),
    }));
    let mut shown = Maker {
        ours: ours(&mut registry),
        term: Vec::new(),
    };
    let watches = Watches::default();
    shown.ours.register_collector(Box::new(watches.clone()));
    let metrics = Metrics {
        registry: Arc::default(),
        held_up: HeldUp::registered(|name, description| shown.of_a_term(name, description)),
        admissions: shown.make(
            "admissions",
            "Admission reviews, by the outcome for the config hash",
        ),
        admission_duration: shown.seconds(
            "admission_duration",
            "Time from the head of an admission review to its answer",
            Histogram::new(ADMISSION_SECONDS),
        ),
        restarts: shown.make(
            "restarts",
            "Config hashes set by the reconcile loop, each of which restarts pods",
        ),
        would_restart: shown.make(
            "would_restart",
            "Config hashes that the reconcile loop would have set if it did not only observe",
        ),
        stalled: shown.make(
            "stalled_restarts",
            "Config hashes set on workloads that restart no pods by themselves, by the reason",
        ),
        reloads: shown.counted(
            "reloads",
            "Changes of config that pods were asked to reload, by outcome: reloaded, or failed, after which they are restarted",
            Counted::family,
        ),
        saved: shown.make(
            "saved_restarts",
            "Restarts that were due, and were no longer needed when the settle period was over",
        ),
        change_to_patch: shown.seconds(
            "change_to_patch",
            "Time from the first event about a change to the answer to the patch that restarts pods for it",
            Histogram::new(CHANGE_TO_PATCH_SECONDS),
        ),
        baselines: shown.make("baselines", "Baselines written, which restart nothing"),
        patch_conflicts: shown.make(
            "patch_conflicts",
            "Patches that were not applied because the workload had changed in the meantime. This is normal: it is reconciled again",
        ),
        release_waits: shown.make("release_waits", "Restarts that waited for a release"),
        release_timeouts: shown.make(
            "release_timeouts",
            "Waits for a release that had not ended in time",
        ),
        errors: shown.counted(
            "reconcile_errors",
            "Reconciliations that failed and are retried, by reason",
            Errors::family,
        ),
        notifications: shown.counted(
            "notifications",
            "Notifications, by outcome: sent, failed, or dropped before sending",
            Counted::family,
        ),
        config_reads: shown.counted(
            "config_reads",
            "Calls to the apiserver that read ConfigMaps and Secrets, or list their names",
            AllReads::family,
        ),
        workloads: shown.of_a_term("workloads", "Workloads that are managed"),
        left_out: shown.of_a_term(
            "left_out_workloads",
            "Workloads that are not managed because the workloads of their namespace take more memory than its share",
        ),
        invalid_references: shown.of_a_term(
            "invalid_reference_workloads",
            "Workloads with items in their lists that are not references, which are left out",
        ),
        foreign: shown.of_a_term(
            "foreign_hash_workloads",
            "Workloads whose config hash cannot be verified: their baseline is used",
        ),
        undone: shown.of_a_term(
            "undone_workloads",
            "Workloads that keep earlier content of a ConfigMap, because its change was undone",
        ),
        copies: shown.of_a_term(
            "copies",
            "Copies of ConfigMaps that revisions of workloads keep",
        ),
        lost_copies: shown.of_a_term(
            "lost_copies",
            "Copies of ConfigMaps that pods are to use, and whose content nobody knows any more",
        ),
        without_copies: shown.of_a_term(
            "uncopied_workloads",
            "Workloads that pin, and were rolled out without copies because these could not be made",
        ),
        unpinned_pods: shown.of_a_term(
            "unpinned_pods",
            "Pods that use ConfigMaps themselves although their workload pins copies",
        ),
        reverts: shown.make(
            "reverts",
            "Earlier configurations that were put back because pods did not become healthy",
        ),
        unstuck: shown.make(
            "stuck_pods_deleted",
            "Pods that were deleted because they kept a StatefulSet from rolling out corrected config",
        ),
        hashes: shown.make(
            "hashes",
            "Workloads by the key of their config hash or baseline",
        ),
        config_objects: shown.of_a_term(
            "config_objects",
            "ConfigMaps and Secrets that workloads reference, existing or not",
        ),
        references: shown.of_a_term(
            "references",
            "References of workloads to ConfigMaps and Secrets by name",
        ),
        digests: shown.of_a_term(
            "digests",
            "ConfigMaps and Secrets whose last state the loop remembers",
        ),
        leading: shown.of_a_term("leading", "1 while this replica runs the reconcile loop"),
        mode: shown.make("reconcile_mode", "1 for the mode of the reconcile loop"),
        heartbeat: shown.seconds(
            "loop_heartbeat_timestamp",
            "Time of the last heartbeat of the reconcile loop, in seconds since 1970; 0 while this replica does not run it",
            Gauge::default(),
        ),
        certificate_not_after: shown.seconds(
            "webhook_certificate_not_after",
            "Expiry of the webhook's certificate, in seconds since 1970",
            Gauge::default(),
        ),
        watches,
        shown_keys: Arc::default(),
        by_namespace: None,
        term: shown.term,
    };
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    let ours = shown.ours;
    ours.register("build", "The version of the operator", version);
    *metrics.registry.lock() = registry;
    metrics
}
