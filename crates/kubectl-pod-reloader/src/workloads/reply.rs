//! The answers to status queries.

use pod_reloader_core::annotations::STATUS_QUERY;
use pod_reloader_core::sync_status::{Report, SyncStatus};

use crate::cluster::{Cluster, DryRun, Place, Unseen};

impl Reply {
    /// Asks the operator for the sync status of a workload, by a dry run of a write that changes nothing.
    pub(crate) async fn about(cluster: &Cluster, place: Place<'_>, name: &str) -> Self {
        match DryRun::send(cluster, place, name, STATUS_QUERY, None).await {
            Err(error) => Self::Impossible(error),
            Ok(answer) => Self::of(&answer),
        }
    }

    /// Collects the answers of our operators' webhooks. If several answer, the one that manages the workload
    /// wins.
    pub(crate) fn of(answer: &DryRun) -> Self {
        let reports = answer.warnings.iter().filter_map(|text| text.parse().ok());
        let reports: Vec<Report> = reports.collect();
        let keeps = |report: &&Report| report.sync_status != SyncStatus::NotManaged;
        let report = reports.iter().find(keeps).or(reports.first());
        report.map_or(Self::Unanswered, |report| {
            Self::Answered(Box::new(report.clone()))
        })
    }
}

/// The outcome of asking the operator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// The operator answered.
    Answered(Box<Report>),
    /// The apiserver accepted the dry run, but none of our webhooks took part.
    Unanswered,
    /// The dry run was refused.
    Impossible(Unseen),
}
