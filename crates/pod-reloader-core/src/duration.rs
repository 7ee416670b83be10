//! Durations, as Go and Kubernetes write them.

use std::time::Duration;

/// The maximum settle period. A change that waited longer would look like a lost one.
pub const MAX_SETTLE_PERIOD: Duration = Duration::from_secs(60 * 60);

/// Parses what Go's `time.ParseDuration` takes, such as `300ms`, `1.5h` or `2h45m`, except negative
/// durations.
pub fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (number, behind) = rest.split_at(rest.find(|c| !is_number(c))?);
        let (unit, behind) = behind.split_at(behind.find(is_number).unwrap_or(behind.len()));
        let seconds = match unit {
            "ns" => 1e-9,
            // These are the micro sign and the Greek letter mu.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let number: f64 = number.parse().ok()?;
        let part = Duration::try_from_secs_f64(number * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = behind;
    }
    Some(total)
}

/// Returns the time in an annotation: [`MAX_SETTLE_PERIOD`] at most. `None` if it is not a duration. `advice` warns
/// about both.
pub(crate) fn of_annotation(text: &str) -> Option<Duration> {
    parse(text).map(|time| time.min(MAX_SETTLE_PERIOD))
}

#[cfg(test)]
mod tests {
    use super::parse;
    use std::time::Duration;

    #[test]
    fn durations_that_go_accepts_are_read() {
        for (text, milliseconds) in [
            ("0", 0),
            ("0s", 0),
            ("300ms", 300),
            ("+5s", 5_000),
            ("1.5h", 5_400_000),
            (".5h", 1_800_000),
            ("1.s", 1_000),
            ("2h45m", 9_900_000),
            ("30m1h", 5_400_000),
            ("1m1m", 120_000),
            ("2000us", 2),
            ("2000\u{b5}s", 2),
            ("2000\u{3bc}s", 2),
            ("2000000ns", 2),
        ] {
            assert_eq!(
                parse(text),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn durations_that_go_refuses_and_negative_ones_are_none() {
        for text in [
            "",
            "+",
            "5",
            "5 minutes",
            "5 m",
            "5min",
            "1h 3m",
            "PT5M",
            "1d",
            ".",
            ".s",
            "s",
            "1.2.3s",
            "-1s",
            "+-1s",
            "1m-5s",
            "1e3s",
            "infs",
            "NaNs",
            "5M",
            "\u{665}s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        let long = format!("{}h", "9".repeat(400));
        assert_eq!(parse(&long), None);
    }
}
