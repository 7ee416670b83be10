//! Remembers of which workloads some content was undone.

use pod_reloader_core::pins::Pins;
use pod_reloader_core::workload::{Workload, WorkloadId};

use super::Progress;
use crate::report::notice::Notice;

impl Progress {
    /// Notes whether some content of a workload was undone. Returns true if that is news.
    pub(crate) fn undone(&self, id: &WorkloadId, is_undone: bool) -> bool {
        let was_undone = self.memories.with(id, |memory| {
            std::mem::replace(&mut memory.is_undone, is_undone)
        });
        let change = i64::from(is_undone) - i64::from(was_undone);
        self.metrics.undone.inc_by(change);
        is_undone && !was_undone
    }

    /// Tells the users of a workload once that changes of its ConfigMaps were undone.
    pub(crate) fn report_undone(&self, workload: &Workload, undone: &Pins) {
        let is_news = self.undone(&workload.id, !undone.is_empty());
        if is_news {
            let names = undone.iter().map(|(source, _)| source.clone());
            self.send(workload, Notice::Undone(names.collect()));
        }
    }
}
