//! Follows the links from one document to another.

use std::{fs, path::PathBuf};

use super::root;

/// A document.
pub(super) struct Page {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Page {
    /// Returns the page's path in the repository.
    pub(super) fn name(&self) -> String {
        let path = self.path.strip_prefix(root()).unwrap_or(&self.path);
        path.display().to_string()
    }

    /// Returns the links to files that do not exist, and to headings that they do not have.
    pub(super) fn dead_links(&self) -> Vec<String> {
        let links = prose(&self.text);
        let links = links
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        links
            .filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
            .filter(|link| !self.leads_somewhere(link))
            .map(|link| format!("{}: {link}", self.name()))
            .collect()
    }

    fn leads_somewhere(&self, link: &str) -> bool {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let path = match file {
            "" => self.path.clone(),
            file => self.path.with_file_name("").join(file),
        };
        if anchor.is_empty() {
            return path.exists();
        }
        fs::read_to_string(path)
            .is_ok_and(|text| anchors(&text).iter().any(|known| known == anchor))
    }
}

/// Returns the targets for links in a document: its headings, as GitHub names them.
fn anchors(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let headings = headings.map(|line| line.trim_start_matches('#').trim());
    headings.map(anchor).collect()
}

fn anchor(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower
        .chars()
        .filter(|char| char.is_alphanumeric() || " -_".contains(*char));
    kept.map(|char| if char == ' ' { '-' } else { char })
        .collect()
}

/// Returns a text without its fenced blocks, in which `#` begins a comment.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn headings_are_named_as_github_names_them() {
    let text =
        "# Only `auto`: what, and *why*?\n```sh\n# no heading\n```\n## The webhook's certificate\n";
    assert_eq!(
        anchors(text),
        ["only-auto-what-and-why", "the-webhooks-certificate"]
    );
}
