//! Remembers how far the objects of a workload are that change together.

use pod_reloader_core::digest::Objects;
use pod_reloader_core::together::{Round, Together, Verdict};
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;

/// The round of a workload that names such objects.
#[derive(Default)]
pub(crate) struct Rounds(Option<Box<Round>>);

impl Rounds {
    /// Takes in the objects of a workload as they are now. `is_due` says that its pods have other content.
    pub(crate) fn look(&mut self, workload: &Workload, objects: &Objects, is_due: bool) {
        let Some(together) = workload.together.as_deref() else {
            *self = Self::default();
            return;
        };
        let contents = workload.references.contents(objects);
        let now = Instant::now().into_std();
        let round = self.0.get_or_insert_default();
        round.look(together, &contents, is_due, now);
    }

    /// Returns whether a restart that is due has to wait for objects.
    pub(crate) fn verdict(&mut self, together: &Together) -> Verdict {
        let now = Instant::now().into_std();
        let round = self.0.as_mut();
        round.map_or(Verdict::Go, |round| round.verdict(together, now))
    }

    /// Returns true if the objects of the workload have not been looked at.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}
