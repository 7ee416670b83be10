//! The pauses between attempts that fail.

use std::time::Duration;

/// The pause after a first failure about an object, which doubles with each further one.
pub const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after failures about an object.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Returns the pause after this many failures in a row: `first`, which doubles with each further one, up to `longest`.
pub fn after(failures: u32, first: Duration, longest: Duration) -> Duration {
    let doubled = first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    doubled.min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_with_each_failure_up_to_the_longest_one() {
        let pauses = [0, 1, 2, 3, 7, 8, u32::MAX];
        let pauses = pauses.map(|failures| {
            after(failures, Duration::from_secs(1), Duration::from_secs(120)).as_secs()
        });
        assert_eq!(pauses, [1, 1, 2, 4, 64, 120, 120]);
    }
}
