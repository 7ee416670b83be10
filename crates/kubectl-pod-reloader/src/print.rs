//! Formats answers: aligned, and coloured if somebody can see it.

mod yaml;

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
pub(crate) use pod_reloader_core::words::{count, some};
use serde::Serialize;

use crate::args::{Format, Output};
use crate::jsonpath::Template;

/// The outcome of a command, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// All is well.
    Good,
    /// Nobody can tell.
    Unknown,
    /// Something is wrong.
    Bad,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        Self::from(match verdict {
            Verdict::Good => 0,
            Verdict::Bad => 1,
            Verdict::Unknown => 3,
        })
    }
}

/// An answer, for people and for programs.
pub(crate) trait Answer: Serialize {
    /// Returns the answer in words.
    fn text(&self) -> Text;

    /// Returns the answer in words, with more columns if there are any.
    fn wide(&self) -> Text {
        self.text()
    }

    /// Returns the names of the objects in the answer, one a line.
    fn names(&self) -> Text {
        Text::default()
    }
}

/// Prints an answer to standard output. Omits colours if that is no terminal, or if NO_COLOR is set.
pub(crate) fn answer(answer: &impl Answer, format: &Format) -> io::Result<()> {
    if let Some(template) = &format.template {
        return plain(&filled(template, answer));
    }
    match format.output {
        Output::Json => write(&json(answer)),
        Output::Yaml => write(&yaml(answer)),
        Output::Wide => write(&answer.wide().0),
        Output::Name => write(&answer.names().0),
        _ => write(&answer.text().0),
    }
}

/// Prints a document, such as a picture in some language, to standard output.
pub(crate) fn plain(text: &str) -> io::Result<()> {
    write(&document(text))
}

/// Returns a document as it is printed.
pub(crate) fn document(text: &str) -> String {
    shown(text, |it| matches!(it, '\n' | '\t'))
}

/// Prints a remark beside the answer, in one line on standard error.
pub(crate) fn note(text: &str) {
    note_to(io::stderr(), text);
}

/// Writes a remark. It is lost if nobody reads it: the answer counts.
fn note_to(mut output: impl Write, text: &str) {
    let _ = writeln!(output, "{}", shown(text, |_| false));
}

/// Fills a template with a value.
pub(crate) fn filled(template: &Template, value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).expect("maps with text keys can be JSON");
    template.fill(&value)
}

/// Formats as YAML, and escapes as [`json`] does.
pub(crate) fn yaml(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).expect("maps with text keys can be JSON");
    yaml::document(&value)
}

/// Formats as JSON, and escapes everything that a terminal would obey or hide. JSON allows that for any
/// character.
pub(crate) fn json(value: &impl Serialize) -> String {
    let json = serde_json::to_string_pretty(value).expect("maps with text keys can be JSON");
    // Newlines separate values. Those inside strings are escaped already.
    escaped(&json, |it| it != '\n' && is_hidden(it)) + "\n"
}

/// Escapes characters in the strings of JSON.
pub(crate) fn escaped(json: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(json.len() + 1);
    for character in json.chars() {
        if !is_escaped(character) {
            text.push(character);
            continue;
        }
        let mut units = [0; 2];
        for unit in character.encode_utf16(&mut units) {
            text += &format!("\\u{unit:04x}");
        }
    }
    text
}

/// Prints lines of an answer that goes on. Breaks when nobody reads it any more.
pub(crate) fn lines(text: &Text) -> io::Result<ControlFlow<()>> {
    write_to(anstream::stdout().lock(), &text.0)
}

/// Writes an answer. It stands even if nobody reads it.
fn write(text: &str) -> io::Result<()> {
    write_to(anstream::stdout().lock(), text).map(|_| ())
}

/// Writes text. Breaks if nobody reads it.
fn write_to(mut output: impl Write, text: &str) -> io::Result<ControlFlow<()>> {
    let written = output.write_all(text.as_bytes());
    match written.and_then(|()| output.flush()) {
        // The reader has seen enough and closed the pipe, as `| head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        written => written.map(ControlFlow::Continue),
    }
}

