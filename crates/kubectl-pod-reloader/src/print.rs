//! How answers look: aligned, and in colours where somebody can see them.

use std::borrow::Borrow;
use std::fmt::{self, Display};
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::args::Output;

/// What became of a command, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// All is well.
    Good,
    /// It cannot be told.
    Unknown,
    /// Something is not well.
    Bad,
}

/// An answer, for people and for programs.
pub(crate) trait Answer: Serialize {
    /// It in words.
    fn text(&self) -> String;
}

/// Prints an answer to standard output. Colours are left out where that is no terminal, or NO_COLOR is set.
pub(crate) fn answer(answer: &impl Answer, output: Output) -> io::Result<()> {
    match output {
        Output::Json => raw(&format!(
            "{}\n",
            serde_json::to_string_pretty(answer).expect("maps with text keys can be JSON")
        )),
        _ => raw(&answer.text()),
    }
}

/// Prints text to standard output.
pub(crate) fn raw(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Controls, ends of lines and paragraphs, and what turns the direction of writing around.
pub(crate) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Text out of the cluster, without what a terminal would obey or hide.
pub(crate) fn safe(text: &str) -> String {
    let shown = |it| {
        if is_hidden(it) {
            char::REPLACEMENT_CHARACTER
        } else {
            it
        }
    };
    text.chars().map(shown).collect()
}

const BOLD: Style = Style::new().bold();
const GREEN: Style = AnsiColor::Green.on_default();
const YELLOW: Style = AnsiColor::Yellow.on_default();
const RED: Style = AnsiColor::Red.on_default();

/// Text in a style.
pub(crate) struct Styled<T>(Style, T);

impl<T: Display> Display for Styled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{:#}", self.0, self.1, self.0)
    }
}

pub(crate) fn bold<T>(text: T) -> Styled<T> {
    Styled(BOLD, text)
}

/// Text that tells by its colour, too, how things are.
pub(crate) fn by<T>(verdict: Verdict, text: T) -> Styled<T> {
    Styled(
        match verdict {
            Verdict::Good => GREEN,
            Verdict::Unknown => YELLOW,
            Verdict::Bad => RED,
        },
        text,
    )
}

/// Lines of a name and a value each, the values in one column.
pub(crate) fn fields(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    let mut text = String::new();
    for (name, value) in fields {
        let mut lines = value.lines();
        let first = lines.next().unwrap_or_default();
        text += &format!("{}{}{first}\n", bold(name), " ".repeat(width - name.len()));
        for line in lines {
            text += &format!("{}{line}\n", " ".repeat(width));
        }
    }
    text
}

/// A table with a line of headings. Its cells are text without colours.
pub(crate) fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let length = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..N)
        .map(|at| {
            let cells = rows.iter().map(|row| length(&row[at]));
            cells.chain([length(headings[at])]).max().unwrap_or(0)
        })
        .collect();
    let line = |cells: &[&str]| {
        let mut line = String::new();
        for (at, cell) in cells.iter().enumerate() {
            line += cell;
            if at + 1 < N {
                line += &" ".repeat(widths[at] + 3 - length(cell));
            }
        }
        line.trim_end().to_owned()
    };
    let mut text = format!("{}\n", bold(line(&headings)));
    for row in rows {
        text += &line(&row.each_ref().map(String::as_str));
        text += "\n";
    }
    text
}

/// A heading with a line for each item; nothing without any.
pub(crate) fn section(heading: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let lines = items.iter().map(|item| format!("  {item}\n"));
    format!("\n{}\n{}", bold(heading), String::from_iter(lines))
}

/// The first `most` names, the rest as a number.
pub(crate) fn some<N: Borrow<str>>(names: &[N], most: usize) -> String {
    let shown = names[..names.len().min(most)].join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// `1 workload`, `2 workloads`.
pub(crate) fn count<N: Display + From<u8> + PartialEq>(number: N, thing: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_of_a_table_stand_below_each_other() {
        let rows = [["Sécret a", "yes"], ["b", ""]].map(|row| row.map(str::to_owned));
        let text = anstream::adapter::strip_str(&table(["OBJECT", "THERE"], &rows)).to_string();
        assert_eq!(text, "OBJECT     THERE\nSécret a   yes\nb\n");
    }

    #[test]
    fn values_stand_below_each_other() {
        let text = fields(&[("Name", "web".to_owned()), ("It", "one\ntwo".to_owned())]);
        let text = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(text, "Name  web\nIt    one\n      two\n");
    }

    #[test]
    fn text_out_of_the_cluster_gives_no_orders_to_a_terminal() {
        let safe = safe("a\u{1b}[31mb\nc\r\u{202e}d");
        assert_eq!(safe, "a\u{fffd}[31mb\u{fffd}c\u{fffd}\u{fffd}d");
    }

    #[test]
    fn a_verdict_is_as_bad_as_the_worst() {
        assert!(Verdict::Bad > Verdict::Unknown && Verdict::Unknown > Verdict::Good);
    }
}
