//! Compares two values line by line.

use std::time::Duration;

use serde::Serialize;
use similar::{Algorithm, ChangeTag, TextDiff};

use crate::print::{Text, Verdict, by, count};

/// Number of lines that are shown of one value.
const LINES: usize = 200;
/// Number of characters that are shown of one line.
const CHARACTERS: usize = 500;
/// Time to look for the shortest difference. After that, a longer one is shown.
const PATIENCE: Duration = Duration::from_millis(200);
/// Number of unchanged lines around each change.
const CONTEXT: usize = 3;

/// A unified diff.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lines {
    /// Each begins with `@@`, or with `-`, `+` or a space.
    diff: Vec<String>,
    /// Number of lines that are left out, because there are too many.
    left_out: usize,
}

/// Returns what turns `old` into `new`.
pub(super) fn unified(old: &str, new: &str) -> Lines {
    // A carriage return is a part of its line, and ends none.
    let [old_lines, new_lines] = [old, new].map(|it| Vec::from_iter(it.split_inclusive('\n')));
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(PATIENCE)
        .diff_slices(&old_lines, &new_lines);
    // Most values end without a line break.
    let has_hint = old.ends_with('\n') != new.ends_with('\n');
    let mut unified = diff.unified_diff();
    let mut lines = Lines::default();
    for hunk in unified.context_radius(CONTEXT).iter_hunks() {
        lines.push(|| hunk.header().to_string());
        for change in hunk.iter_changes() {
            let line = change.value();
            let text = line.strip_suffix('\n');
            lines.push(|| cut(change.tag(), text.unwrap_or(line)));
            if text.is_none() && has_hint {
                lines.push(|| "\\ No newline at end of file".to_owned());
            }
        }
    }
    lines
}

fn cut(tag: ChangeTag, line: &str) -> String {
    match line.char_indices().nth(CHARACTERS) {
        Some((at, _)) => format!("{tag}{}… ({} bytes)", &line[..at], line.len()),
        None => format!("{tag}{line}"),
    }
}

impl Lines {
    fn push(&mut self, line: impl FnOnce() -> String) {
        match self.diff.len() < LINES {
            true => self.diff.push(line()),
            false => self.left_out += 1,
        }
    }

    /// Adds the lines of the text.
    pub(super) fn write(&self, text: &mut Text) {
        for line in &self.diff {
            let piece = format!("      {line}");
            text.line([match line.as_bytes().first() {
                Some(b'+') => by(Verdict::Good, piece),
                Some(b'-') => by(Verdict::Bad, piece),
                _ => piece.into(),
            }]);
        }
        if self.left_out > 0 {
            let more = count(self.left_out as u64, "more line");
            text.line([format!("      … {more}").into()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(old: &str, new: &str) -> Vec<String> {
        unified(old, new).diff
    }

    #[test]
    fn only_the_lines_around_a_change_are_shown() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let shown = diff(old, &old.replace('5', "five"));
        assert_eq!(
            shown,
            [
                "@@ -2,7 +2,7 @@",
                " 2",
                " 3",
                " 4",
                "-5",
                "+five",
                " 6",
                " 7",
                " 8"
            ]
        );
        assert_eq!(diff("blue", "green"), ["@@ -1 +1 @@", "-blue", "+green"]);
        assert_eq!(diff("", "green"), ["@@ -0,0 +1 @@", "+green"]);
        assert_eq!(diff("", ""), Vec::<String>::new());
    }

    #[test]
    fn a_line_break_at_the_end_is_a_change() {
        let shown = diff("a\n", "a");
        assert_eq!(
            shown,
            ["@@ -1 +1 @@", "-a", "+a", "\\ No newline at end of file"]
        );
    }

    #[test]
    fn other_ends_of_lines_are_parts_of_them() {
        let shown = diff("a\rb\r\nc", "a\rb\nc");
        assert_eq!(shown, ["@@ -1,2 +1,2 @@", "-a\rb\r", "+a\rb", " c"]);
    }

    #[test]
    fn huge_values_are_cut() {
        let line = "x".repeat(1 << 20);
        let shown = diff(&line, "");
        let end = format!("… ({} bytes)", 1 << 20);
        assert!(shown[1].ends_with(&end) && shown[1].len() < 2 * CHARACTERS);
        let lines = |from: usize| {
            let lines = (from..from + 100_000).map(|it| format!("{it}\n"));
            lines.collect::<String>()
        };
        let started = std::time::Instant::now();
        let Lines { diff, left_out } = unified(&lines(0), &lines(200_000));
        assert_eq!((diff.len(), left_out), (LINES, 200_001 - LINES));
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}
