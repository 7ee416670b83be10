//! The metrics of copies.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::runtime::controller::TermMetrics;
use crate::runtime::counted::{Counted, Label};

/// The metrics of this controller. They are shown only where it is switched on.
#[derive(Clone, Default)]
pub(super) struct SyncMetrics {
    /// Copies that are exact.
    pub(super) copies: Gauge,
    /// Namespaces that cannot have an exact copy.
    pub(super) conflicts: Gauge,
    /// ClusterConfigSyncs that are not ready.
    pub(super) not_ready: Gauge,
    pub(super) writes: Counted<Write>,
}

/// A write to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Create,
    Update,
    Delete,
}

impl Label for Write {
    const NAME: &'static str = "verb";
    const ALL: &'static [Self] = &[Self::Create, Self::Update, Self::Delete];

    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

impl SyncMetrics {
    /// Returns metrics that are shown among `ours`.
    pub(super) fn registered(ours: &mut Registry) -> Self {
        let metrics = Self::default();
        ours.register(
            "synced_copies",
            "Copies of ClusterConfigSyncs that are exact",
            metrics.copies.clone(),
        );
        ours.register(
            "sync_conflicts",
            "Namespaces that cannot have an exact copy of a ClusterConfigSync",
            metrics.conflicts.clone(),
        );
        ours.register(
            "syncs_not_ready",
            "ClusterConfigSyncs some of whose namespaces have no exact copy",
            metrics.not_ready.clone(),
        );
        ours.register(
            "sync_writes",
            "Writes to copies of ClusterConfigSyncs",
            metrics.writes.family(),
        );
        metrics
    }
}

impl TermMetrics for SyncMetrics {
    fn reset(&self) {
        for gauge in [&self.copies, &self.conflicts, &self.not_ready] {
            gauge.set(0);
        }
    }
}
