//! Objects that change together, such as a user and its password: a restart waits until all of them have changed.
//!
//! They change in rounds. A round begins when the first of them changes, and is over when all have. What is
//! remembered of a round is in memory only.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::annotations::{TOGETHER, TOGETHER_TIMEOUT};
use crate::digest::Contents;
use crate::duration;
use crate::list;
use crate::name::Name;
use crate::reference::{ConfigKind, Reference};

/// The time for which a restart waits at most, unless the workload says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The maximum number of items in the annotation.
const MAX_ITEMS: usize = 32;

/// The objects of one workload that change together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Together {
    items: Box<[Item]>,
    /// The time for which a restart waits at most, from the first change on.
    pub timeout: Duration,
}

/// An item of the annotation: a name with or without a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    kind: Option<ConfigKind>,
    name: Name,
}

impl Together {
    /// Reads the annotations of a workload. `None` if they do not name two objects.
    pub(crate) fn read<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<Box<Self>> {
        let items = items(annotation(TOGETHER)?)?;
        let timeout = annotation(TOGETHER_TIMEOUT).and_then(duration::of_annotation);
        Some(Box::new(Self {
            items,
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
        }))
    }

    /// Returns the first item that names no object for which `is_tracked` holds.
    pub(crate) fn untracked(
        &self,
        is_tracked: impl Fn(ConfigKind, &Name) -> bool,
    ) -> Option<String> {
        let names_one = |item: &&Item| {
            let mut kinds = ConfigKind::ALL.into_iter();
            kinds.any(|kind| item.names(kind, &item.name) && is_tracked(kind, &item.name))
        };
        let first = self.items.iter().find(|item| !names_one(item));
        first.map(ToString::to_string)
    }

    /// Returns the memory that they take, in bytes, with what is remembered of their round.
    pub(crate) fn weight(&self) -> usize {
        const REMEMBERED: usize = 2 * (size_of::<Reference>() + size_of::<u64>());
        let of_one = |item: &Item| size_of_val(item) + REMEMBERED + 5 * item.name.as_str().len();
        size_of_val(self) + self.items.iter().map(of_one).sum::<usize>()
    }

    fn name(&self, reference: &Reference) -> bool {
        let mut items = self.items.iter();
        items.any(|item| item.names(reference.kind, &reference.name))
    }
}

impl fmt::Display for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items: Vec<_> = self.items.iter().map(ToString::to_string).collect();
        f.write_str(&items.join(", "))
    }
}

impl Item {
    fn names(&self, kind: ConfigKind, name: &Name) -> bool {
        self.name == *name && self.kind.is_none_or(|own| own == kind)
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "{}/{}", kind.as_str().to_lowercase(), self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

/// Returns true if a value of the annotation [`TOGETHER`] names two objects or more.
pub(crate) fn are_items(list: &str) -> bool {
    items(list).is_some()
}

/// Parses names such as `app`, `secret/app` and `configmap/app`. Waiting for a part of them would be wrong, so
/// one bad item makes a bad list.
fn items(list: &str) -> Option<Box<[Item]>> {
    let mut items: Vec<Item> = Vec::new();
    for item in list::items(Some(list)) {
        let (kind, name) = match item.split_once('/') {
            Some(("configmap", name)) => (Some(ConfigKind::ConfigMap), name),
            Some(("secret", name)) => (Some(ConfigKind::Secret), name),
            Some(_) => return None,
            None => (None, item),
        };
        let name = Name::parse(name).ok()?;
        let item = Item { kind, name };
        if !items.contains(&item) {
            items.push(item);
        }
        if items.len() > MAX_ITEMS {
            return None;
        }
    }
    (items.len() > 1).then(|| items.into())
}

/// The progress of the objects of one workload that change together.
///
/// # Guarantees
///
/// - A restart waits only while some of them have changed and others have not, or if nothing is known of the
///   time before, and in one round never for longer than the time-out. A new leader knows nothing of a round that
///   has begun, and begins it anew.
/// - An object that changes after its workload got the change of another one, be it by an edit of the pod
///   template or because the time was over, is not waited for a second time.
#[derive(Debug, Default)]
pub struct Round {
    /// The content of each object before the round.
    before: BTreeMap<Reference, u64>,
    /// The content of each object as last seen.
    latest: BTreeMap<Reference, u64>,
    /// The beginning of the round, if one has begun.
    since: Option<Instant>,
    /// True if a change was due when the objects were first seen, so that nobody knows which of them changed.
    is_blind: bool,
    /// True if a restart has waited in this round.
    has_waited: bool,
}

/// The verdict on a restart that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to wait for.
    Go,
    /// The restart has waited, and all objects have changed.
    Complete,
    /// The restart waits for these objects.
    Wait(Missing, Instant),
    /// The restart has waited in vain for these objects. Said once.
    TimedOut(Missing),
}

/// The objects of a round that have not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The objects, sorted.
    pub objects: Vec<Reference>,
    /// True if nobody knows which of them have changed.
    pub is_blind: bool,
}

impl Round {
    /// Takes in the `contents` that a workload tracks `now`. `is_due` says that its pods have other ones.
    pub fn look(
        &mut self,
        together: &Together,
        contents: &Contents<'_>,
        is_due: bool,
        now: Instant,
    ) {
        let is_first = self.latest.is_empty();
        let is_over = |since| now >= since + 2 * together.timeout;
        if self.since.is_some_and(is_over) || (self.is_blind && !is_due) {
            self.end();
        }
        let named = contents.0.iter();
        let named = named.filter(|(reference, _)| together.name(reference));
        self.latest = named
            .map(|(reference, content)| ((*reference).clone(), content.fingerprint()))
            .collect();
        self.before.retain(|it, _| self.latest.contains_key(it));
        for (reference, content) in &self.latest {
            self.before.entry(reference.clone()).or_insert(*content);
        }
        if is_first && is_due {
            (self.since, self.is_blind) = (Some(now), true);
        }
        let all = self.latest.len();
        match all - self.unchanged().count() {
            changed if changed == all || all == 1 => self.end(),
            0 if !self.is_blind => self.since = None,
            _ => drop(self.since.get_or_insert(now)),
        }
        self.has_waited &= is_due;
    }

    /// Returns whether a restart that is due has to wait.
    pub fn verdict(&mut self, together: &Together, now: Instant) -> Verdict {
        let Some(since) = self.since else {
            return match std::mem::take(&mut self.has_waited) {
                true => Verdict::Complete,
                false => Verdict::Go,
            };
        };
        let missing = Missing {
            objects: self.unchanged().cloned().collect(),
            is_blind: self.is_blind,
        };
        let until = since + together.timeout;
        if now < until {
            self.has_waited = true;
            return Verdict::Wait(missing, until);
        }
        match std::mem::take(&mut self.has_waited) {
            true => Verdict::TimedOut(missing),
            false => Verdict::Go,
        }
    }

    fn unchanged(&self) -> impl Iterator<Item = &Reference> {
        let unchanged = self.latest.iter();
        let unchanged =
            unchanged.filter(|(reference, now)| self.before.get(reference) == Some(now));
        unchanged.map(|(reference, _)| reference)
    }

    /// Ends the round: the next change begins another one.
    fn end(&mut self) {
        self.before.clone_from(&self.latest);
        (self.since, self.is_blind) = (None, false);
    }
}

#[cfg(test)]
mod tests;
