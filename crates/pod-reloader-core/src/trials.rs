//! Trials: a configuration that a workload has got is put back if it does not become healthy with it.

use std::time::Instant;

use crate::pins::Pins;
use crate::staging::Health;
use crate::workload::Workload;

/// The configuration with which a workload has to become healthy, and what was put back.
#[derive(Default)]
pub struct Trials(Option<Box<Known>>);

#[derive(Default)]
struct Known {
    trial: Option<Trial>,
    /// The content that was put back last. It is put back once.
    put_back: Option<Pins>,
}

/// A configuration that a workload has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The time from which on the workload has failed, unless it is healthy.
    pub deadline: Instant,
    /// True if it was healthy before.
    pub was_healthy: bool,
}

impl Trials {
    /// Notes that a workload is restarted with another configuration.
    pub fn begin(&mut self, before: &Workload, now: Instant) {
        let reverts = before.pinning.as_deref().is_some_and(|it| it.reverts);
        let Some(staging) = before.staging.as_deref().filter(|_| reverts) else {
            return;
        };
        let trial = Trial {
            deadline: now + staging.deadline,
            was_healthy: staging.health == Health::Healthy,
        };
        self.0.get_or_insert_default().trial = Some(trial);
    }

    /// Returns the trial of a workload that is not healthy. One that is healthy has passed.
    pub fn open(&mut self, workload: &Workload) -> Option<Trial> {
        let known = self.0.as_mut()?;
        let health = workload.staging.as_deref().map(|it| it.health);
        if health != Some(Health::Rolling) && health != Some(Health::Unavailable) {
            known.trial = None;
        }
        known.trial
    }

    /// Ends the trial.
    pub fn end(&mut self) {
        if let Some(known) = &mut self.0 {
            known.trial = None;
        }
    }

    /// Notes that this content was put back, which ends the trial.
    pub fn put_back(&mut self, undone: &Pins) {
        let put_back = Some(undone.clone());
        let trial = None;
        self.0 = Some(Box::new(Known { trial, put_back }));
    }

    /// Returns true if this content was put back last time.
    pub fn has_put_back(&self, undone: &Pins) -> bool {
        let known = self.0.as_ref();
        known.and_then(|known| known.put_back.as_ref()) == Some(undone)
    }

    /// Returns true if nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}
