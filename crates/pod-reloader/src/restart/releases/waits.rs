//! Remembers which release the restart of each workload waits for: a part of the restart that is pending.

use pod_reloader_core::release::Release;
use pod_reloader_core::workload::WorkloadId;
use tokio::time::Instant;

use crate::restart::memory::{Memories, WorkloadMemory};
use crate::restart::passes::Pending;

/// Notes which release the restart of a workload waits for, if any. Returns true if that is news.
pub(super) fn note(memories: &Memories, id: &WorkloadId, release: Option<&Release>) -> bool {
    let now = Instant::now();
    let is_news = pending(memories, id, |pending| {
        if pending.awaits.as_ref() == release {
            return None;
        }
        match release {
            Some(_) => drop(pending.waiting_since.get_or_insert(now)),
            None => pending.release_ended = Some(now),
        }
        pending.awaits = release.cloned();
        Some(())
    });
    is_news.is_some()
}

/// Returns since when the restart of a workload has waited for releases.
pub(super) fn since(memories: &Memories, id: &WorkloadId) -> Option<Instant> {
    pending(memories, id, |pending| pending.waiting_since)
}

/// Returns when the restart of a workload last stopped waiting for a release.
pub(super) fn ended(memories: &Memories, id: &WorkloadId) -> Option<Instant> {
    pending(memories, id, |pending| pending.release_ended)
}

/// Returns the workloads whose restart waits for a release.
pub(super) fn awaiting(memories: &Memories, release: &Release) -> Vec<WorkloadId> {
    let awaited = |memory: &WorkloadMemory| {
        let pending = memory.passes.as_ref()?.pending.as_ref()?;
        Some(pending.awaits.as_ref() == Some(release))
    };
    memories.ids(|memory| awaited(memory).unwrap_or_default())
}

/// Returns what `act` makes of the restart of a workload that is pending, if one is.
fn pending<T>(
    memories: &Memories,
    id: &WorkloadId,
    act: impl FnOnce(&mut Pending) -> Option<T>,
) -> Option<T> {
    memories.with(id, |memory| {
        act(memory.passes.as_mut()?.pending.as_mut()?)
    })
}
