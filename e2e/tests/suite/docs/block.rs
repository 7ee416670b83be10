//! Finds the fenced blocks of a document, and the marks above them.

use anyhow::{Context, Result, bail, ensure};

use super::manifest::Manifest;

/// Reasons for not running a block. Without one of them, a block can be run here.
const REASONS: [&str; 7] = [
    "needs a registry",
    "needs containers",
    "needs Argo CD",
    "starts a control plane",
    "does not end",
    "no object of the API",
    "part of a template",
];

/// A fenced block that a reader types in, or writes into a file.
#[derive(Debug)]
pub(super) struct Block {
    /// Line of its first fence, starting at 1.
    pub(super) line: usize,
    /// Language of the block.
    pub(super) language: Language,
    /// Text between the fences.
    pub(super) text: String,
    /// Commands that the reader has run before, which the page does not show.
    pub(super) first: Vec<String>,
    /// Expected outcome.
    pub(super) fate: Fate,
    /// Output, if the page shows it.
    pub(super) output: Option<String>,
}

impl Block {
    /// Returns true if this is a values file that the chart should accept.
    pub(super) fn are_values(&self) -> bool {
        self.language == Language::Yaml
            && self.fate == Fate::Succeeds
            && matches!(Manifest::parse(&self.text), Ok(Manifest::Values))
    }

    /// Returns true if commands of it are run, or come first. Objects are only tried, by dry runs.
    pub(super) fn may_change_the_cluster(&self) -> bool {
        let is_run = self.language == Language::Shell && self.fate != Fate::NotRun;
        is_run || !self.first.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    /// Commands.
    Shell,
    /// Values of the chart, objects, or a part of one.
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Succeeds,
    Fails,
    /// The block cannot be run here, for one of [`REASONS`].
    NotRun,
}

/// Returns the blocks of a page, from the top.
///
/// # Errors
/// When a mark is unknown, or has no block below it.
pub(super) fn blocks(page: &str) -> Result<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = page
        .lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line));
    let mut marks = Vec::new();
    // True if the previous block may be followed by its output.
    let mut may_print = false;
    while let Some((number, line)) = lines.next() {
        let begin = line.trim_start();
        if let Some(comment) = begin.strip_prefix("<!--") {
            let mut comment = comment.to_owned();
            while !comment.contains("-->") {
                let (_, next) = lines.next().context("a comment has no end")?;
                comment = format!("{comment}\n{next}");
            }
            let text = comment.split("-->").next().unwrap_or_default();
            if let Some(mark) = mark(text.trim()).with_context(|| format!("{number}"))? {
                marks.push(mark);
            }
            continue;
        }
        let Some(language) = begin.strip_prefix("```") else {
            ensure!(
                marks.is_empty(),
                "{number}: the mark above is that of no block"
            );
            continue;
        };
        let indent = line.len() - begin.len();
        let mut text = String::new();
        loop {
            let (_, line) = lines.next().with_context(|| format!("{number}: no end"))?;
            let content = line.get(indent..).unwrap_or_default();
            if content.starts_with("```") {
                break;
            }
            text = text + content + "\n";
        }
        let language = match language {
            "console" | "sh" | "bash" => Language::Shell,
            "yaml" => Language::Yaml,
            "text" if may_print => {
                ensure!(marks.is_empty(), "{number}: nobody would run it");
                let before = blocks.last_mut().context("a block may print")?;
                before.output = Some(text);
                may_print = false;
                continue;
            }
            _ => {
                ensure!(marks.is_empty(), "{number}: nobody would run it");
                may_print = false;
                continue;
            }
        };
        may_print = language == Language::Shell;
        let mut block = Block {
            line: number,
            language,
            text,
            first: Vec::new(),
            fate: Fate::Succeeds,
            output: None,
        };
        for mark in marks.drain(..) {
            match mark {
                Mark::First(script) => block.first.push(script),
                Mark::Fate(fate) => block.fate = fate,
            }
        }
        blocks.push(block);
    }
    ensure!(marks.is_empty(), "the last mark is that of no block");
    Ok(blocks)
}

enum Mark {
    First(String),
    Fate(Fate),
}

/// Returns the mark that a comment contains, if it is one.
fn mark(comment: &str) -> Result<Option<Mark>> {
    let Some((name, value)) = comment.split_once(':') else {
        return Ok(None);
    };
    let value = value.trim();
    Ok(Some(match name {
        "first" => Mark::First(value.to_owned()),
        "run" if value == "fails" => Mark::Fate(Fate::Fails),
        "not run" if REASONS.contains(&value) => Mark::Fate(Fate::NotRun),
        "run" | "not run" => bail!("{comment}: means nothing; reasons are {REASONS:?}"),
        _ => return Ok(None),
    }))
}

#[test]
fn blocks_have_the_marks_above_them_and_the_output_below() -> Result<()> {
    let page = "\
1. Do\n
   <!-- first: touch a -->
   <!-- run: fails -->
   ```console
   cat b |
     cat
   ```

   which prints

   ```text
   no b
   ```
";
    let [block] = &blocks(page)?[..] else {
        bail!("not one block");
    };
    assert_eq!(block.text, "cat b |\n  cat\n");
    assert_eq!(block.first, ["touch a"]);
    assert_eq!(block.fate, Fate::Fails);
    assert_eq!(block.output.as_deref(), Some("no b\n"));
    assert_eq!(block.line, 5);
    Ok(())
}

#[test]
fn a_mark_must_mean_something() {
    for page in [
        "<!-- not run: I do not like it -->\n```sh\nls\n```\n",
        "<!-- run: sometimes -->\n```sh\nls\n```\n",
        "<!-- not run: does not end -->\n\n```sh\nls\n```\n",
        "<!-- not run: does not end -->",
        "<!-- run: fails -->\n```text\nnobody runs this\n```\n",
    ] {
        assert!(blocks(page).is_err(), "{page}");
    }
    assert!(blocks("<!-- values -->\n\nText").is_ok());
}
