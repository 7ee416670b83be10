//! The ways in which the volumes of a pod are mounted.

use std::collections::BTreeSet;

use super::pod_spec::{Item, Source, Volume};
use super::{Consumption, Use, used};

/// A way in which a volume is mounted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mounting<'a> {
    pub(super) consumption: Consumption,
    /// The part that is mounted. `None` means the whole volume, or an unknown part.
    pub(super) sub_path: Option<&'a str>,
}

impl Mounting<'_> {
    pub(super) const UNMOUNTED: Self = Self {
        consumption: Consumption::Unmounted,
        sub_path: None,
    };
}

/// Returns the uses that result from mounting `volume` in one way.
pub(super) fn mounted<'a>(
    volume: &'a Volume,
    mounting: Mounting<'a>,
) -> impl Iterator<Item = Use<'a>> {
    let keys_in_part = move |source| match mounting.sub_path {
        Some(path) => keys_at(source, path),
        None => BTreeSet::new(),
    };
    let found = volume
        .sources()
        .any(|(_, source)| !keys_in_part(source).is_empty());
    volume.sources().filter_map(move |(kind, source)| {
        let keys = if found {
            keys_in_part(source)
        } else {
            source.items.iter().map(Item::key).collect()
        };
        if found && keys.is_empty() {
            return None;
        }
        used(kind, source, keys, mounting.consumption)
    })
}

/// Returns the keys of `source` whose files are at `path` in its volume, or below it.
fn keys_at<'a>(source: &'a Source, path: &'a str) -> BTreeSet<&'a str> {
    let items = source.items.iter().filter(|item| item.is_at(path));
    let whole = source.items.is_empty() && is_key(path);
    let key = whole.then_some(path);
    items.map(Item::key).chain(key).collect()
}

/// Returns true if an object can have `text` as a key. Without `items`, each key is a file, and there are
/// no directories except those of the kubelet, which begin with `..`.
fn is_key(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.chars().all(is_allowed) && text != "." && !text.starts_with("..")
}