/// Returns true for control characters, ends of lines and paragraphs, changes of the writing direction, and
/// characters that are invisible.
pub(crate) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

fn shown(text: &str, is_meant: impl Fn(char) -> bool) -> String {
    let shown = |it| match is_hidden(it) && !is_meant(it) {
        true => char::REPLACEMENT_CHARACTER,
        false => it,
    };
    text.chars().map(shown).collect()
}

const PLAIN: Style = Style::new();
const BOLD: Style = Style::new().bold();
const GREEN: Style = AnsiColor::Green.on_default();
const YELLOW: Style = AnsiColor::Yellow.on_default();
const RED: Style = AnsiColor::Red.on_default();

/// A part of a line, in a style.
#[derive(Clone, Debug)]
pub(crate) struct Piece(Style, String);

impl<T: Into<String>> From<T> for Piece {
    fn from(text: T) -> Self {
        Self(PLAIN, text.into())
    }
}

/// Colours text by a verdict.
pub(crate) fn by(verdict: Verdict, text: impl Into<String>) -> Piece {
    let style = match verdict {
        Verdict::Good => GREEN,
        Verdict::Unknown => YELLOW,
        Verdict::Bad => RED,
    };
    Piece(style, text.into())
}

/// Lines for a terminal.
///
/// # Guarantees
/// Text loses everything that a terminal would obey or hide, and adds no lines of its own: much of it comes
/// from the cluster, where others write. Nothing else can be printed as the text of an [`Answer`].
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// Returns a text that begins with the object that it is about.
    pub(crate) fn about(kind: &str, name: &str, namespace: &str) -> Self {
        let mut text = Self::default();
        text.heading(format!("{kind} {name} in namespace {namespace}"));
        text.gap();
        text
    }

    /// Adds a line made of pieces.
    pub(crate) fn line(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        for Piece(style, text) in pieces {
            self.0 += &format!("{style}{}{style:#}", shown(&text, |_| false));
        }
        self.0 += "\n";
    }

    /// Adds a line in bold.
    pub(crate) fn heading(&mut self, text: impl Into<String>) {
        self.line([Piece(BOLD, text.into())]);
    }

    /// Adds an empty line.
    pub(crate) fn gap(&mut self) {
        self.line([]);
    }

    /// Adds names with one or more lines of values each. The values form one column.
    pub(crate) fn fields(&mut self, fields: Vec<(&str, Vec<Piece>)>) {
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
        for (name, values) in fields {
            let mut head = vec![
                Piece(BOLD, name.to_owned()),
                " ".repeat(width - name.len()).into(),
            ];
            for value in values {
                head.push(value);
                self.line(head);
                head = vec![" ".repeat(width).into()];
            }
        }
    }

    /// Adds a table with a line of headings.
    pub(crate) fn table<const N: usize>(&mut self, headings: [&str; N], rows: &[[String; N]]) {
        self.columns(&headings, rows);
    }

    /// Adds a table with a line of headings. Each row has as many cells as there are headings.
    pub(crate) fn columns(&mut self, headings: &[&str], rows: &[impl AsRef<[String]>]) {
        let mut columns = Columns::default();
        columns.fit(headings);
        for row in rows {
            let cells: &[String] = row.as_ref();
            columns.fit(cells);
        }
        self.heading(columns.line(headings));
        self.rows(&columns, rows);
    }

    /// Adds rows, with the columns of a table that has begun before.
    pub(crate) fn rows(&mut self, columns: &Columns, rows: &[impl AsRef<[String]>]) {
        for row in rows {
            let cells: &[String] = row.as_ref();
            self.line([columns.line(cells).into()]);
        }
    }

    /// Adds a heading, and a line for each item. Adds nothing if there are no items.
    pub(crate) fn section(&mut self, heading: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.gap();
        self.heading(heading);
        for item in items {
            self.line([format!("  {item}").into()]);
        }
    }

    /// Returns the text without our own styles, and with anything else that may be in it.
    #[cfg(test)]
    pub(crate) fn without_styles(&self) -> String {
        let styles = [BOLD, GREEN, YELLOW, RED];
        let styles = styles.map(|it| [format!("{it}"), format!("{it:#}")]);
        let mut text = self.0.clone();
        for style in styles.as_flattened() {
            text = text.replace(style, "");
        }
        text
    }
}

