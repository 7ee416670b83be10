//! The memory of one object, and of the objects of a kind in a namespace.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use pod_reloader_core::digest::Presence;
use pod_reloader_core::duration::MAX_SETTLE_PERIOD;
use pod_reloader_core::reference::Reference;
use tokio::time::Instant;

use crate::restart::moment::Moment;

#[derive(Default)]
pub(super) struct Entry {
    pub(super) state: Mutex<State>,
    /// Locked while the object is read, so that a fan-out shares one GET.
    pub(super) reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) known: Known,
    /// The time of the last event that reported something new.
    pub(super) forgotten: Option<Moment>,
    /// True if the last attempt to read the object failed.
    pub(super) is_failing: bool,
    /// True if the object had the same content as before when it was last read because of news.
    is_unchanged_by_news: bool,
}

#[derive(Default)]
pub(super) struct Listing {
    pub(super) state: Mutex<ListingState>,
    /// Locked while the objects are listed, so that a fan-out shares one list.
    pub(super) listing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
pub(super) struct ListingState {
    pub(super) listed: Option<Arc<Listed>>,
    /// The time of the last event that reported an object as created or deleted.
    pub(super) forgotten: Option<Instant>,
}

/// The result of a list.
pub(super) struct Listed {
    pub(super) names: BTreeSet<Reference>,
    pub(super) began: Instant,
    /// The time when the first list began.
    pub(super) first: Instant,
    /// The objects that recently appeared or disappeared, and when the list began that showed it.
    pub(super) changed: HashMap<Reference, Instant>,
}

/// What is known of the content of an object.
pub(super) enum Known {
    /// It has not been read yet.
    Unread {
        /// The last time when a watch has shown a change of it.
        heard_of: Option<Instant>,
    },
    /// The last read.
    Read(Read),
}

impl Default for Known {
    fn default() -> Self {
        Self::Unread { heard_of: None }
    }
}

/// The result of a read.
#[derive(Clone)]
pub(super) struct Read {
    pub(super) presence: Presence,
    began: Moment,
    pub(super) changed: Moment,
    pub(super) sight: Sight,
}

/// How the content of an object was seen.
#[derive(Clone, Copy)]
pub(super) enum Sight {
    /// The first read has shown it.
    First {
        /// The last time when a watch had shown a change of the object before that read.
        heard_of: Option<Instant>,
    },
    /// It was seen to change.
    Changed,
}

impl Listed {
    pub(super) fn after(last: Option<&Self>, names: BTreeSet<Reference>, began: Instant) -> Self {
        let Some(last) = last else {
            return Self {
                names,
                began,
                first: began,
                changed: HashMap::new(),
            };
        };
        let is_recent = |at: &Instant| began.duration_since(*at) < MAX_SETTLE_PERIOD;
        let earlier = last.changed.iter().filter(|(_, at)| is_recent(at));
        let mut changed: HashMap<_, _> = earlier.map(|(it, at)| (it.clone(), *at)).collect();
        let now = names.symmetric_difference(&last.names);
        changed.extend(now.map(|it| (it.clone(), began)));
        Self {
            names,
            began,
            first: last.first,
            changed,
        }
    }
}

impl State {
    /// Returns the last read.
    pub(super) fn read(&self) -> Option<&Read> {
        match &self.known {
            Known::Unread { .. } => None,
            Known::Read(read) => Some(read),
        }
    }

    /// Returns the last read, if it began at `since` or later and no event has reported news since it
    /// began.
    pub(super) fn fresh(&self, since: Option<Instant>) -> Option<&Read> {
        let read = self.read()?;
        let is_late_enough = since.is_none_or(|since| read.began >= Moment::from(since));
        let is_latest = self
            .forgotten
            .is_none_or(|forgotten| read.began > forgotten);
        (is_late_enough && is_latest).then_some(read)
    }

    /// Returns the time of the news that the last read is older than, if they may be of other content.
    pub(super) fn news(&self) -> Option<Instant> {
        let read = self.read().filter(|_| !self.is_unchanged_by_news)?;
        let news = self.forgotten.filter(|at| *at >= read.began)?;
        Some(news.into())
    }

    /// Returns the read that follows the last one.
    pub(super) fn after(&mut self, presence: Presence, began: Instant) -> Read {
        if let Some(last) = self.read()
            && self.forgotten.is_some_and(|at| at >= last.began)
        {
            self.is_unchanged_by_news = last.presence.same_content(&presence);
        }
        Read::after(&self.known, presence, began.into())
    }
}

impl Read {
    /// Returns true if the read covers each of these keys.
    pub(super) fn covers<'a>(&self, keys: impl Iterator<Item = &'a str>) -> bool {
        match &self.presence {
            Presence::Present(object) => object.covers(keys),
            Presence::Absent => true,
        }
    }

    fn after(known: &Known, presence: Presence, began: Moment) -> Self {
        let (changed, sight) = match known {
            Known::Read(last) if last.presence.same_content(&presence) => {
                (last.changed, last.sight)
            }
            Known::Read(_) => (began, Sight::Changed),
            Known::Unread { heard_of } => (
                began,
                Sight::First {
                    heard_of: *heard_of,
                },
            ),
        };
        Self {
            presence,
            began,
            changed,
            sight,
        }
    }
}
