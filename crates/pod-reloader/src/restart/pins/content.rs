//! Finds out which copies the pods of a workload are to use, and what was undone, and makes the copies.

use std::sync::Arc;

use pod_reloader_core::hash::Keyring;
use pod_reloader_core::pins::Pins;
use pod_reloader_core::reference::Reference;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;

use crate::live::copies::NotCopied;
use crate::live::error::ReadError;
use crate::live::keys::Keys;
use crate::live::source::Source;
use crate::report::notice::Notice;
use crate::restart::digests::{Digests, Snapshot};
use crate::restart::error::RestartError;
use crate::restart::parts::Parts;
use crate::restart::restraint::DueRestart;

/// The bytes of copies above which users are told, if each of the revisions that Kubernetes keeps has them.
const LARGE: usize = 8 << 20;
/// The number of revisions that Kubernetes keeps by default, with the present one.
const REVISIONS: usize = 11;

/// The pins for a rollout.
pub(crate) enum Pinned {
    /// The annotation to write, if any.
    As(Option<String>),
    /// A ConfigMap has changed since it was read.
    Outdated,
}

/// Reads and makes copies for passes.
pub(crate) struct PinnedContent {
    parts: Arc<Parts>,
    keys: Arc<Keys>,
    digests: Arc<Digests>,
}

impl PinnedContent {
    pub(crate) fn new(parts: &Arc<Parts>, keys: &Arc<Keys>, digests: &Arc<Digests>) -> Self {
        Self {
            keys: keys.clone(),
            digests: digests.clone(),
            parts: parts.clone(),
        }
    }

    /// Returns `snapshot` with the content that the pods have in place of what was undone. `None` if a copy is
    /// gone that has it: then nobody knows what the pods have.
    pub(crate) async fn without_undone(
        &self,
        workload: &Workload,
        mut snapshot: Snapshot,
    ) -> Result<Option<Snapshot>, RestartError> {
        let kept = workload.kept();
        let preferred = kept.preferred();
        if preferred.is_empty() {
            return Ok(Some(snapshot));
        }
        let source = self.digests.source();
        let copies = source.copies(workload, &preferred).await?;
        let keys = self.hash_keys().await?;
        let names = workload.copy_names(&keys);
        let objects = std::mem::take(&mut snapshot.objects);
        match workload.without_undone(&kept, objects, &copies, &names) {
            Some((objects, undone)) => Ok(Some(Snapshot {
                objects,
                undone,
                ..snapshot
            })),
            None => {
                let lost = preferred.iter().next().map(|(_, copy)| copy.clone());
                if let Some(copy) = lost {
                    self.parts.progress.report(workload, Notice::CopyLost(copy));
                }
                Ok(None)
            }
        }
    }

    /// Tells the users of a workload once that changes of its ConfigMaps were undone.
    pub(crate) fn report_undone(&self, workload: &Workload, undone: &Pins) {
        let is_news = self.note_undone(&workload.id, !undone.is_empty());
        if is_news {
            let names = undone.iter().map(|(source, _)| source.clone());
            let notice = Notice::Undone(names.collect());
            self.parts.progress.send(workload, notice);
        }
    }

    /// Notes whether some content of a workload was undone. Returns true if that is news.
    pub(super) fn note_undone(&self, id: &WorkloadId, is_undone: bool) -> bool {
        let was_undone = self.parts.progress.memories.with(id, |memory| {
            std::mem::replace(&mut memory.is_undone, is_undone)
        });
        let change = i64::from(is_undone) - i64::from(was_undone);
        self.parts.metrics.undone.inc_by(change);
        is_undone && !was_undone
    }

    /// Returns where copies are read and made.
    pub(super) fn source(&self) -> &Source {
        self.digests.source()
    }

    /// Returns the hash keys, which also seal copies.
    pub(super) async fn hash_keys(&self) -> Result<Arc<Keyring>, ReadError> {
        match self.keys.keyring() {
            Some(keys) => Ok(keys),
            None => self.keys.read_since(Instant::now()).await,
        }
    }

    /// Makes the copies that the pods are to use, and returns the pins for them. If a copy cannot be made, the
    /// pods use the ConfigMaps themselves, and their users are told.
    pub(crate) async fn pin(&self, due: &DueRestart<'_>) -> Result<Pinned, RestartError> {
        let (workload, snapshot) = (due.workload, due.snapshot);
        let keys = self.hash_keys().await?;
        let names = workload.copy_names(&keys);
        let copies: Vec<_> = workload.copies(&snapshot.objects, &names).collect();
        if copies.is_empty() {
            return Ok(Pinned::As(None));
        }
        let pins = workload.pins_for(&snapshot.objects, &names).to_string();
        match self.digests.source().make(&copies, &keys).await {
            Ok(bytes) => {
                if bytes * REVISIONS > LARGE {
                    let notice = Notice::CopiesAreLarge(bytes * REVISIONS);
                    self.parts.progress.send(workload, notice);
                }
                // Without room for them, the pods use the ConfigMaps themselves.
                let too_long = workload.too_long_with(due.config_hash, Some(&pins));
                Ok(Pinned::As(Some(match too_long {
                    None => pins,
                    Some(_) => String::new(),
                })))
            }
            Err(NotCopied::Changed(name)) => {
                // No watch may have seen it yet.
                let changed = Reference::config_map(&workload.id.namespace, &name);
                self.digests.observe(&changed, Some(""), Instant::now());
                Ok(Pinned::Outdated)
            }
            Err(NotCopied::Read(error)) => Err(error.into()),
            Err(NotCopied::Create { source, .. }) if !source.is_refusal() => {
                let workload = (*workload.id).clone();
                Err(RestartError::Copy {
                    workload,
                    cause: source,
                })
            }
            Err(error @ (NotCopied::Taken(_) | NotCopied::Create { .. })) => {
                let notice = Notice::NotCopied(error.shown());
                self.parts.progress.publish(workload, notice);
                Ok(Pinned::As(Some(String::new())))
            }
        }
    }
}
