//! Compares the copies of neighbouring revisions.

use std::collections::{BTreeMap, BTreeSet};

use pod_reloader_core::name::Name;
use pod_reloader_core::pins::Pins;
use serde::Serialize;

use super::contents::{self, Content, Contents, Entry};
use super::lines::{self, Lines};
use crate::cluster::Cluster;
use crate::print::{Text, Verdict, by};
use crate::revisions::Revision;

/// What changed from a revision to the next.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Step {
    from: i64,
    to: i64,
    config_maps: Vec<ConfigMap>,
    /// Reason why nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
}

/// What changed in a ConfigMap.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ConfigMap {
    name: String,
    change: Change,
    keys: Vec<Key>,
    /// Reason why the keys are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Change {
    /// Only the later revision pins it.
    NewlyPinned,
    /// Only the earlier revision pins it.
    NoLongerPinned,
    /// The content is another.
    Changed,
}

/// A key that is not the same in both.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Key {
    key: String,
    /// `added`, `removed` or `changed`.
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
}

/// The values of a key, before and after.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase", untagged)]
enum Value {
    Text(Lines),
    /// At least one of them is binary: their sizes in bytes.
    #[serde(rename_all = "camelCase")]
    Binary {
        size_before: Option<usize>,
        size_after: Option<usize>,
    },
}

/// Compares each revision with the one before. Expects the newest first, and returns it first.
pub(super) async fn steps(
    cluster: &Cluster,
    namespace: &Name,
    revisions: &[Revision],
    shows_values: bool,
) -> Vec<Step> {
    let pins = |it: &Revision| it.stamps.pins.as_deref().and_then(Pins::parse);
    let pins: Vec<_> = revisions.iter().map(pins).collect();
    let mut steps = Vec::new();
    for (pair, pins) in revisions.windows(2).zip(pins.windows(2)) {
        let ([to, from], [Some(after), Some(before)]) = (pair, pins) else {
            let without: Vec<_> = pair.iter().zip(pins).collect();
            let without = without.iter().find(|(_, pins)| pins.is_none());
            steps.extend(without.map(|(revision, _)| Step::unknown(pair, revision)));
            continue;
        };
        // A pair at a time, so that not all contents are in memory.
        let contents = contents::read(cluster, namespace, changed(before, after)).await;
        steps.push(Step {
            from: from.number,
            to: to.number,
            config_maps: config_maps(before, after, &contents, shows_values),
            unknown: None,
        });
    }
    steps
}

/// Returns the copies that only one of both names, each with its source.
fn changed<'a>(before: &'a Pins, after: &'a Pins) -> BTreeSet<(&'a Name, &'a Name)> {
    let both = before.iter().filter_map(|(source, old)| {
        let new = after.get(source.as_str())?;
        (old != new).then_some([(old, source), (new, source)])
    });
    both.flatten().collect()
}

fn config_maps(
    before: &Pins,
    after: &Pins,
    contents: &Contents,
    shows_values: bool,
) -> Vec<ConfigMap> {
    let sources = before.iter().chain(after.iter());
    let sources: BTreeSet<_> = sources.map(|(source, _)| source).collect();
    let compared = sources.into_iter().filter_map(|source| {
        let pins = [before, after].map(|pins| pins.get(source.as_str()));
        let (change, keys) = match pins {
            [Some(old), Some(new)] if old == new => return None,
            [Some(old), Some(new)] => (Change::Changed, keys_of(contents, old, new, shows_values)),
            [None, _] => (Change::NewlyPinned, Ok(Vec::new())),
            [_, None] => (Change::NoLongerPinned, Ok(Vec::new())),
        };
        let (keys, unknown) = match keys {
            Ok(keys) => (keys, None),
            Err(unknown) => (Vec::new(), Some(unknown)),
        };
        Some(ConfigMap {
            name: source.to_string(),
            change,
            keys,
            unknown,
        })
    });
    compared.collect()
}

