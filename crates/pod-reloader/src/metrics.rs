//! The metrics, and their labels.

mod by_namespace;
mod held_up;
mod labels;
mod outcomes;
mod process;
mod registry;
mod zero;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use parking_lot::Mutex;
use pod_reloader_core::admission::Outcome;
use pod_reloader_core::decision::Cause;
use pod_reloader_core::hash::KeyId;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::workload::{Stall, WorkloadId};
use pod_reloader_settings::{ControllerName, Reconcile};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use self::by_namespace::ByNamespace;
pub(crate) use self::held_up::HeldUp;
pub(crate) use self::labels::cause_label;
use self::labels::{Labels, labels, stalled_labels};
pub(crate) use self::outcomes::{Delivery, ReloadOutcome};
use crate::live::reads::AllReads;
use crate::runtime::controller::{Errors, Shown, TermMetrics};
use crate::runtime::counted::Counted;
use crate::runtime::watch_age::{Watches, since_1970};

/// The controller that restarts workloads, as the log and metrics name it.
pub(crate) const RESTART: &str = ControllerName::Restart.as_str();

/// All metrics. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Arc<Mutex<Registry>>,
    admissions: Family<Labels<1>, Counter>,
    /// How long it took to answer admission reviews, or to fail to.
    pub(crate) admission_duration: Histogram,
    restarts: Family<Labels<2>, Counter>,
    would_restart: Family<Labels<2>, Counter>,
    stalled: Family<Labels<2>, Counter>,
    /// Rounds of reloads that have ended.
    pub(crate) reloads: Counted<ReloadOutcome>,
    /// Restarts that were due, but are no longer needed.
    pub(crate) saved: Counter,
    /// The times from the first news of changes to their patches.
    pub(crate) change_to_patch: Histogram,
    /// Baselines that were written.
    pub(crate) baselines: Counter,
    /// Patches that failed because the workload had changed in the meantime.
    pub(crate) patch_conflicts: Counter,
    /// Restarts that have waited for a release.
    pub(crate) release_waits: Counter,
    /// Releases that have not ended in time for a restart that waited.
    pub(crate) release_timeouts: Counter,
    /// Failures of controllers.
    pub(crate) errors: Errors,
    /// Messages to the receiver of notifications, and news that were dropped before they got into one.
    pub(crate) notifications: Counted<Delivery>,
    /// The counters of all readers.
    pub(crate) config_reads: AllReads,
    /// Workloads that are managed.
    pub(crate) workloads: Gauge,
    /// Workloads that are held up.
    pub(crate) held_up: HeldUp,
    /// Workloads that are not managed because their namespace takes too much memory.
    pub(crate) left_out: Gauge,
    /// Workloads with items in their lists that are not references.
    pub(crate) invalid_references: Gauge,
    /// Workloads whose config hash cannot be verified: only their baseline can.
    pub(crate) foreign: Gauge,
    /// Config objects that workloads reference.
    pub(crate) config_objects: Gauge,
    /// Workloads some of whose content was undone.
    pub(crate) undone: Gauge,
    /// Copies of ConfigMaps.
    pub(crate) copies: Gauge,
    /// Copies in use whose content nobody knows any more.
    pub(crate) lost_copies: Gauge,
    /// Workloads that pin, and were rolled out without copies.
    pub(crate) without_copies: Gauge,
    /// Pods that were created without regard to their pins.
    pub(crate) unpinned_pods: Gauge,
    /// Configurations that were put back.
    pub(crate) reverts: Counter,
    /// Pods that were deleted because they kept a StatefulSet from going on.
    pub(crate) unstuck: Counter,
    /// References of workloads to config objects.
    pub(crate) references: Gauge,
    /// Config objects for which a read is remembered.
    pub(crate) digests: Gauge,
    /// 1 while this replica leads.
    pub(crate) leading: Gauge,
    mode: Family<Labels<1>, Gauge>,
    heartbeat: Gauge<f64, AtomicU64>,
    /// The times when each watch last heard from the apiserver.
    pub(crate) watches: Watches,
    hashes: Family<[(&'static str, String); 1], Gauge>,
    shown_keys: Arc<Mutex<Vec<String>>>,
    certificate_not_after: Gauge<f64, AtomicU64>,
    /// What is counted by namespace, too. `None` if that is switched off.
    by_namespace: Option<ByNamespace>,
    /// The gauges that end with a term of reconciling.
    term: Vec<Gauge>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let metrics = registry::registered();
        metrics.begin_at_zero();
        metrics
    }

    /// Counts restarts and workloads that wait by namespace, too.
    #[must_use]
    pub(crate) fn and_namespaces(self) -> Self {
        let by_namespace = ByNamespace::registered(&self);
        Self {
            by_namespace: Some(by_namespace),
            ..self
        }
    }

    /// Shows the mode of the reconcile loop.
    pub(crate) fn mode(&self, told: Reconcile) {
        for (mode, name) in [
            (Reconcile::Restart, "restart"),
            (Reconcile::Observe, "observe"),
            (Reconcile::Nothing, "none"),
        ] {
            let gauge = self.mode.get_or_create(&[("mode", name)]);
            gauge.set(i64::from(mode == told));
        }
    }

    /// Counts an admission review. `None` stands for one that could not be answered.
    pub(crate) fn admission(&self, outcome: Option<Outcome>) {
        let outcome = match outcome {
            Some(Outcome::Ignored) => "ignored",
            Some(Outcome::Unchanged) => "unchanged",
            Some(Outcome::Set) => "set",
            Some(Outcome::MissingConfig) => "missing_config",
            Some(Outcome::Unknown) => "unknown",
            Some(Outcome::TooLong) => "too_long",
            None => "error",
        };
        self.admissions.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Counts a restart.
    pub(crate) fn restart(&self, id: &WorkloadId, cause: Cause) {
        self.restarts.get_or_create(&labels(id.kind, cause)).inc();
        if let Some(by_namespace) = &self.by_namespace {
            by_namespace.restart(&id.namespace);
        }
    }

    /// Counts by namespace that a workload waits from now on (1), or no longer (-1).
    pub(crate) fn waits(&self, id: &WorkloadId, change: i64) {
        if let Some(by_namespace) = self.by_namespace.as_ref().filter(|_| change != 0) {
            by_namespace.wait(&id.namespace, change);
        }
    }

    /// Counts a restart that was only reported, because the loop only observes.
    pub(crate) fn would_restart(&self, kind: WorkloadKind, cause: Cause) {
        self.would_restart.get_or_create(&labels(kind, cause)).inc();
    }

    /// Counts a restart that restarts no pods for now.
    pub(crate) fn stalled(&self, kind: WorkloadKind, stall: Stall) {
        self.stalled
            .get_or_create(&stalled_labels(kind, stall))
            .inc();
    }

    /// Notes that the loop was running at `now`, or with `None` that this replica does not run it.
    pub(crate) fn heartbeat(&self, now: Option<SystemTime>) {
        self.heartbeat.set(now.map_or(0.0, since_1970));
    }

    /// Adds metrics to those that are shown, under our prefix. A controller adds its own. Returns what `add` returns.
    pub(crate) fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(registry::ours(&mut self.registry.lock()))
    }

    /// Works for a term of leadership, and shows that this replica leads. Dropping the future ends the term, and resets
    /// whatever it has shown.
    pub(crate) async fn shown_to_lead(self, term: impl Future<Output = ()>) {
        let _shown = Shown::new(self.clone());
        self.leading.set(1);
        term.await;
    }

    /// Shows how many workloads rely on each key. `None` stands for all keys that do not exist, because
    /// anybody can write the ID of one. The IDs of keys are no secret: each hash shows its own.
    pub(crate) fn hashes(&self, relied_on: impl IntoIterator<Item = (Option<KeyId>, usize)>) {
        let mut counts = BTreeMap::from([(UNKNOWN_KEY.to_owned(), 0)]);
        for (key_id, count) in relied_on {
            let key_id = key_id.map_or_else(|| UNKNOWN_KEY.to_owned(), |id| id.to_string());
            *counts.entry(key_id).or_default() += count;
        }
        let mut shown = self.shown_keys.lock();
        for gone in shown.iter().filter(|key_id| !counts.contains_key(*key_id)) {
            self.hashes.remove(&[("key_id", gone.clone())]);
        }
        for (key_id, count) in &counts {
            let gauge = self.hashes.get_or_create(&[("key_id", key_id.clone())]);
            gauge.set(*count as i64);
        }
        *shown = counts.into_keys().collect();
    }

    /// Notes when the webhook's certificate expires.
    pub(crate) fn certificate_not_after(&self, at: SystemTime) {
        self.certificate_not_after.set(since_1970(at));
    }

    /// Returns the metrics in the text format of OpenMetrics.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock()).expect("a String takes everything");
        text
    }
}

