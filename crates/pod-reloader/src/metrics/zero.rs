//! Shows every series from the start.

use pod_reloader_core::decision::Cause;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::workload::Stall;

use super::labels::{OUTCOMES, labels, stalled_labels};
use super::{Metrics, RESTART};

impl Metrics {
    /// Shows every series from the start. If a series appeared only with its first count, an alert on its
    /// increase would miss that count.
    pub(super) fn begin_at_zero(&self) {
        for outcome in OUTCOMES {
            drop(self.admissions.get_or_create(&[("outcome", outcome)]));
        }
        self.add_kinds(&WorkloadKind::BUILT_IN);
        drop(self.errors.of(RESTART));
        self.hashes([]);
    }

    /// Shows every series of these kinds of workload from the start.
    pub(crate) fn add_kinds(&self, kinds: &[WorkloadKind]) {
        for kind in kinds {
            for cause in [
                Cause::FirstStamp,
                Cause::Changed,
                Cause::ChangedBeforeTakeover,
                Cause::Pinned,
                Cause::Rotated,
            ] {
                drop(self.restarts.get_or_create(&labels(*kind, cause)));
                drop(self.would_restart.get_or_create(&labels(*kind, cause)));
            }
            for stall in [Stall::Paused, Stall::OnDelete] {
                drop(self.stalled.get_or_create(&stalled_labels(*kind, stall)));
            }
        }
    }
}
