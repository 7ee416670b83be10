//! The pace at which the fields of one binding are written: at once after a rest, and once a minute at most against
//! somebody who keeps on changing them.

use std::time::{Duration, Instant};

use crate::config_sync::pace;

/// The time between two repairs.
const REPAIR_INTERVAL: Duration = Duration::from_secs(60);

/// The cause of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A key has another value, or a field has been bound.
    News,
    /// Somebody has changed a field that had the value of its key.
    Repair,
}

/// The recent writes to the fields of one binding, as far as they limit the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    news: pace::Pace,
    repair: Option<Instant>,
}

impl Pace {
    /// Returns the time of the next write, if it must wait.
    pub fn not_before(&self, cause: Cause, now: Instant) -> Option<Instant> {
        match cause {
            Cause::News => self.news.not_before(now),
            Cause::Repair => {
                let next = self.repair? + REPAIR_INTERVAL;
                (next > now).then_some(next)
            }
        }
    }

    /// Notes a write.
    pub fn wrote(&mut self, cause: Cause, now: Instant) {
        match cause {
            Cause::News => self.news.wrote(now),
            Cause::Repair => self.repair = Some(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of writes in each minute, of fields that are changed every 100 ms.
    fn writes(cause: Cause) -> [usize; 10] {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let mut writes = [0; 10];
        for tenth in 0..6000 {
            let now = begin + tenth * Duration::from_millis(100);
            if pace.not_before(cause, now).is_none() {
                pace.wrote(cause, now);
                writes[(tenth / 600) as usize] += 1;
            }
        }
        writes
    }

    #[test]
    fn a_field_that_is_reset_all_the_time_is_written_once_a_minute() {
        assert_eq!(writes(Cause::Repair), [1; 10]);
    }

    #[test]
    fn a_key_that_changes_all_the_time_is_followed_less_and_less() {
        let writes = writes(Cause::News);
        assert!(writes[0] < 8, "{writes:?}");
        assert!(writes[2..].iter().all(|&it| it <= 1), "{writes:?}");
    }

    #[test]
    fn a_repair_does_not_hold_up_a_new_value() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.wrote(Cause::Repair, now);
        assert!(pace.not_before(Cause::Repair, now).is_some());
        assert_eq!(pace.not_before(Cause::News, now), None);
    }
}
