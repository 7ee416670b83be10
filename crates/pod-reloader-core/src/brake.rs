//! The brake: a workload that is restarted again and again waits longer and longer for the next time.
//!
//! Known from practice: a certificate that flapped made one Deployment 80,000 ReplicaSets.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time in which restarts are counted.
pub const WINDOW: Duration = Duration::from_secs(10 * 60);
/// The first pause. Each restart after a pause doubles the next one.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// How often it is doubled at most: to 32 minutes.
const MAX_DOUBLINGS: u32 = 5;

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
