//! The answers to status queries.

use pod_reloader_core::sync_status::{Report, SyncStatus};

use crate::cluster::{Cluster, Place, Unseen, query_status};

impl Reply {
    /// Asks the operator for the sync status of a workload, by a dry run of a write that changes nothing.
    pub(crate) async fn about(cluster: &Cluster, place: Place<'_>, name: &str) -> Self {
        match query_status(cluster, place, name, None).await {
            Err(error) => Self::Impossible(error),
            Ok(warnings) => Self::of(&warnings),
        }
    }

    /// Collects the answers of our operators' webhooks, which come as warnings. If several answer, the one that manages
    /// the workload wins.
    pub(crate) fn of(warnings: &[String]) -> Self {
        let reports = warnings.iter().filter_map(|text| text.parse().ok());
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
