//! Remembers that a workload has got a configuration that is put back if it does not become healthy with it.

use pod_reloader_core::pins::Pins;
use pod_reloader_core::staging::Health;
use pod_reloader_core::workload::Workload;
use tokio::time::Instant;

/// The configuration with which a workload has to become healthy, and what was put back.
#[derive(Default)]
pub(crate) struct Trials(Option<Box<Known>>);

#[derive(Default)]
struct Known {
    trial: Option<Trial>,
    /// The content that was put back last. It is put back once.
    put_back: Option<Pins>,
}

/// A configuration that a workload has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trial {
    /// The time from which on the workload has failed, unless it is healthy.
    pub(crate) deadline: Instant,
    /// True if it was healthy before.
    pub(crate) was_healthy: bool,
}

impl Trials {
    /// Notes that a workload is restarted with another configuration.
    pub(crate) fn begin(&mut self, before: &Workload) {
        let reverts = before.pinning.as_deref().is_some_and(|it| it.reverts);
        let Some(staging) = before.staging.as_deref().filter(|_| reverts) else {
            return;
        };
        let trial = Trial {
            deadline: Instant::now() + staging.deadline,
            was_healthy: staging.health == Health::Healthy,
        };
        self.0.get_or_insert_default().trial = Some(trial);
    }

    /// Returns the trial of a workload that is not healthy. One that is healthy has passed.
    pub(crate) fn open(&mut self, workload: &Workload) -> Option<Trial> {
        let known = self.0.as_mut()?;
        let health = workload.staging.as_deref().map(|it| it.health);
        if health != Some(Health::Rolling) && health != Some(Health::Unavailable) {
            known.trial = None;
        }
        known.trial
    }

    /// Ends the trial.
    pub(crate) fn end(&mut self) {
        if let Some(known) = &mut self.0 {
            known.trial = None;
        }
    }

    /// Notes that this content was put back, which ends the trial.
    pub(crate) fn put_back(&mut self, undone: &Pins) {
        let put_back = Some(undone.clone());
        let trial = None;
        self.0 = Some(Box::new(Known { trial, put_back }));
    }

    /// Returns true if this content was put back last time.
    pub(crate) fn has_put_back(&self, undone: &Pins) -> bool {
        let known = self.0.as_ref();
        known.and_then(|known| known.put_back.as_ref()) == Some(undone)
    }

    /// Returns true if nothing is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}
