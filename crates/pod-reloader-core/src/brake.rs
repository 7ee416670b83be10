//! The brake: how soon one workload may be written to, and restarted, again.
//!
//! There are two bounds, for two reasons. [`Allowance`] bounds every attempt to write, so that a controller
//! that keeps reverting our writes cannot make us spin. [`Brake`] bounds restarts, so that flapping config
//! cannot wear out the pods. It has happened: a flapping certificate gave one Deployment 80,000 ReplicaSets.
//!
//! [`Writes`] is what both need to remember of one workload.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The period over which writes and restarts are counted.
pub const WINDOW: Duration = Duration::from_secs(10 * 60);
/// The first pause. Each restart after a pause doubles the next one.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// The maximum number of times that the pause is doubled: up to 32 minutes.
const MAX_DOUBLINGS: u32 = 5;

/// The time after which one more attempt is allowed.
pub const INTERVAL: Duration = Duration::from_secs(45);
/// The number of attempts allowed at once: five that conflict with other edits, the one that succeeds, and
/// one made a moment ago.
const BURST: usize = 7;

/// The recent writes to one workload: they decide how soon it may be written to, and restarted, again.
#[derive(Debug, Default)]
pub struct Writes {
    /// Every attempt.
    allowance: Allowance,
    /// The writes that restarted the pods with another config hash than before.
    restarts: Brake,
    /// The last write whose answer showed it in place.
    last: Option<Written>,
}

#[derive(Debug)]
struct Written {
    /// The config hash or the baseline.
    value: Box<str>,
    /// The time when the content for the value had been read. For a baseline, the time when it was written.
    at: Instant,
}

impl Writes {
    /// Returns when the workload may be written to next, if not now.
    pub fn next(&self, now: Instant, max_restarts: usize) -> Option<Instant> {
        self.allowance.not_before(now, max_restarts)
    }

    /// Counts a write. Call this just before sending it.
    ///
    /// # Errors
    ///
    /// Returns the time from which the write may be sent, if not now.
    pub fn begin(&mut self, now: Instant, max_restarts: usize) -> Result<(), Instant> {
        self.allowance.attempt(now, max_restarts)
    }

    /// Notes that the workload was restarted with a config hash whose content had been read at `at`.
    ///
    /// `is_changed` says that an object has changed since the previous write. If so, and if restarts are
    /// unlimited, the attempt is given back: only the users caused it.
    pub fn restarted(
        &mut self,
        config_hash: &str,
        at: Instant,
        is_changed: bool,
        max_restarts: usize,
        now: Instant,
    ) {
        if max_restarts == 0 && is_changed {
            self.allowance.give_back();
        }
        if max_restarts > 0 && !self.is_again(config_hash) {
            self.restarts.restarted(now, max_restarts);
        }
        let value = config_hash.into();
        self.last = Some(Written { value, at });
    }

    /// Gives one attempt back: two writes belong together.
    pub fn give_back(&mut self) {
        self.allowance.give_back();
    }

    /// Notes that a baseline was written.
    pub fn baseline_written(&mut self, baseline: &str, now: Instant) {
        let (value, at) = (baseline.into(), now);
        self.last = Some(Written { value, at });
    }

    /// Returns when the content of the last write had been read.
    pub fn last_at(&self) -> Option<Instant> {
        Some(self.last.as_ref()?.at)
    }

    /// Returns true if this is the value of the last write, so that somebody must have reverted it.
    pub fn is_again(&self, value: &str) -> bool {
        self.last.as_ref().is_some_and(|last| *last.value == *value)
    }

    /// Returns when the workload may be restarted again, and the pause after its last restart, if it was
    /// recently restarted `limit` times. A reverted restart is repeated without this pause.
    pub fn braked(
        &self,
        config_hash: &str,
        limit: usize,
        now: Instant,
    ) -> Option<(Instant, Duration)> {
        if self.is_again(config_hash) {
            return None;
        }
        let at = self.restarts.not_before(now, limit)?;
        Some((at, self.restarts.pause()))
    }

    /// Returns true if these writes no longer affect anything.
    pub fn is_over(&self, now: Instant) -> bool {
        let last = self.last.as_ref();
        self.allowance.is_full(now)
            && self.restarts.is_released(now)
            && last.is_none_or(|last| now.duration_since(last.at) >= WINDOW)
    }
}

/// The recent attempts to write to one workload, as far as they limit the next one.
///
/// The allowance is a bucket of `BURST` attempts that gains one every [`INTERVAL`]. An attempt counts when it
/// is made, so it makes no difference whether the write succeeded, was reverted, conflicted, was refused, or
/// never got an answer. No event and no answer can shorten the wait.
///
/// # Guarantees
///
/// - Any [`WINDOW`] holds at most `BURST + WINDOW / INTERVAL` = 7 + 13 = 20 attempts.
/// - The next attempt never waits longer than [`INTERVAL`] after the last one. So a change reaches the pods
///   within a minute once the reverting has stopped.
///
/// # Caveats
///
/// If a user allows more than `BURST` restarts in a window, that many attempts are allowed at once, and the
/// bound grows by the difference.
#[derive(Debug, Default)]
pub struct Allowance {
    /// The time at which the bucket is full again. `None` before the first attempt.
    full_at: Option<Instant>,
}

