//! The pace at which one copy is written: at once after a rest, and ever more slowly against somebody who keeps on
//! changing it.

use std::time::{Duration, Instant};

/// The pause after a second write, which doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The recent writes to one copy, as far as they limit the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    last: Option<Instant>,
    pause: Duration,
}

impl Pace {
    /// Returns the time of the next write, if it must wait.
    pub fn not_before(&self, now: Instant) -> Option<Instant> {
        let next = self.last? + self.pause;
        (next > now).then_some(next)
    }

    /// Notes a write. After twice the longest pause without one, the next is not held up.
    pub fn wrote(&mut self, now: Instant) {
        let is_rested = self
            .last
            .is_none_or(|last| now.duration_since(last) >= (self.pause * 2).max(LONGEST_PAUSE));
        self.pause = match is_rested {
            true => Duration::ZERO,
            false => (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE),
        };
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times, in seconds, of the writes to a copy that is changed every 100 ms until `end`.
    fn writes(pace: &mut Pace, begin: Instant, end: u32) -> Vec<f32> {
        let tenth = Duration::from_millis(100);
        (0..end * 10)
            .filter(|&at| {
                let now = begin + at * tenth;
                let may = pace.not_before(now).is_none();
                if may {
                    pace.wrote(now);
                }
                may
            })
            .map(|at| at as f32 / 10.0)
            .collect()
    }

    #[test]
    fn a_copy_that_is_changed_all_the_time_is_written_less_and_less() {
        let writes = writes(&mut Pace::default(), Instant::now(), 600);
        assert_eq!(writes[..7], [0.0, 0.1, 1.1, 3.1, 7.1, 15.1, 31.1]);
        assert!(writes.len() < 20, "{writes:?}");
    }

    #[test]
    fn a_copy_at_rest_is_written_at_once() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        writes(&mut pace, begin, 600);
        let later = begin + Duration::from_secs(600) + LONGEST_PAUSE * 2;
        assert_eq!(pace.not_before(later), None);
        pace.wrote(later);
        assert_eq!(
            pace.not_before(later),
            None,
            "the first repair costs no pause"
        );
    }
}
