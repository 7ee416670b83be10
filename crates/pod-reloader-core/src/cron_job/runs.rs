//! Remembers the run of a CronJob that is due and has not begun.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// The shortest and the longest time between two looks at a CronJob whose run has to wait. In between, it is a tenth of
/// the time that the run has waited: a Job can be active for days, and many CronJobs can wait at once.
const LOOK: Duration = Duration::from_secs(5);
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// The run of a CronJob that has not begun.
#[derive(Default)]
pub struct Runs(Option<Box<DueRun>>);

/// A run that has not begun.
#[derive(Clone, Copy)]
struct DueRun {
    since: Timestamp,
    noted: Instant,
    next_look: Instant,
}

impl Runs {
    /// Notes that a run is due. An earlier one that has not begun is the same: it would have this configuration, too.
    pub fn note(&mut self, since: Timestamp, now: Instant) {
        let run = DueRun {
            since,
            noted: now,
            next_look: now,
        };
        self.0 = Some(Box::new(run));
    }

    /// Returns since when a run is due, and when to look at it.
    pub fn due(&self) -> Option<(Timestamp, Instant)> {
        let run = self.0.as_ref()?;
        Some((run.since, run.next_look))
    }

    /// Notes that a run has to wait. Returns when to look at it again.
    pub fn waits(&mut self, now: Instant) -> Instant {
        let Some(run) = &mut self.0 else {
            return now + LOOK;
        };
        let waited = now - run.noted;
        run.next_look = now + (waited / 10).clamp(LOOK, LONGEST_LOOK);
        run.next_look
    }

    /// Forgets the run, which has begun or never will.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Returns true if no run is due.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_waits_is_looked_at_again_later() {
        let (mut runs, began) = (Runs::default(), Instant::now());
        assert_eq!(runs.due(), None);
        runs.note(Timestamp::UNIX_EPOCH, began);
        assert_eq!(runs.due(), Some((Timestamp::UNIX_EPOCH, began)));
        let next = runs.waits(began);
        assert_eq!(next, began + LOOK);
        assert_eq!(runs.due(), Some((Timestamp::UNIX_EPOCH, next)));
        let mut now = began;
        for (waited, pause) in [(50, 5), (100, 15), (3600, 60)] {
            now += Duration::from_secs(waited);
            assert_eq!(runs.waits(now), now + Duration::from_secs(pause));
        }
        runs.forget();
        assert_eq!(runs.due(), None);
    }
}