impl Allowance {
    /// Returns the time of the next attempt, if it must wait.
    pub fn not_before(&self, now: Instant, max_restarts: usize) -> Option<Instant> {
        let spare = INTERVAL * (burst(max_restarts) - 1);
        let wait = self.deficit(now).saturating_sub(spare);
        (!wait.is_zero()).then(|| now + wait)
    }

    /// Counts an attempt.
    ///
    /// # Errors
    ///
    /// Returns the time of the next attempt, if this one is not allowed.
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

    /// Returns true if the full number of attempts is allowed.
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

/// The recent restarts of one workload, as far as they affect the next one.
#[derive(Debug, Default)]
pub struct Brake {
    /// The restarts of the last [`WINDOW`], newest last.
    recent: VecDeque<Instant>,
    /// The number of consecutive restarts that came after a pause.
    paused: u32,
}

impl Brake {
    /// Records a restart.
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

    /// Returns the time of the next restart, if it must wait because there were `limit` restarts in
    /// [`WINDOW`]. The workload is then in a storm, until two pauses pass without a request for a restart.
    pub fn not_before(&self, now: Instant, limit: usize) -> Option<Instant> {
        let last = *self.recent.back()?;
        let is_full = self.recent.len() >= limit && last - self.recent[0] < WINDOW;
        let pause = self.pause();
        ((is_full || self.paused > 0) && now < last + 2 * pause).then(|| last + pause)
    }

    /// Returns the pause between the last restart and the next one, in a storm.
    pub fn pause(&self) -> Duration {
        FIRST_PAUSE * 2_u32.pow(self.paused.min(MAX_DOUBLINGS))
    }

    /// Returns true if none of this affects a restart any more.
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

    /// Restarts a workload whose config changes every ten seconds until `end`. Returns the times in seconds.
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
        /// The result of an attempt makes no difference, so it is not an input here.
        #[test]
        fn ten_minutes_hold_twenty_attempts_at_most_and_none_waits_for_a_minute(
            gaps in prop::collection::vec(0_u64..120_000, 1..300),
            max_restarts in 0..=BURST,
        ) {
            let (mut allowance, mut now) = (Allowance::default(), Instant::now());
            let mut attempts: Vec<Instant> = Vec::new();
            for gap in gaps {
                // Most attempts come at once, as if something reverted every write.
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
    fn an_attempt_that_is_given_back_is_not_counted() {
        let (mut allowance, now) = (Allowance::default(), Instant::now());
        for _ in 0..1000 {
            assert_eq!(allowance.attempt(now, 0), Ok(()));
            allowance.give_back();
        }
        assert!(allowance.is_full(now));
    }

    #[test]
    fn a_workload_whose_config_changes_all_the_time_is_restarted_less_and_less() {
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
    fn a_storm_is_over_after_two_pauses_without_a_restart() {
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

    #[test]
    fn a_restart_that_somebody_reverts_is_repeated_without_a_pause() {
        let (mut writes, now) = (Writes::default(), Instant::now());
        for number in 0..LIMIT {
            writes.restarted(&number.to_string(), now, true, LIMIT, now);
        }
        let last = (LIMIT - 1).to_string();
        assert_eq!(writes.braked(&last, LIMIT, now), None);
        let later = now + SECOND;
        writes.restarted(&last, later, false, LIMIT, later);
        // The pods had that content before, so it makes the pause no longer.
        let pause = Some((now + FIRST_PAUSE, FIRST_PAUSE));
        assert_eq!(writes.braked("other", LIMIT, later), pause);
    }

    #[test]
    fn a_change_costs_an_attempt_unless_restarts_have_no_limit() {
        let now = Instant::now();
        for (limit, is_refused) in [(0, false), (LIMIT, true)] {
            let mut writes = Writes::default();
            for number in 0..7 {
                writes.begin(now, limit).unwrap();
                writes.restarted(&number.to_string(), now, true, limit, now);
            }
            assert_eq!(writes.begin(now, limit).is_err(), is_refused, "{limit}");
        }
    }

    #[test]
    fn a_workload_whose_config_flaps_is_remembered_for_as_long_as_its_pause() {
        let (mut writes, mut now) = (Writes::default(), Instant::now());
        for number in 0..40 {
            let hash = number.to_string();
            now = writes.braked(&hash, LIMIT, now).map_or(now, |(at, _)| at);
            writes.restarted(&hash, now, true, LIMIT, now);
        }
        assert!(!writes.is_over(now + 2 * WINDOW));
        assert!(writes.is_over(now + 10 * WINDOW));
    }
}
