//! Compares the output of a block with the output that the page shows.

/// Returns true if `printed` matches `shown`: `...` is any text within a line, and a line of only `...` is
/// any number of lines. The number of blanks between words does not matter.
pub(super) fn matches(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (lines(shown), lines(printed));
    lines_match(&shown, &printed)
}

fn lines(text: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.trim().lines().map(words).collect()
}

fn lines_match(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == "..." => {
            (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..]))
        }
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(first, others)| line_matches(line, first) && lines_match(rest, others)),
    }
}

fn line_matches(shown: &str, printed: &str) -> bool {
    let Some(dots) = shown.find("...") else {
        return shown == printed;
    };
    // Of four dots, the first is a full stop.
    let rest = shown[dots..].trim_start_matches('.');
    let (before, after) = (&shown[..shown.len() - rest.len() - 3], rest);
    let Some(rest) = printed.strip_prefix(before) else {
        return false;
    };
    let mut ends = rest
        .char_indices()
        .map(|(index, _)| index)
        .chain([rest.len()]);
    ends.any(|end| line_matches(after, &rest[end..]))
}

#[test]
fn three_dots_stand_for_what_varies() {
    for (shown, printed, expected) in [
        ("a  b\n", "a b", true),
        ("a b", "a c", false),
        ("web-... 1 ...s", "web-5d8f 1 3m2s", true),
        ("web-... 1 ...s", "web-5d8f 2 3m2s", false),
        ("...\nlast", "first\nsecond\nlast\n", true),
        ("...\nlast", "first\nlast\nmore", false),
        ("first\n...", "first", true),
        ("v1....", "v1.abc", true),
        ("v1....", "v2.abc", false),
        ("\"v1....\" x", "\"v1.abc\" x", true),
        ("", "something", false),
    ] {
        assert_eq!(matches(shown, printed), expected, "{shown:?} {printed:?}");
    }
}
