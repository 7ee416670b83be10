//! Parses the exposition of metrics: the families, and their series.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

/// Metrics in the text format of Prometheus or OpenMetrics.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    /// Families by name, without the suffixes of their series.
    pub(super) families: BTreeMap<String, Family>,
    /// Labels of each series, by name of the series.
    pub(super) series: BTreeMap<String, Vec<Labels>>,
}

/// The description of a metric.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// Type, such as `counter`.
    pub(super) kind: String,
    /// Unit, such as `seconds`; empty if none is given.
    pub(super) unit: String,
    pub(super) help: String,
}

pub(super) type Labels = BTreeMap<String, String>;

impl Exposition {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut this = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(said) = line.strip_prefix("# ") {
                let mut words = said.splitn(3, ' ');
                let (what, name) = (words.next(), words.next());
                let text = words.next().unwrap_or_default().to_owned();
                match (what, name) {
                    (Some("TYPE"), Some(name)) => this.family(name).kind = text,
                    (Some("UNIT"), Some(name)) => this.family(name).unit = text,
                    (Some("HELP"), Some(name)) => this.family(name).help = text,
                    _ => {}
                }
            } else {
                let (name, labels) = series(line).with_context(|| line.to_owned())?;
                this.series.entry(name).or_default().push(labels);
            }
        }
        Ok(this)
    }

    /// Returns the names of the labels that any series of this name has.
    pub(super) fn labels(&self, series: &str) -> BTreeSet<&str> {
        let all = self.series.get(series).into_iter().flatten();
        all.flat_map(|labels| labels.keys())
            .map(String::as_str)
            .collect()
    }

    fn family(&mut self, name: &str) -> &mut Family {
        self.families.entry(name.to_owned()).or_default()
    }
}

/// Parses name and labels of a line such as `name{label="value"} 1`.
fn series(line: &str) -> Option<(String, Labels)> {
    let name_ends = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(name_ends);
    let mut labels = Labels::new();
    let Some(mut rest) = rest.strip_prefix('{') else {
        return Some((name.to_owned(), labels));
    };
    while !rest.starts_with('}') {
        let (label, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = after.char_indices();
        let value_ends = loop {
            match characters.next()? {
                (_, '\\') => value.push(characters.next()?.1),
                (at, '"') => break at,
                (_, character) => value.push(character),
            }
        };
        labels.insert(label.to_owned(), value);
        let after = &after[value_ends + 1..];
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    Some((name.to_owned(), labels))
}

#[test]
fn names_and_labels_are_read() -> Result<()> {
    let text = "# TYPE a_seconds histogram\n# UNIT a_seconds seconds\n\
                a_seconds_bucket{le=\"+Inf\",by=\"x,\\\"}\"} 1\na_seconds_count 1 # {x=\"y\"} 1\n";
    let exposition = Exposition::parse(text)?;
    assert_eq!(exposition.families["a_seconds"].kind, "histogram");
    assert_eq!(exposition.families["a_seconds"].unit, "seconds");
    assert_eq!(exposition.series["a_seconds_bucket"][0]["by"], "x,\"}");
    assert!(exposition.series["a_seconds_count"][0].is_empty());
    Ok(())
}
