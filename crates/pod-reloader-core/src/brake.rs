//! The brake: how soon one workload may be written to, and restarted, again.
//!
//! Two bounds, for two reasons. [`Allowance`] bounds every attempt to write, so that nobody who takes our
//! writes back can make us spin. [`Brake`] bounds restarts, so that config which flaps cannot wear out the
//! pods. Known from practice: a certificate that flapped made one Deployment 80,000 ReplicaSets.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time in which writes and restarts are counted.
pub const WINDOW: Duration = Duration::from_secs(10 * 60);
/// The first pause. Each restart after a pause doubles the next one.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// How often it is doubled at most: to 32 minutes.
const MAX_DOUBLINGS: u32 = 5;

/// The time after which one more attempt is allowed.
pub const INTERVAL: Duration = Duration::from_secs(45);
/// The attempts that are allowed at once: five that meet somebody else's edits, the one that stands, and one
/// that was made a moment ago.
const BURST: usize = 7;

/// The attempts to write to one workload, as far as they limit the next one.
///
/// It is a bucket of `BURST` attempts that gains one every [`INTERVAL`]. An attempt counts when it is made,
/// so it makes no difference whether the write stood, was taken back, conflicted, was refused, or never got
/// an answer. No event and no answer can shorten the wait.
///
/// # Guarantees
///
/// - Any [`WINDOW`] holds at most `BURST + WINDOW / INTERVAL` = 7 + 13 = 20 attempts.
/// - The next attempt never waits for longer than [`INTERVAL`] after the last one. So a user gets a change
///   within a minute once whatever took it back has stopped.
///
/// # Caveats
///
/// Where a user allows more than `BURST` restarts in a window, that many attempts are allowed at once,
/// and the bound grows by as many.
#[derive(Debug, Default)]
pub struct Allowance {
    /// When the bucket is full again. `None` while no attempt was made.
    full_at: Option<Instant>,
}

impl Allowance {
    /// The time of the next attempt, where it may not be made at once.
    pub fn not_before(&self, now: Instant, max_restarts: usize) -> Option<Instant> {
        let spare = INTERVAL * (burst(max_restarts) - 1);
        let wait = self.deficit(now).saturating_sub(spare);
        (!wait.is_zero()).then(|| now + wait)
    }

    /// Counts an attempt.
    ///
    /// # Errors
    ///
    /// The time of the next attempt, where this one may not be made.
    pub fn attempt(&mut self, now: Instant, max_restarts: usize) -> Result<(), Instant> {
        match self.not_before(now, max_restarts) {
            Some(next) => Err(next),
            None => {
                self.full_at = Some(now + self.deficit(now) + INTERVAL);
                Ok(())
            }
        }
    }

    /// Gives back an attempt that is bounded by something else.
    pub fn give_back(&mut self) {
        self.full_at = self.full_at.and_then(|at| at.checked_sub(INTERVAL));
    }

    /// Whether as many attempts are allowed as ever.
    pub fn is_full(&self, now: Instant) -> bool {
        self.deficit(now).is_zero()
    }

    fn deficit(&self, now: Instant) -> Duration {
        self.full_at
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }
}

fn burst(max_restarts: usize) -> u32 {
    u32::try_from(BURST.max(max_restarts)).unwrap_or(u32::MAX)
}

/// The restarts of one workload, as far as they matter for the next.
#[derive(Debug, Default)]
pub struct Brake {
    /// Those of the last [`WINDOW`], the newest last.
    recent: VecDeque<Instant>,
    /// How many in a row came after a pause.
    paused: u32,
}

impl Brake {
    /// Notes a restart.
    pub fn restarted(&mut self, now: Instant, limit: usize) {
        self.paused = match self.not_before(now, limit) {
            Some(_) => self.paused + 1,
            None => 0,
        };
        self.recent.push_back(now);
        while self.recent.len() > limit.max(1) {
            self.recent.pop_front();
        }
    }

    /// When the next restart may be, where it must wait because there were `limit` in [`WINDOW`]: then
    /// the workload is in a storm. One that was asked for no restart for two pauses is in none.
    pub fn not_before(&self, now: Instant, limit: usize) -> Option<Instant> {
        let last = *self.recent.back()?;
        let is_full = self.recent.len() >= limit && last - self.recent[0] < WINDOW;
        let pause = self.pause();
        ((is_full || self.paused > 0) && now < last + 2 * pause).then(|| last + pause)
    }

    /// How long the next restart comes after the last one, in a storm.
    pub fn pause(&self) -> Duration {
        FIRST_PAUSE * 2_u32.pow(self.paused.min(MAX_DOUBLINGS))
    }

