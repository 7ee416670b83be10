//! The parts of the state of the loop that features are made of.

use std::sync::Arc;

use kube::Client;
use pod_reloader_core::scope::Scope;
use pod_reloader_core::workload::WorkloadId;

use crate::metrics::Metrics;
use crate::restart::lists::ListsDue;
use crate::restart::progress::Progress;
use crate::restart::settings::Settings;
use crate::restart::workloads::Workloads;
use crate::runtime::budget::Budget;
use crate::runtime::worker::Worker;

/// The parts of the state of the loop that many features need, and what they reach the apiserver by. What one feature
/// remembers is in its own folder.
pub(crate) struct Parts {
    pub(crate) settings: Arc<Settings>,
    pub(crate) metrics: Metrics,
    pub(crate) workloads: Arc<Workloads>,
    pub(crate) lists: Arc<ListsDue>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) worker: Arc<Worker<WorkloadId>>,
    pub(crate) client: Client,
    pub(crate) budget: Budget,
}

impl Parts {
    /// Returns the state at the beginning of a term.
    pub(crate) fn new(
        settings: Settings,
        scope: &Scope,
        progress: Progress,
        metrics: Metrics,
        (client, budget): (&Client, &Budget),
    ) -> Self {
        Self {
            metrics,
            workloads: Arc::new(Workloads::new(settings.namespace_memory)),
            lists: Arc::new(ListsDue::of(&scope.watched())),
            progress: Arc::new(progress),
            worker: Arc::default(),
            client: client.clone(),
            budget: budget.clone(),
            settings: Arc::new(settings),
        }
    }
}
