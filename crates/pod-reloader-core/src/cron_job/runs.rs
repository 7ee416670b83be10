//! Remembers the run of a CronJob that is due and has not begun.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// The shortest and the longest time between two looks at a CronJob whose run has to wait. In between, it is a tenth of
/// the time that the run has waited: a Job can be active for days, and many CronJobs can wait at once.
const LOOK: Duration = Duration::from_secs(5);
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// The run of a CronJob that is due and has not begun.
#[derive(Clone, Copy, Debug)]
pub struct DueRun {
    /// The time since which it has been due.
    pub since: Timestamp,
    noted: Instant,
    /// The time when to look at it.
    pub next_look: Instant,
}

impl DueRun {
    /// Returns a run that is due from now on. An earlier one that has not begun is the same: it would have this
    /// configuration, too. `since` and `now` are one time.
    pub fn new(since: Timestamp, now: Instant) -> Self {
        Self {
            since,
            noted: now,
            next_look: now,
        }
    }

    /// Notes that the run has to wait. Returns when to look at it again.
    pub fn waits(&mut self, now: Instant) -> Instant {
        let waited = now - self.noted;
        self.next_look = now + (waited / 10).clamp(LOOK, LONGEST_LOOK);
        self.next_look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_waits_is_looked_at_again_later() {
        let began = Instant::now();
        let mut run = DueRun::new(Timestamp::UNIX_EPOCH, began);
        assert_eq!(run.next_look, began);
        let next = run.waits(began);
        assert_eq!(next, began + LOOK);
        assert_eq!(run.next_look, next);
        let mut now = began;
        for (waited, pause) in [(50, 5), (100, 15), (3600, 60)] {
            now += Duration::from_secs(waited);
            assert_eq!(run.waits(now), now + Duration::from_secs(pause));
        }
    }
}