    /// Whether nothing of it matters any more.
    pub fn is_released(&self, now: Instant) -> bool {
        self.recent
            .back()
            .is_none_or(|last| now >= *last + WINDOW.max(2 * self.pause()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 5;
    const SECOND: Duration = Duration::from_secs(1);

    /// The times of the restarts, in seconds, of a workload whose config changes every ten seconds
    /// until `end`.
    fn restarts(brake: &mut Brake, begin: Instant, end: u32) -> Vec<u32> {
        (0..end)
            .step_by(10)
            .filter(|&second| {
                let now = begin + second * SECOND;
                let may = brake.not_before(now, LIMIT).is_none_or(|at| at <= now);
                if may {
                    brake.restarted(now, LIMIT);
                }
                may
            })
            .collect()
    }

    proptest! {
        /// Whatever becomes of the attempts: it asks nobody.
        #[test]
        fn ten_minutes_hold_twenty_attempts_at_most_and_none_waits_for_a_minute(
            gaps in prop::collection::vec(0_u64..120_000, 1..300),
            max_restarts in 0..=BURST,
        ) {
            let (mut allowance, mut now) = (Allowance::default(), Instant::now());
            let mut attempts: Vec<Instant> = Vec::new();
            for gap in gaps {
                // Most come at once, as from whoever takes back what is written.
                now += Duration::from_millis(if gap < 80_000 { gap / 100 } else { gap });
                match allowance.attempt(now, max_restarts) {
                    Ok(()) => attempts.push(now),
                    Err(next) => {
                        let last = attempts.last().unwrap();
                        prop_assert!(now < next && next <= *last + INTERVAL);
                        prop_assert_eq!(allowance.not_before(next, max_restarts), None);
                    }
                }
            }
            for (first, at) in attempts.iter().enumerate() {
                let count = attempts[first..].iter().filter(|it| **it - *at <= WINDOW).count();
                prop_assert!(count <= 20, "{}", count);
            }
        }
    }

    #[test]
    fn five_conflicts_in_a_row_and_the_writes_around_them_wait_for_nothing() {
        let (mut allowance, now) = (Allowance::default(), Instant::now());
        for _ in 0..7 {
            assert_eq!(allowance.attempt(now, 5), Ok(()));
        }
        assert_eq!(allowance.attempt(now, 5), Err(now + INTERVAL));
    }

    #[test]
    fn as_many_attempts_are_allowed_at_once_as_restarts() {
        let (mut allowance, now) = (Allowance::default(), Instant::now());
        let allowed = (0..200).filter(|_| allowance.attempt(now, 100).is_ok());
        assert_eq!(allowed.count(), 100);
    }

    #[test]
    fn what_is_given_back_does_not_count() {
        let (mut allowance, now) = (Allowance::default(), Instant::now());
        for _ in 0..1000 {
            assert_eq!(allowance.attempt(now, 0), Ok(()));
            allowance.give_back();
        }
        assert!(allowance.is_full(now));
    }

    #[test]
    fn what_changes_all_the_time_is_restarted_less_and_less() {
        let restarts = restarts(&mut Brake::default(), Instant::now(), 4 * 3600);
        let gaps: Vec<_> = restarts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(gaps[..4], [10, 10, 10, 10]);
        assert_eq!(gaps[4..10], [60, 120, 240, 480, 960, 1920]);
        assert!(gaps[10..].iter().all(|&gap| gap == 1920), "{gaps:?}");
    }

    #[test]
    fn a_few_restarts_and_many_slow_ones_wait_for_nothing() {
        let (mut brake, begin) = (Brake::default(), Instant::now());
        for round in 0..100 {
            let now = begin + round * (WINDOW / 4);
            assert_eq!(brake.not_before(now, LIMIT), None, "{round}");
            brake.restarted(now, LIMIT);
        }
    }

    #[test]
    fn a_storm_is_over_when_nothing_was_asked_for_two_pauses() {
        let (mut brake, begin) = (Brake::default(), Instant::now());
        restarts(&mut brake, begin, 300);
        let last = *brake.recent.back().unwrap();
        let calm = last + 2 * brake.pause();
        assert!(brake.not_before(calm - SECOND, LIMIT).is_some());
        assert_eq!(brake.not_before(calm, LIMIT), None);
        brake.restarted(calm, LIMIT);
        assert_eq!(brake.paused, 0);
        assert!(brake.is_released(calm + WINDOW));
    }
}