fn keys_of(
    contents: &Contents,
    old: &Name,
    new: &Name,
    shows_values: bool,
) -> Result<Vec<Key>, String> {
    match [old, new].map(|copy| contents.get(copy)) {
        [Some(Ok(old)), Some(Ok(new))] => Ok(keys(old, new, shows_values)),
        [Some(Err(unknown)), _] | [_, Some(Err(unknown))] => Err(unknown.clone()),
        _ => Err(format!("copy {new} was not read")),
    }
}

fn keys(old: &Content, new: &Content, shows_values: bool) -> Vec<Key> {
    let (old, new): (BTreeMap<_, _>, _) = (old.entries(), new.entries());
    let all: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let keys = all.into_iter().filter_map(|key| {
        let (old, new) = (old.get(key).copied(), new.get(key).copied());
        let change = match (old, new) {
            _ if old == new => return None,
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        };
        Some(Key {
            key: (*key).to_owned(),
            change,
            value: shows_values.then(|| Value::of(old, new)),
        })
    });
    keys.collect()
}

impl Value {
    fn of(old: Option<Entry<'_>>, new: Option<Entry<'_>>) -> Self {
        let text = |entry: Option<Entry<'_>>| match entry {
            Some(Entry::Binary(_)) => None,
            Some(Entry::Text(text)) => Some(text.to_owned()),
            None => Some(String::new()),
        };
        match (text(old), text(new)) {
            (Some(old), Some(new)) => Self::Text(lines::unified(&old, &new)),
            _ => Self::Binary {
                size_before: old.map(Entry::size),
                size_after: new.map(Entry::size),
            },
        }
    }
}

impl Step {
    fn unknown(pair: &[Revision], revision: &Revision) -> Self {
        let number = revision.number;
        let reason = match revision.stamps.pins.as_deref() {
            None => format!("revision {number} has no pins"),
            Some("") => format!("the copies of revision {number} could not be made"),
            Some(_) => format!("the pins of revision {number} cannot be read"),
        };
        Self {
            from: pair[1].number,
            to: pair[0].number,
            config_maps: Vec::new(),
            unknown: Some(reason),
        }
    }

    /// Returns true if every copy that was made could be read.
    pub(super) fn is_known(&self) -> bool {
        self.config_maps.iter().all(|it| it.unknown.is_none())
    }

    /// Adds the lines of the text.
    pub(super) fn write(&self, text: &mut Text) {
        text.gap();
        text.heading(format!("From revision {} to {}", self.from, self.to));
        if let Some(unknown) = &self.unknown {
            text.line([format!("  not known: {unknown}").into()]);
        } else if self.config_maps.is_empty() {
            text.line(["  the same ConfigMaps".into()]);
        }
        for config_map in &self.config_maps {
            config_map.write(text);
        }
    }
}

impl ConfigMap {
    fn write(&self, text: &mut Text) {
        let head = format!("  ConfigMap {}", self.name);
        match (&self.unknown, self.change) {
            (Some(unknown), _) => {
                let unknown = by(Verdict::Unknown, format!(": not known: {unknown}"));
                text.line([head.into(), unknown]);
            }
            (None, Change::Changed) => text.line([head.into()]),
            (None, Change::NewlyPinned) => text.line([format!("{head}: newly pinned").into()]),
            (None, Change::NoLongerPinned) => {
                text.line([format!("{head}: no longer pinned").into()]);
            }
        }
        for key in &self.keys {
            key.write(text);
        }
    }
}

impl Key {
    fn write(&self, text: &mut Text) {
        let head = format!("    {:<7}  {}", self.change, self.key);
        match &self.value {
            None => text.line([head.into()]),
            Some(Value::Binary {
                size_before,
                size_after,
            }) => {
                let sizes = [size_before, size_after].map(|size| match size {
                    Some(size) => format!("{size} bytes"),
                    None => "nothing".to_owned(),
                });
                let [before, after] = sizes;
                text.line([format!("{head} (binary: {before} before, {after} after)").into()]);
            }
            Some(Value::Text(lines)) => {
                text.line([head.into()]);
                lines.write(text);
            }
        }
    }
}