/// The widths of the columns of a table, in characters.
#[derive(Debug, Default)]
pub(crate) struct Columns(Vec<usize>);

impl Columns {
    /// Returns true if there is no line yet.
    pub(crate) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes room for the cells of a line.
    pub(crate) fn fit(&mut self, cells: &[impl AsRef<str>]) {
        self.0.resize(self.0.len().max(cells.len()), 0);
        for (width, cell) in self.0.iter_mut().zip(cells) {
            *width = (*width).max(length(cell.as_ref()));
        }
    }

    /// Returns the cells as a line.
    pub(crate) fn line(&self, cells: &[impl AsRef<str>]) -> String {
        let mut line = String::new();
        for (width, cell) in self.0.iter().zip(cells) {
            let cell = cell.as_ref();
            line += cell;
            line += &" ".repeat(width.saturating_sub(length(cell)) + 3);
        }
        line.trim_end().to_owned()
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_who_has_seen_enough_does_not_change_the_outcome() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        assert_eq!(write_to(writer, "text").unwrap(), ControlFlow::Break(()));
        let read = write_to(io::sink(), "text").unwrap();
        assert_eq!(read, ControlFlow::Continue(()));
        let no_room: &mut [u8] = &mut [];
        assert!(write_to(no_room, "text").is_err());
    }

    #[test]
    fn a_remark_that_nobody_reads_ends_nothing() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        note_to(writer, "text");
        let mut written = Vec::new();
        note_to(&mut written, "a\nb");
        assert_eq!(written, "a\u{fffd}b\n".as_bytes());
    }

    #[test]
    fn the_cells_of_a_table_are_aligned() {
        let rows = [["Sécret a", "yes"], ["b", ""]].map(|row| row.map(str::to_owned));
        let mut text = Text::default();
        text.table(["OBJECT", "THERE"], &rows);
        assert_eq!(
            text.without_styles(),
            "OBJECT     THERE\nSécret a   yes\nb\n"
        );
    }

    #[test]
    fn values_are_aligned() {
        let mut text = Text::default();
        text.fields(vec![
            ("Name", vec!["web".into()]),
            ("It", vec!["one".into(), "two".into()]),
        ]);
        assert_eq!(text.without_styles(), "Name  web\nIt    one\n      two\n");
    }

    #[test]
    fn text_from_the_cluster_gives_no_orders_to_a_terminal() {
        let mut text = Text::default();
        text.line(["a\u{1b}[31mb\nc\r\u{202e}d".into()]);
        let told = "a\u{fffd}[31mb\u{fffd}c\u{fffd}\u{fffd}d\n";
        assert_eq!(text.0, told);
        assert_eq!(shown("a\u{9b}\nb", |it| it == '\n'), "a\u{fffd}\nb");
    }

    #[test]
    fn json_is_exact_and_gives_no_orders_to_a_terminal() {
        let hostile = "\u{1b}]0;x\u{7}\u{9b}31m\u{7f}\u{202e}\u{e0041}\n\"";
        let json = json(&[hostile]);
        assert!(
            !json.chars().any(|it| is_hidden(it) && it != '\n'),
            "{json}"
        );
        let read: Vec<String> = serde_json::from_str(&json).unwrap();
        assert_eq!(read, [hostile]);
    }

    #[test]
    fn bad_is_worse_than_unknown_and_unknown_is_worse_than_good() {
        assert!(Verdict::Bad > Verdict::Unknown && Verdict::Unknown > Verdict::Good);
    }
}
