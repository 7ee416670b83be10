//! Counts restarts and workloads that wait by namespace, for a bounded number of namespaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::name::Name;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::Metrics;

/// The maximum number of namespaces that are shown by their names. Anyone who can create namespaces decides how many
/// there are.
const MAX_NAMESPACES: usize = 500;
/// The label value that stands for all others. No namespace can have this name.
const OTHERS: &str = "_others";

type Label = [(&'static str, String); 1];

/// Metrics with the label `namespace`. Cloning is cheap.
#[derive(Clone)]
pub(super) struct ByNamespace {
    restarts: Family<Label, Counter>,
    waiting: Family<Label, Gauge>,
    /// The namespaces that are shown by their names: the first ones that something happened in. They stay, so that what
    /// is counted up under a name is counted down under the same one.
    named: Arc<Mutex<BTreeSet<Name>>>,
}

impl ByNamespace {
    /// Returns metrics that are shown among `all`.
    pub(super) fn registered(all: &Metrics) -> Self {
        let metrics = Self {
            restarts: Family::default(),
            waiting: Family::default(),
            named: Arc::default(),
        };
        drop(metrics.restarts.get_or_create(&labelled(OTHERS)));
        metrics.reset();
        all.register(|ours| {
            ours.register(
                "namespace_restarts",
                "Config hashes set by the reconcile loop, each of which restarts pods, by namespace",
                metrics.restarts.clone(),
            );
            ours.register(
                "namespace_waiting_workloads",
                "Workloads whose restart waits, by namespace",
                metrics.waiting.clone(),
            );
        });
        metrics
    }

    /// Counts a restart.
    pub(super) fn restart(&self, namespace: &Name) {
        self.restarts.get_or_create(&self.label(namespace)).inc();
    }

    /// Counts workloads that wait from now on, or with a negative number no longer.
    pub(super) fn wait(&self, namespace: &Name, change: i64) {
        self.waiting
            .get_or_create(&self.label(namespace))
            .inc_by(change);
    }

    /// Forgets which workloads wait.
    pub(super) fn reset(&self) {
        self.waiting.clear();
        drop(self.waiting.get_or_create(&labelled(OTHERS)));
    }

    fn label(&self, namespace: &Name) -> Label {
        let mut named = self.named.lock();
        let has_room = named.len() < MAX_NAMESPACES;
        let is_named = named.contains(namespace) || (has_room && named.insert(namespace.clone()));
        labelled(if is_named { namespace.as_str() } else { OTHERS })
    }
}

fn labelled(namespace: &str) -> Label {
    [("namespace", namespace.to_owned())]
}

#[cfg(test)]
mod tests {
    use pod_reloader_core::decision::Cause;
    use pod_reloader_core::workload::WorkloadId;

    use super::*;
    use crate::mock;

    fn web(namespace: &str) -> WorkloadId {
        WorkloadId {
            namespace: mock::name(namespace),
            ..mock::id("web")
        }
    }

    /// Returns the values by namespace.
    fn shown(metrics: &Metrics, name: &str) -> Vec<(String, String)> {
        let start = format!("pod_reloader_{name}{{namespace=\"");
        let text = metrics.text();
        let lines = text.lines().filter_map(|line| line.strip_prefix(&start));
        let mut values: Vec<_> = lines
            .filter_map(|line| line.split_once("\"} "))
            .map(|(namespace, value)| (namespace.to_owned(), value.to_owned()))
            .collect();
        values.sort();
        values
    }

    fn values(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned =
            |(namespace, value): &(&str, &str)| ((*namespace).to_owned(), (*value).to_owned());
        expected.iter().map(owned).collect()
    }

    #[test]
    fn by_default_nothing_is_shown_by_namespace() {
        let metrics = Metrics::new();
        metrics.restart(&web("shop"), Cause::Changed);
        metrics.waits(&web("shop"), 1);
        let text = metrics.text();
        assert!(!text.contains("namespace_"), "{text}");
        assert!(!text.contains("shop"), "{text}");
    }

    #[tokio::test]
    async fn restarts_stay_and_workloads_that_wait_end_with_the_term() {
        let metrics = Metrics::new().and_namespaces();
        let mut term = Box::pin(metrics.clone().shown_to_lead(std::future::pending()));
        assert!(futures::poll!(&mut term).is_pending());
        for namespace in ["shop", "bank", "shop"] {
            metrics.restart(&web(namespace), Cause::Changed);
            metrics.waits(&web(namespace), 1);
        }
        metrics.waits(&web("bank"), -1);
        let restarts = values(&[("_others", "0"), ("bank", "1"), ("shop", "2")]);
        let waiting = values(&[("_others", "0"), ("bank", "0"), ("shop", "2")]);
        assert_eq!(shown(&metrics, "namespace_restarts_total"), restarts);
        assert_eq!(shown(&metrics, "namespace_waiting_workloads"), waiting);
        drop(term);
        assert_eq!(shown(&metrics, "namespace_restarts_total"), restarts);
        let none = values(&[("_others", "0")]);
        assert_eq!(shown(&metrics, "namespace_waiting_workloads"), none);
    }

    #[test]
    fn namespaces_beyond_the_maximum_share_a_label() {
        let metrics = Metrics::new().and_namespaces();
        for at in 0..MAX_NAMESPACES + 100 {
            let web = web(&format!("team-{at:04}"));
            metrics.restart(&web, Cause::Changed);
            metrics.waits(&web, 1);
        }
        for at in [0, MAX_NAMESPACES] {
            metrics.waits(&web(&format!("team-{at:04}")), -1);
        }
        let restarts = shown(&metrics, "namespace_restarts_total");
        assert_eq!(restarts.len(), MAX_NAMESPACES + 1);
        assert_eq!(restarts[0], ("_others".to_owned(), "100".to_owned()));
        let waiting = shown(&metrics, "namespace_waiting_workloads");
        let first = values(&[("_others", "99"), ("team-0000", "0"), ("team-0001", "1")]);
        assert_eq!(waiting[..3], first);
        assert_eq!(waiting.len(), MAX_NAMESPACES + 1);
    }
}
