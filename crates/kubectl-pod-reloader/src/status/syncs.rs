//! Checks the copies of ClusterConfigSyncs.

use std::cmp::Reverse;

use serde::Serialize;

use crate::cluster::{Cluster, Unseen};
use crate::operators::Operators;
use crate::print::Verdict;
use crate::syncs::{self, Sync};

/// Number of ClusterConfigSyncs that are shown.
const SHOWN: usize = 20;

/// The ClusterConfigSyncs of a cluster.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Syncs {
    /// At least one, the worst first.
    all: Vec<Sync>,
    /// True if an operator copies for them.
    #[serde(skip)]
    are_served: bool,
}

/// Lists the ClusterConfigSyncs. `None` if there are none, or if others than the operators that are looked at may copy
/// for them.
///
/// # Errors
/// When an operator copies, and they cannot be listed.
pub(super) async fn syncs(
    cluster: &Cluster,
    operators: &Operators,
) -> Result<Option<Syncs>, Unseen> {
    let Some(are_served) = operators.any(|it| it.args.sync) else {
        return Ok(None);
    };
    let mut all = match syncs::list(cluster).await {
        Err(error) if are_served => return Err(error),
        all => all.unwrap_or_default(),
    };
    all.sort_by_key(|sync| Reverse(sync.verdict()));
    Ok((!all.is_empty()).then_some(Syncs { all, are_served }))
}

impl Syncs {
    /// Returns the worst of them. Those that nobody copies for are a fault.
    pub(super) fn verdict(&self) -> Verdict {
        match self.are_served {
            true => self.all.first().map_or(Verdict::Good, Sync::verdict),
            false => Verdict::Bad,
        }
    }

    pub(super) fn heading(&self) -> &'static str {
        match self.are_served {
            true => "ClusterConfigSyncs",
            false => "ClusterConfigSyncs, but no pod-reloader that copies (sync.enabled)",
        }
    }

    /// Returns those that are shown, and the number of the others.
    pub(super) fn shown(&self) -> (&[Sync], usize) {
        let shown = &self.all[..self.all.len().min(SHOWN)];
        (shown, self.all.len() - shown.len())
    }
}
