//! Stores a time in eight bytes, half of what an `Instant` takes: there is one for each workload and object.

use std::num::NonZeroU64;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

/// The time from which moments are counted. Some are before it.
static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);

/// The number that stands for [`START`].
const MIDDLE: u64 = 1 << 63;

/// A time, in nanoseconds. One that is more than 292 years from [`START`] is replaced by a nearer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(NonZeroU64);

impl From<Instant> for Moment {
    fn from(at: Instant) -> Self {
        let at = at.into_std();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let number = match at.checked_duration_since(*START) {
            Some(after) => MIDDLE.saturating_add(nanos(after)),
            None => MIDDLE.saturating_sub(nanos(START.duration_since(at))),
        };
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }
}

impl From<Moment> for Instant {
    fn from(moment: Moment) -> Self {
        let number = moment.0.get();
        let at = match number.checked_sub(MIDDLE) {
            Some(after) => *START + Duration::from_nanos(after),
            None => *START - Duration::from_nanos(MIDDLE - number),
        };
        Self::from_std(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_exactly_the_time_that_it_was_made_of() {
        let now = Instant::now();
        let hour = Duration::from_nanos(3_600_000_000_001);
        for at in [now - hour, now, now + hour] {
            assert_eq!(Instant::from(Moment::from(at)), at);
        }
        let later = now + Duration::from_nanos(1);
        assert!(Moment::from(now) < Moment::from(later));
        assert!(Moment::from(now - hour) < Moment::from(now));
        assert_eq!(size_of::<Option<Moment>>(), 8);
    }
}
