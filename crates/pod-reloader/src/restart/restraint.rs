//! What a restraint is: something that may keep a workload from getting a config hash now.
//!
//! `restraints.rs` lists them. Each is in the file or folder of its feature.

use pod_reloader_core::decision::Cause;
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;

use crate::restart::action::Action;
use crate::restart::digests::Snapshot;

/// Something that may keep a workload from getting a config hash now.
pub(crate) trait Restraint {
    /// Returns what to do with a restart that is due and has to wait, and reports the reason. `None` if it need not wait.
    fn holds_back(&self, due: &DueRestart<'_>, phase: Phase) -> Option<Action>;
}

/// A restraint that is switched off holds nothing back.
impl<R: Restraint> Restraint for Option<R> {
    fn holds_back(&self, due: &DueRestart<'_>, phase: Phase) -> Option<Action> {
        self.as_ref()?.holds_back(due, phase)
    }
}

/// The half of a pass in which restraints are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The half that works from memory. A restart that nothing holds back takes nothing yet: it is asked about again.
    Preview,
    /// The half with fresh reads. A restart that nothing holds back is written next: it takes its slot, and others of its
    /// stages wait for it.
    Commit,
}

/// A restart that is due.
#[derive(Clone, Copy)]
pub(crate) struct DueRestart<'a> {
    pub(crate) workload: &'a Workload,
    /// The config hash that the workload is to get.
    pub(crate) config_hash: &'a str,
    pub(crate) cause: Cause,
    /// The time since when it has carried its current hash.
    pub(crate) hash_since: Instant,
    /// Its objects.
    pub(crate) snapshot: &'a Snapshot,
}

impl<'a> DueRestart<'a> {
    pub(crate) fn new(
        workload: &'a Workload,
        config_hash: &'a str,
        cause: Cause,
        hash_since: Instant,
        snapshot: &'a Snapshot,
    ) -> Self {
        Self {
            workload,
            config_hash,
            cause,
            hash_since,
            snapshot,
        }
    }
}
