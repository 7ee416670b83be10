//! Times and ages as people read them.

use jiff::Timestamp;

/// Formats a time: `2026-11-21 20:59:12 UTC, 3 min ago`.
pub(crate) fn when(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(at).as_secs();
    let ago = match seconds {
        ..0 => "just now".to_owned(),
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    };
    format!("{} UTC, {ago}", at.strftime("%Y-%m-%d %H:%M:%S"))
}

/// Formats an age as kubectl does: `90s`, `4m30s`, `3h`, `2d`.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(at).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let with = |number: i64, unit: char, rest: i64, smaller: char| match rest {
        0 => format!("{number}{unit}"),
        rest => format!("{number}{unit}{rest}{smaller}"),
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => with(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => with(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => with(days, 'd', hours % 24, 'h'),
        _ => format!("{days}d"),
    }
}

/// Returns the time that a test writes as text.
#[cfg(test)]
pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().expect("a test writes a valid time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_the_form_of_kubectl() {
        let now = at("2026-01-31T00:00:00Z");
        for (seconds, expected) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (270, "4m30s"),
            (3600, "60m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (90_000, "25h"),
            (172_800, "2d"),
            (176_400, "2d1h"),
            (864_000, "10d"),
        ] {
            let then = now - jiff::SignedDuration::from_secs(seconds);
            assert_eq!(age(then, now), expected);
        }
    }

    #[test]
    fn times_are_written_in_words() {
        let now = at("2026-01-03T00:00:00Z");
        let told = when(at("2026-01-02T23:55:30Z"), now);
        assert_eq!(told, "2026-01-02 23:55:30 UTC, 4 min ago");
        assert!(when(now, at("2026-01-02T00:00:00Z")).ends_with("just now"));
    }
}
