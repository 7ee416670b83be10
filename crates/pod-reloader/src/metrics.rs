//! The metrics: what is counted, under which names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use parking_lot::Mutex;
use pod_reloader_core::admission::Outcome;
use pod_reloader_core::decision::Cause;
use pod_reloader_core::hash::KeyId;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::workload::Stall;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::error::CallError;
use crate::notify;

/// Labels from closed sets only.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// All metrics. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    admissions: Family<Labels<1>, Counter>,
    restarts: Family<Labels<2>, Counter>,
    would_restart: Family<Labels<2>, Counter>,
    stalled: Family<Labels<2>, Counter>,
    baselines: Counter,
    errors: Family<Labels<1>, Counter>,
    notifications: Family<Labels<1>, Counter>,
    /// Workloads that are kept.
    pub(crate) workloads: Gauge,
    /// Workloads whose restart waits for an object.
    pub(crate) waiting: Gauge,
    /// Workloads whose restart waits because they were restarted too often.
    pub(crate) braked: Gauge,
    /// Workloads whose config hash somebody takes back.
    pub(crate) reverted: Gauge,
    /// Workloads whose config hash is not verifiable: only their baseline is.
    pub(crate) foreign: Gauge,
    /// 1 while this replica reconciles.
    pub(crate) leading: Gauge,
    hashes: Family<[(&'static str, String); 1], Gauge>,
    shown_keys: Arc<Mutex<Vec<String>>>,
    certificate_not_after: Gauge<f64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("pod_reloader");
        let mut metrics = Self {
            registry: Arc::default(),
            admissions: Family::default(),
            restarts: Family::default(),
            would_restart: Family::default(),
            stalled: Family::default(),
            baselines: Counter::default(),
            errors: Family::default(),
            notifications: Family::default(),
            workloads: Gauge::default(),
            waiting: Gauge::default(),
            braked: Gauge::default(),
            reverted: Gauge::default(),
            foreign: Gauge::default(),
            leading: Gauge::default(),
            hashes: Family::default(),
            shown_keys: Arc::default(),
            certificate_not_after: Gauge::default(),
        };
        let m = &metrics;
        registry.register(
            "admissions",
            "Admission reviews, by what became of the config hash",
            m.admissions.clone(),
        );
        registry.register(
            "restarts",
            "Config hashes set by the reconcile loop, each of which restarts pods",
            m.restarts.clone(),
        );
        registry.register(
            "would_restart",
            "Config hashes that the reconcile loop would have set, had it not only observed",
            m.would_restart.clone(),
        );
        registry.register(
            "stalled_restarts",
            "Config hashes set on workloads that restart no pods by themselves, by what keeps them from it",
            m.stalled.clone(),
        );
        registry.register(
            "baselines",
            "Baselines written, which restart nothing",
            m.baselines.clone(),
        );
        registry.register(
            "reconcile_errors",
            "Reconciliations that failed and are tried again, by reason",
            m.errors.clone(),
        );
        registry.register(
            "notifications",
            "Messages sent, or not, to the receiver of notifications, and what was dropped before",
            m.notifications.clone(),
        );
        registry.register("workloads", "Workloads that are kept", m.workloads.clone());
        registry.register(
            "waiting_workloads",
            "Workloads whose restart waits for an object that their pods need",
            m.waiting.clone(),
        );
        registry.register(
            "braked_workloads",
            "Workloads whose restart waits because they were restarted too often",
            m.braked.clone(),
        );
        registry.register(
            "reverted_workloads",
            "Workloads whose config hash somebody takes back again and again",
            m.reverted.clone(),
        );
        registry.register(
            "foreign_hash_workloads",
            "Workloads whose config hash cannot be verified: they rely on their baseline",
            m.foreign.clone(),
        );
        registry.register(
            "hashes",
            "Workloads whose config hash, or baseline, was made under a key",
            m.hashes.clone(),
        );
        registry.register(
            "leading",
            "1 while this replica runs the reconcile loop",
            m.leading.clone(),
        );
        registry.register(
            "webhook_certificate_not_after_seconds",
            "When the webhook's certificate expires, in seconds since 1970",
            m.certificate_not_after.clone(),
        );
        metrics.registry = Arc::new(registry);
        metrics.begin_at_zero();
        metrics
    }

    /// Shows every series from the start: an alert on the increase of one that only appears with its
    /// first count would miss that.
    fn begin_at_zero(&self) {
        for outcome in OUTCOMES {
            drop(self.admissions.get_or_create(&[("outcome", outcome)]));
        }
        for kind in WorkloadKind::BUILT_IN {
            for cause in [
                Cause::FirstStamp,
                Cause::Changed,
                Cause::ChangedBeforeTakeover,
            ] {
                drop(self.restarts.get_or_create(&labels(kind, cause)));
                drop(self.would_restart.get_or_create(&labels(kind, cause)));
            }
            for stall in [Stall::Paused, Stall::OnDelete] {
                drop(self.stalled.get_or_create(&stalled_labels(kind, stall)));
            }
        }
        for reason in CallError::REASONS.into_iter().chain(["other"]) {
            drop(self.errors.get_or_create(&[("reason", reason)]));
        }
        for outcome in notify::Outcome::ALL {
            let labels = [("outcome", outcome.as_str())];
            drop(self.notifications.get_or_create(&labels));
        }
    }

    /// Counts an admission review. `None` could not be answered.
    pub(crate) fn admission(&self, outcome: Option<Outcome>) {
        let outcome = match outcome {
            Some(Outcome::Ignored) => "ignored",
            Some(Outcome::Kept) => "kept",
            Some(Outcome::Set) => "set",
            Some(Outcome::Held) => "held",
            Some(Outcome::Unknown) => "unknown",
            None => "error",
        };
        self.admissions.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Counts a restart.
    pub(crate) fn restart(&self, kind: WorkloadKind, cause: Cause) {
        self.restarts.get_or_create(&labels(kind, cause)).inc();
    }

    /// Counts a restart that only was observed.
    pub(crate) fn would_restart(&self, kind: WorkloadKind, cause: Cause) {
        self.would_restart.get_or_create(&labels(kind, cause)).inc();
    }

    /// Counts a restart that comes to nothing for now.
    pub(crate) fn stalled(&self, kind: WorkloadKind, stall: Stall) {
        self.stalled
            .get_or_create(&stalled_labels(kind, stall))
            .inc();
    }

    /// Counts a baseline.
    pub(crate) fn baseline(&self) {
        self.baselines.inc();
    }

    /// Counts a failed reconciliation. `reason` is of a closed set.
    pub(crate) fn error(&self, reason: &'static str) {
        self.errors.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a message to the receiver of notifications, or what was dropped before.
    pub(crate) fn notification(&self, outcome: notify::Outcome) {
        let labels = [("outcome", outcome.as_str())];
        self.notifications.get_or_create(&labels).inc();
    }

    /// Says how many workloads rely on each key. The ids of keys are no secret: each hash shows its own.
    pub(crate) fn hashes(&self, counts: impl IntoIterator<Item = (KeyId, usize)>) {
        let counts: BTreeMap<String, usize> = counts
            .into_iter()
            .map(|(key_id, count)| (key_id.to_string(), count))
            .collect();
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

    /// Says when the webhook's certificate expires.
    pub(crate) fn certificate_not_after(&self, at: SystemTime) {
        let since_1970 = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.certificate_not_after.set(since_1970.as_secs_f64());
    }

    /// The metrics in the text format of OpenMetrics.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String takes everything");
        text
    }
}

/// What [`Metrics::admission`] tells apart.
const OUTCOMES: [&str; 6] = ["ignored", "kept", "set", "held", "unknown", "error"];

fn labels(kind: WorkloadKind, cause: Cause) -> Labels<2> {
    let cause = match cause {
        Cause::FirstStamp => "first_stamp",
        Cause::Changed => "changed",
        Cause::ChangedBeforeTakeover => "changed_before_takeover",
    };
    [("kind", kind.as_str()), ("cause", cause)]
}

fn stalled_labels(kind: WorkloadKind, stall: Stall) -> Labels<2> {
    let reason = match stall {
        Stall::Paused => "paused",
        Stall::OnDelete => "on_delete",
    };
    [("kind", kind.as_str()), ("reason", reason)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use pod_reloader_core::hash::{HashKey, KEY_LENGTH};

    #[test]
    fn a_key_that_nothing_relies_on_any_more_is_not_shown() {
        let metrics = Metrics::new();
        let [old, new] = [1, 2].map(|seed| HashKey::new([seed; KEY_LENGTH]).id());
        metrics.hashes([(old, 3), (new, 1)]);
        let line = |key, count: u8| format!("pod_reloader_hashes{{key_id=\"{key}\"}} {count}\n");
        assert!(metrics.text().contains(&line(old, 3)));
        metrics.hashes([(new, 4)]);
        let text = metrics.text();
        assert!(
            text.contains(&line(new, 4)) && !text.contains(&old.to_string()),
            "{text}"
        );
    }

    #[test]
    fn what_is_counted_is_shown() {
        let metrics = Metrics::new();
        metrics.restart(WorkloadKind::DEPLOYMENT, Cause::Changed);
        metrics.admission(Some(Outcome::Kept));
        metrics.workloads.set(3);
        let text = metrics.text();
        for line in [
            r#"pod_reloader_restarts_total{kind="Deployment",cause="changed"} 1"#,
            r#"pod_reloader_admissions_total{outcome="kept"} 1"#,
            "pod_reloader_workloads 3",
        ] {
            assert!(
                text.lines().any(|shown| shown == line),
                "{line} is not in\n{text}"
            );
        }
    }
}
