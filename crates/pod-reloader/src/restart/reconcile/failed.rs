//! Handles failed passes: reports them, and decides when to try again.

use std::sync::Arc;
use std::time::Duration;

use pod_reloader_core::error::chain;
use pod_reloader_core::workload::{Workload, WorkloadId};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::live::error::ReadError;
use crate::metrics::RESTART;
use crate::report::notice::Notice;
use crate::restart::error::RestartError;
use crate::restart::parts::Parts;
use crate::restart::progress::Progress;
use crate::restart::slots::Slots;
use crate::restart::stages::Stages;
use crate::runtime::controller::ControllerErrors;
use crate::runtime::error::CallError;
use crate::runtime::pause;
use crate::runtime::worker::Worker;

const REVERTED: &str = "another webhook or policy reverts it";

/// Handles failed passes.
pub(super) struct Failures {
    errors: ControllerErrors,
    progress: Arc<Progress>,
    stages: Arc<Stages>,
    slots: Option<Arc<Slots>>,
    worker: Arc<Worker<WorkloadId>>,
}

impl Failures {
    pub(super) fn new(parts: &Parts, stages: &Arc<Stages>, slots: &Option<Arc<Slots>>) -> Self {
        Self {
            errors: parts.metrics.errors.of(RESTART),
            progress: parts.progress.clone(),
            stages: stages.clone(),
            slots: slots.clone(),
            worker: parts.worker.clone(),
        }
    }

    /// Reports a failure, once, and returns when to try again. Others no longer wait for the workload.
    pub(super) fn failed(&self, workload: &Workload, error: &RestartError) -> Instant {
        let is_refused = error.is_refusal();
        if is_refused && let Some(slots) = &self.slots {
            // Nothing was written.
            slots.free(&workload.id);
        }
        let waiting = self.stages.looked_in_vain(workload, is_refused);
        self.worker.push_all(waiting);
        let (cause, notice) = match error {
            RestartError::Read(ReadError::Object { reference, source }) => (
                Some(source),
                source
                    .is_refusal()
                    .then(|| Notice::Unreadable(reference.clone(), source.to_string())),
            ),
            RestartError::Patch { source, .. } => (
                Some(source),
                source
                    .is_refusal()
                    .then(|| Notice::Refused(source.to_string())),
            ),
            RestartError::Reverted(_) => (None, Some(Notice::Refused(REVERTED.to_owned()))),
            RestartError::Read(ReadError::List { source, .. } | ReadError::Keys { source, .. })
            | RestartError::ReadWorkload { source, .. }
            | RestartError::Revisions { source, .. }
            | RestartError::Copy { cause: source, .. }
            | RestartError::Unstick { source, .. } => (Some(source), None),
            RestartError::Read(ReadError::NoKeys(_)) => (None, None),
        };
        self.errors.count(cause);
        if let Some(notice) = notice {
            self.progress.report(workload, notice);
        }
        // A conflict is not a refusal: the workload may stop changing at any time.
        let moves = |cause: &CallError| cause.is_conflict() || cause.is_failed_test();
        let refused = cause.is_some_and(|cause| cause.is_refusal() && !moves(cause));
        let id = &*workload.id;
        let failures = self.progress.failed(id, refused);
        let (kind, namespace, name) = (id.kind, &id.namespace, &*id.name);
        let pause = pause(failures, refused);
        // The reader of the object has already logged it.
        if failures == 1 && !matches!(error, RestartError::Read(ReadError::Object { .. })) {
            warn!(%kind, %namespace, name, error = chain(error), "reconciling failed, trying again");
        } else {
            debug!(%kind, %namespace, name, error = chain(error), ?pause, "reconciling failed");
        }
        Instant::now() + pause
    }
}

/// Returns the pause after so many failures. It doubles each time, and is randomised so that many workloads
/// do not come back at once. After a refusal it is longer, because somebody has to change something first.
/// Anything else is tried again within a minute, including the randomness and a call without an answer.
fn pause(failures: u32, refused: bool) -> Duration {
    let (first, longest) = if refused { (15, 600) } else { (1, 40) };
    let [first, longest] = [first, longest].map(Duration::from_secs);
    let doubled = pause::after(failures, first, longest);
    let mut random = [0];
    // Without random bytes the pause is not randomised, which is no reason to fail.
    let _ = getrandom::fill(&mut random);
    doubled.mul_f64(0.75 + f64::from(random[0]) / 512.0)
}
