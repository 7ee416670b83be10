//! Checks the copies of ClusterConfigSyncs.

use super::served::{Own, Served};
use crate::cluster::{Cluster, Unseen};
use crate::operators::Operators;
use crate::print::Verdict;
use crate::syncs::{self, Sync};

/// Number of ClusterConfigSyncs that are shown.
const SHOWN: usize = 20;

impl Own for Sync {
    const HEADING: &str = "ClusterConfigSyncs";
    const UNSERVED: &str = "ClusterConfigSyncs, but no pod-reloader that copies (sync.enabled)";

    fn verdict(&self) -> Verdict {
        self.verdict()
    }
}

/// Lists the ClusterConfigSyncs. `None` if there are none, or if others than the operators that are looked at may copy
/// for them.
///
/// # Errors
/// When an operator copies, and they cannot be listed.
pub(super) async fn syncs(
    cluster: &Cluster,
    operators: &Operators,
) -> Result<Option<Served<Sync>>, Unseen> {
    let Some(are_served) = operators.any(|it| it.args.sync) else {
        return Ok(None);
    };
    Served::of(syncs::list(cluster).await, are_served)
}

impl Served<Sync> {
    /// Returns those that are shown, and the number of the others.
    pub(super) fn shown(&self) -> (&[Sync], usize) {
        let shown = &self.all[..self.all.len().min(SHOWN)];
        (shown, self.all.len() - shown.len())
    }
}