impl TermMetrics for Metrics {
    fn reset(&self) {
        for gauge in &self.term {
            gauge.set(0);
        }
        if let Some(by_namespace) = &self.by_namespace {
            by_namespace.reset();
        }
        self.heartbeat(None);
        self.hashes([]);
    }
}

/// The label value that stands for every key that does not exist.
const UNKNOWN_KEY: &str = "unknown";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock::{id, name};
    use crate::runtime::error::CallError;
    use pod_reloader_core::hash::{HashKey, KEY_LENGTH};
    use std::time::Duration;

    #[test]
    fn a_key_that_nothing_relies_on_any_more_is_not_shown() {
        let metrics = Metrics::new();
        let [old, new] = [1, 2].map(|seed| HashKey::new([seed; KEY_LENGTH]).id());
        metrics.hashes([(Some(old), 3), (Some(new), 1)]);
        let line = |key, count: u8| format!("pod_reloader_hashes{{key_id=\"{key}\"}} {count}\n");
        assert!(metrics.text().contains(&line(old, 3)));
        metrics.hashes([(Some(new), 4)]);
        let text = metrics.text();
        assert!(
            text.contains(&line(new, 4)) && !text.contains(&old.to_string()),
            "{text}"
        );
    }

    #[tokio::test]
    async fn the_end_of_a_term_resets_its_gauges_and_no_counter() {
        let metrics = Metrics::new();
        let mut term = Box::pin(metrics.clone().shown_to_lead(std::future::pending()));
        assert!(futures::poll!(&mut term).is_pending());
        metrics.held_up.missing_config.set(2);
        metrics.saved.inc();
        metrics.certificate_not_after(SystemTime::UNIX_EPOCH + Duration::from_secs(60));
        assert!(metrics.text().contains("pod_reloader_leading 1\n"));
        drop(term);
        let text = metrics.text();
        for line in [
            "pod_reloader_missing_config_workloads 0",
            "pod_reloader_leading 0",
            "pod_reloader_saved_restarts_total 1",
            "pod_reloader_webhook_certificate_not_after_seconds 60.0",
        ] {
            assert!(
                text.lines().any(|shown| shown == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn every_gauge_of_a_term_is_shown() {
        let metrics = Metrics::new();
        for gauge in &metrics.term {
            gauge.set(4711);
        }
        let text = metrics.text();
        let shown = text.lines().filter(|line| line.ends_with(" 4711"));
        assert_eq!(shown.count(), metrics.term.len(), "{text}");
    }

    #[test]
    fn failures_of_the_loop_are_shown_before_the_first_one() {
        let text = Metrics::new().text();
        for reason in CallError::REASONS.into_iter().chain(["other"]) {
            let series =
                format!("reconcile_errors_total{{controller=\"restart\",reason=\"{reason}\"}} 0\n");
            assert!(text.contains(&series), "{series} is not in\n{text}");
        }
    }

    #[test]
    fn every_metric_that_was_set_is_shown() {
        let metrics = Metrics::new();
        let web = WorkloadId {
            namespace: name("shop"),
            ..id("web")
        };
        metrics.restart(&web, Cause::Changed);
        metrics.admission(Some(Outcome::Unchanged));
        metrics.workloads.set(3);
        let text = metrics.text();
        for line in [
            r#"pod_reloader_restarts_total{kind="Deployment",cause="changed"} 1"#,
            r#"pod_reloader_admissions_total{outcome="unchanged"} 1"#,
            "pod_reloader_workloads 3",
        ] {
            assert!(
                text.lines().any(|shown| shown == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
