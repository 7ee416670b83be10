//! The releases that are stored, and which of them a restart waits for.

mod wait;

use std::collections::HashMap;
use std::time::Instant;

pub use self::wait::{Candidate, Change, Wait};
use super::{Places, Release, Revision, Stage, Step, Tool, argo_cd};
use crate::name::Name;

/// The memory that a release takes, apart from texts, in bytes: in the table, which has room to grow, and for its name.
const RELEASE: usize = 2 * size_of::<(Box<str>, Stored)>() + TEXT;
/// The memory that a revision takes in addition that has not ended, in bytes.
const OPEN: usize = size_of::<Open>() + TEXT;
/// The memory that an object takes that a sync has applied, in bytes.
const APPLIED: usize = 24;
/// The memory that a separate text takes apart from itself, in bytes.
const TEXT: usize = 32;

/// The releases, by the revisions that are stored of them.
///
/// # Guarantees
///
/// The releases of a tool in one namespace take no more than the share. Restarts do not wait for those that do not fit.
#[derive(Debug)]
pub struct Releases {
    /// The maximum total weight of the releases of a tool in one namespace, in bytes.
    share: usize,
    stored: HashMap<(Tool, Name), InNamespace>,
    /// The namespace of the Applications that objects name without a namespace.
    home: Option<Name>,
}

/// The releases of a tool in one namespace.
#[derive(Debug, Default)]
struct InNamespace {
    /// They, by name.
    releases: HashMap<Box<str>, Stored>,
    weight: usize,
    /// True once there was no room for one.
    is_full: bool,
}

/// The revisions of one release.
#[derive(Debug, Default)]
struct Stored {
    /// The newest one that has ended.
    ended: Option<Ended>,
    /// Those that are under way or have failed.
    open: Vec<Open>,
}

#[derive(Debug)]
struct Ended {
    number: u64,
    /// True unless a list has begun that has not shown it yet.
    is_listed: bool,
}

#[derive(Debug)]
struct Open {
    number: u64,
    /// True unless a list has begun that has not shown it yet.
    is_listed: bool,
    stage: Stage,
    /// The resourceVersion of Helm's Secret when the revision began, if that was seen.
    began: Option<u64>,
    /// The time when the stage was first seen.
    seen: Instant,
    /// The number of restarts that gave up waiting for it.
    vain: usize,
    /// The time when the last of them did.
    given_up: Option<Instant>,
}

/// What a revision has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppliedRevision {
    /// True if it is news.
    pub is_news: bool,
    /// True if there is no room for its release, for the first time in this namespace.
    pub is_first_left_out: bool,
}

impl Releases {
    /// Returns no releases, which are to be found in these places. Those of a tool in one namespace may take `share`
    /// bytes.
    pub fn new(places: &Places, share: usize) -> Self {
        Self {
            share,
            stored: HashMap::new(),
            home: argo_cd::home(places),
        }
    }

    /// Takes in a revision as it is now.
    pub fn apply(&mut self, revision: Revision, now: Instant) -> AppliedRevision {
        // Of Helm, the newest revision says that an older one was abandoned, even when it has ended.
        if revision.stage == Stage::Ended && revision.release.tool != Tool::Helm {
            return AppliedRevision {
                is_news: self.delete(&revision),
                is_first_left_out: false,
            };
        }
        let Some(place) = place(&revision.release) else {
            return AppliedRevision::default();
        };
        let here = self.stored.entry(place).or_default();
        here.apply(revision, now, self.share)
    }

    /// Forgets a revision, which is no longer stored or no longer matters. Returns true if it was known.
    pub fn delete(&mut self, revision: &Revision) -> bool {
        let Some(place) = place(&revision.release) else {
            return false;
        };
        let Some(here) = self.stored.get_mut(&place) else {
            return false;
        };
        let was_known = here.delete(&revision.release.name, revision.number);
        if here.releases.is_empty() {
            self.stored.remove(&place);
        }
        was_known
    }

    /// Takes in that a list of a tool's revisions in `namespace`, or in all namespaces, begins.
    pub fn listing(&mut self, tool: Tool, namespace: Option<&Name>) {
        let all = self.places(tool, namespace);
        for stored in all.flat_map(|(_, here)| here.releases.values_mut()) {
            if let Some(ended) = &mut stored.ended {
                ended.is_listed = false;
            }
            for open in &mut stored.open {
                open.is_listed = false;
            }
        }
    }

    /// Takes in that such a list is complete, and forgets every revision that was not among it. Returns the releases
    /// that this affects.
    pub fn listed(&mut self, tool: Tool, namespace: Option<&Name>) -> Vec<Release> {
        let mut affected = Vec::new();
        for ((tool, namespace), here) in self.places(tool, namespace) {
            for name in here.forget_unlisted() {
                affected.push(Release {
                    tool: *tool,
                    namespace: Some(namespace.clone()),
                    name,
                });
            }
        }
        self.stored.retain(|_, here| !here.releases.is_empty());
        affected
    }

    /// Returns the total weight of the releases of a tool in a namespace, in bytes.
    pub fn weight(&self, tool: Tool, namespace: &Name) -> usize {
        let here = self.stored.get(&(tool, namespace.clone()));
        here.map_or(0, |it| it.weight)
    }

    /// Returns true if no release is stored.
    pub fn is_empty(&self) -> bool {
        // A place whose only release does not fit is the exception.
        self.stored.values().all(|it| it.releases.is_empty())
    }

