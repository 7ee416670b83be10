//! Remembers the recent writes to one workload.

use std::time::{Duration, Instant};

use super::{Allowance, Brake, WINDOW};

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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 5;

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