    /// Returns the namespaces with releases of a tool: this one, or all of them.
    fn places(
        &mut self,
        tool: Tool,
        namespace: Option<&Name>,
    ) -> impl Iterator<Item = (&(Tool, Name), &mut InNamespace)> {
        let all = self.stored.iter_mut();
        all.filter(move |((of, place), _)| *of == tool && namespace.is_none_or(|it| it == place))
    }
}

/// Returns where a release is stored, if that is known.
fn place(release: &Release) -> Option<(Tool, Name)> {
    Some((release.tool, release.namespace.clone()?))
}

impl InNamespace {
    /// Takes in a revision. If there is no room for its release, that is forgotten.
    fn apply(&mut self, revision: Revision, now: Instant, share: usize) -> AppliedRevision {
        let before = self.take(&revision.release.name);
        let was_known = before.is_some();
        let mut stored = before.unwrap_or_default();
        let is_news = stored.apply(revision.number, revision.stage, now);
        match self.put(revision.release.name, stored, share) {
            Ok(()) => AppliedRevision {
                is_news,
                is_first_left_out: false,
            },
            Err(TooLarge) => AppliedRevision {
                is_news: was_known,
                is_first_left_out: !std::mem::replace(&mut self.is_full, true),
            },
        }
    }

    fn delete(&mut self, name: &str, number: u64) -> bool {
        let Some(mut stored) = self.take(name) else {
            return false;
        };
        let was_known = stored.delete(number);
        if !stored.is_empty() {
            let put = self.put(name.into(), stored, usize::MAX);
            put.expect("it has become smaller");
        }
        was_known
    }

    /// Forgets what the last list has not shown. Returns the releases that this affects.
    fn forget_unlisted(&mut self) -> Vec<Box<str>> {
        let mut affected = Vec::new();
        self.weight = 0;
        self.releases.retain(|name, stored| {
            let is_affected = stored.forget_unlisted();
            affected.extend(is_affected.then(|| name.clone()));
            if !stored.is_empty() {
                self.weight += stored.weight(name);
            }
            !stored.is_empty()
        });
        affected
    }

    fn take(&mut self, name: &str) -> Option<Stored> {
        let stored = self.releases.remove(name)?;
        self.weight -= stored.weight(name);
        Some(stored)
    }

    fn put(&mut self, name: Box<str>, stored: Stored, share: usize) -> Result<(), TooLarge> {
        let weight = self.weight + stored.weight(&name);
        if weight > share {
            return Err(TooLarge);
        }
        self.weight = weight;
        self.releases.insert(name, stored);
        Ok(())
    }
}

/// The error of a release for which there is no room.
#[derive(Debug)]
struct TooLarge;

impl Stored {
    /// Takes in a revision as it is now. Returns true if that is news.
    fn apply(&mut self, number: u64, stage: Stage, now: Instant) -> bool {
        if stage == Stage::Ended {
            return self.ends(number);
        }
        if self.ended.as_ref().is_some_and(|it| it.number == number) {
            self.ended = None;
        }
        let known = self.open.iter_mut().find(|it| it.number == number);
        let mut began = known.as_ref().and_then(|it| it.began);
        if let Stage::UnderWay(Step::Helm {
            version,
            has_hook: false,
        }) = stage
        {
            began = Some(version);
        }
        let open = Open {
            number,
            is_listed: true,
            stage,
            began,
            seen: now,
            vain: 0,
            given_up: None,
        };
        match known {
            Some(known) if known.stage == open.stage => {
                known.is_listed = true;
                return false;
            }
            Some(known) => *known = open,
            None => {
                // Most releases have one.
                self.open.reserve_exact(1);
                self.open.push(open);
            }
        }
        true
    }

    fn ends(&mut self, number: u64) -> bool {
        let was_open = self.delete_open(number);
        match &mut self.ended {
            Some(ended) if ended.number > number => was_open,
            Some(ended) if ended.number == number => {
                ended.is_listed = true;
                false
            }
            ended => {
                *ended = Some(Ended {
                    number,
                    is_listed: true,
                });
                true
            }
        }
    }

    fn delete(&mut self, number: u64) -> bool {
        let has_ended = self.ended.as_ref().is_some_and(|it| it.number == number);
        if has_ended {
            self.ended = None;
        }
        self.delete_open(number) || has_ended
    }

    fn delete_open(&mut self, number: u64) -> bool {
        let before = self.open.len();
        self.open.retain(|it| it.number != number);
        self.open.len() < before
    }

    /// Forgets what the last list has not shown. Returns true if that is anything.
    fn forget_unlisted(&mut self) -> bool {
        let before = self.count();
        if self.ended.as_ref().is_some_and(|it| !it.is_listed) {
            self.ended = None;
        }
        self.open.retain(|it| it.is_listed);
        self.count() < before
    }

    fn count(&self) -> usize {
        usize::from(self.ended.is_some()) + self.open.len()
    }

    fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Returns the newest revision, if it has not ended. An older one that says that it is under way was abandoned.
    fn newest(&self) -> Option<&Open> {
        let newest = self.open.iter().max_by_key(|it| it.number)?;
        let ended = self.ended.as_ref();
        ended
            .is_none_or(|it| it.number < newest.number)
            .then_some(newest)
    }

    /// Returns the memory that it takes, in bytes.
    fn weight(&self, name: &str) -> usize {
        let open = self.open.iter().map(|it| match &it.stage {
            Stage::UnderWay(Step::ArgoCd { applied, .. }) => OPEN + APPLIED * applied.len(),
            _ => OPEN,
        });
        RELEASE + name.len() + open.sum::<usize>()
    }
}
